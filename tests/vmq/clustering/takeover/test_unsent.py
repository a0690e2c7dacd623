"""What had no room in an outbox comes all the same, and in order; marks go first, where they belong."""

from typing import cast

from tests.vmq.clustering.world_node import WHO
from vmq.clustering.messages.takeover import Move, RouteMarker, SessionFree
from vmq.clustering.takeover.port import TakeoverPort
from vmq.clustering.takeover.unsent import UnsentMessages


class Narrow:
    """A node with room for so many more."""

    def __init__(self) -> None:
        self.room = 0
        self.sent: list[tuple[str, Move]] = []

    def send(self, peer: str, message: Move, done: object = None) -> bool:
        if not self.room:
            return False
        self.room -= 1
        self.sent.append((peer, message))
        return True


def test_what_had_no_room_comes_in_order_and_what_is_for_nobody_never() -> None:
    here = Narrow()
    unsaid = UnsentMessages(cast("TakeoverPort", here))
    free = [SessionFree("", str(number)) for number in range(3)]
    mark = RouteMarker(*WHO, 7, "b", "a", {})
    unsaid.say("b", free[0])
    unsaid.say("c", free[0])
    here.room = 2
    unsaid.say("b", free[1])  # it waits behind the first
    unsaid.say("b", mark)
    assert here.sent == [("b", mark)]
    unsaid.say_rest()
    assert here.sent == [("b", mark), ("b", free[0])]
    unsaid.forget("c")
    here.room = 9
    unsaid.say_rest()
    unsaid.say_rest()
    assert here.sent == [("b", mark), ("b", free[0]), ("b", free[1])]

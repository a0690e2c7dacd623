"""A node's machines: what a message costs its disk."""

from collections import Counter
from itertools import count

from tests.simulator.sessions.client import one_by_one
from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.messages.fronts import SessionStep
from vmq.clustering.messages.slots import SlotView, SlotViews
from vmq.clustering.origin.outbox import OVERHEAD, Publication
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.words import PUBACK, PUBREL, SUBSCRIBE, incarnation_of

NUMBER = 7
#: Bytes in front of the key of a record: that it is one, its slot, and the number of the set.
PREFIX = 7


class Alone:
    """A node without others, and a client of it that has subscribed."""

    def __init__(self) -> None:
        here = LocalNode(incarnation_of(1, 1), Reach(1, "x", 1000, 200), replicas=1)
        self.node = SessionNode(here, 1)
        self.now = 0
        self.acknowledged = 0
        self.node.slots.found()
        self.tick()
        self.node.connect(NUMBER, "c")
        self.node.front.step(NUMBER, SessionStep(SUBSCRIBE, 1, filters=[("t", 1)]))
        self.node.finish()
        for slot, ticket, begun, _ in self.node.effects.routes:
            for each in begun:
                self.node.routes.add(each, slot)
            self.node.announced(slot, ticket)
        self.tick()
        self.write()
        self.node.effects.steps.clear()

    def tick(self) -> None:
        self.now += 100
        self.node.tick(self.now)

    def publish(self, text: bytes = b"text") -> None:
        origin, targets = self.node.origin, self.node.routes.targets("t")
        publication = Publication(b"t", text, 1, 0, self._acknowledge)
        origin.publish(origin.reserve(targets), publication)
        self.node.finish()

    def publish_in_haste(self) -> None:
        """It does not wait for the client."""
        self.node.slots.turns.hasty = 1
        self.publish()

    def _acknowledge(self) -> None:
        self.acknowledged += 1

    def take(self) -> None:
        """The client gets what is for it, and acknowledges that."""
        steps, self.node.effects.steps = self.node.effects.steps, []
        for step in one_by_one([step for _, step in steps]):
            self.node.front.step(NUMBER, SessionStep(PUBACK, step.packet))
        self.node.finish()

    def write(self) -> Counter[tuple[str, bool]]:
        """What has gathered is on disk: how many records of each kind it wrote, or deleted (False)."""
        number, writes, _ = self.node.effects.begin_commit()
        self.node.on_stored(number)
        return Counter(
            (key[PREFIX : PREFIX + 1].decode(), value is not None) for key, value in writes.items()
        )


def test_who_was_held_up_learns_of_that_before_it_takes_what_came_meanwhile() -> None:
    there = Alone()
    reach = there.node.here.reach
    there.node.wake(there.now + 100)
    assert (reach.holds, there.node.here.now) == (0, there.now)
    there.node.wake(there.now + 900)
    assert (reach.holds, there.node.here.now) == (1, there.now + 900)


def test_a_client_that_goes_before_its_owner_has_answered_is_served_no_more() -> None:
    there = Alone()
    serving = there.node.slots.owners[0].attachments.serving
    there.node.front.connect(8, "d", 0)  # it asks
    there.node.front.disconnect(8)
    there.node.finish()
    assert list(serving) == ["c"]


def test_what_a_client_has_at_once_is_written_nowhere_and_its_publisher_answered() -> None:
    there = Alone()
    there.publish()
    assert there.write() == {}
    assert there.acknowledged == 0
    there.take()
    assert there.acknowledged == 1
    there.tick()
    assert not {kind for kind, _ in there.write()} & {"m", "q", "i"}


def test_what_nobody_waits_for_any_longer_is_answered_when_it_is_written() -> None:
    there = Alone()
    there.publish()
    assert there.node.awaited() == 1
    there.node.hurry()
    assert there.acknowledged == there.node.awaited() == 0
    assert there.write() == {("h", True): 1, ("c", True): 1, ("m", True): 1, ("q", True): 1}
    assert there.acknowledged == 1
    there.take()
    assert there.acknowledged == 1


def test_what_waits_for_its_client_is_not_lost_with_what_else_becomes_of_the_session() -> None:
    there = Alone()
    there.publish()
    assert there.node.slots.owners[0].state.messages  # somebody looks: it flows no more
    there.take()
    there.node.hurry()
    there.write()
    assert there.acknowledged == 1


def test_what_a_client_acknowledges_is_written_with_the_next_message() -> None:
    there = Alone()
    there.publish_in_haste()
    there.write()
    there.take()
    assert there.write() == {}
    there.publish_in_haste()
    found = there.write()
    assert {("m", False), ("m", True), ("q", True)} <= found.keys()


def test_it_is_written_soon_when_nothing_follows() -> None:
    there = Alone()
    there.publish_in_haste()
    there.write()
    there.take()
    there.tick()
    assert {("m", False), ("q", False)} <= there.write().keys()
    there.tick()
    assert there.write() == {}


def test_it_is_written_when_the_node_stops() -> None:
    there = Alone()
    there.publish_in_haste()
    there.write()
    there.take()
    there.node.end()
    assert {("m", False), ("q", False)} <= there.write().keys()


def test_what_comes_and_goes_between_two_commits_is_no_record() -> None:
    """A packet id under way to a client that acknowledges at once; one that it leaves unanswered is written."""
    there = Alone()
    kinds: Counter[tuple[str, bool]] = Counter()
    for _ in range(5):
        there.publish_in_haste()
        kinds += there.write()
        there.take()
    there.tick()
    kinds += there.write()
    assert kinds["m", True] == kinds["m", False] == 5
    assert kinds["i", True] == kinds["i", False] == 0
    there.publish()
    there.write()
    there.tick()
    assert there.write()["i", True] == 1


def test_what_a_slot_of_its_own_does_not_take_yet_comes_before_what_follows() -> None:
    alone = Alone()
    reach = alone.node.here.reach
    reach.set_members({1: "x", 2: "y"})  # nobody knows yet whether that one is there
    alone.publish(b"1")
    assert not alone.node.effects.steps
    reach.set_members({1: "x"})
    alone.publish(b"2")
    alone.tick()
    found = [step.payload for step in one_by_one([step for _, step in alone.node.effects.steps])]
    assert found == [b"1", b"2"]


def test_publishers_wait_for_qos_2_messages_that_no_owner_knows_yet() -> None:
    """Nor does a client that releases one over and over take any more room."""
    there = Alone()
    front, origin, targets = there.node.front, there.node.origin, there.node.routes.targets("t")
    front.publish(NUMBER, 1, 2, b"t", b"x" * 100, False, targets)
    assert origin.bytes == 101 + OVERHEAD  # as one that no slot has: empty ones are messages, too
    there.node.finish()
    there.write()
    there.write()
    assert origin.bytes == 0
    connection = front.connections[NUMBER]
    front.detach(connection)
    for packet in (2, 3):
        front.publish(NUMBER, packet, 2, b"t", b"x" * 100, False, targets)
    for _ in range(5):
        front.step(NUMBER, SessionStep(PUBREL, 1))
    assert origin.bytes == 2 * (101 + OVERHEAD)
    assert len(connection.unanswered) == 3
    front.disconnect(NUMBER)
    assert origin.bytes == 0


def test_a_look_is_as_long_as_there_are_slots_and_clients_without_an_owner() -> None:
    there = Alone()
    front = there.node.front
    for number in range(100):
        there.node.connect(1000 + number, f"c{number}")
    assert all(each.attached is not None for each in front.connections.values())
    view, seen = front._view, list[int]()

    def counted(slot: int) -> SlotView:
        seen.append(slot)
        return view(slot)

    front._view = counted
    front.look(True)
    assert len(seen) == 1
    front.detach(front.connections[1000])
    front.look(True)
    assert len(seen) == 3


def test_the_slots_of_a_node_that_ends_are_taken_over_in_bites() -> None:
    looks = count(1)
    reach = Reach(1, "x", 1000, 200)
    reach.set_members({2: "y"})
    here = LocalNode(incarnation_of(1, 1), reach)
    here.has_time = lambda: next(looks) % 11 > 0
    node = SessionNode(here, 100)
    lost = SlotView(1, incarnation_of(2, 1), 1, (1,))
    node.receive(2, SlotViews([(slot, lost) for slot in range(100)]))
    node.on_break(2, True)
    counts = [len(node.slots.owners)]
    while node.go_on():
        counts.append(len(node.slots.owners))
    assert [*counts, len(node.slots.owners)] == list(range(10, 101, 10))

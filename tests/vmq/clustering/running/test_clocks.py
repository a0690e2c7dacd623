"""Whose clock is wrong is told once, of the right node, and in `/health` while it is."""

import pytest

from vmq.clustering.messages.slots import Beat
from vmq.clustering.running.clocks import LOOKS, ClockStatus
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.words import incarnation_of

HOUR = 3_600_000
BEGIN = 1_000 * HOUR
NAMES = {2: "b", 3: "c"}


class Watched:
    """Node a, and what the clocks of b and c say."""

    def __init__(self) -> None:
        self.reach = Reach(1, "a", 1000, 200)
        self.reach.set_members({2: "b", 3: "c"})
        self.here = LocalNode(incarnation_of(1, 1), self.reach)
        self.status = ClockStatus(self.here, NAMES.__getitem__)

    def show(self, *hours: float, looks: int = LOOKS) -> list[str]:
        """By each clock so many hours have passed; what `/health` says after so many looks."""
        for _ in range(looks):
            own, *others = [BEGIN + int(each * HOUR) for each in hours]
            self.here.now = own
            for store, now in enumerate(others, 2):
                self.reach.on_beat(
                    store, Beat(incarnation_of(store, 1), [1, 2, 3], False, max(own, now), now)
                )
            self.status.look()
        return list(self.status.problems())


@pytest.mark.parametrize("wrong", [0, 1, 2])
@pytest.mark.parametrize(("hours", "how"), [(6, "21600 s ahead of"), (-6, "21600 s behind")])
def test_the_one_that_differs_is_wrong(
    wrong: int, hours: int, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    watched = Watched()
    assert watched.show(0, 0, 0) == []
    (problem,) = watched.show(*[hours * (each == wrong) for each in range(3)], looks=9)
    who = ("this node", "node b", "node c")[wrong]
    assert problem.startswith(f"the clock of {who} is wrong: it is {how} the middle one")
    assert watched.show(1, 1, 1) == []
    assert caplog.messages == [problem, f"the clock of {who} is right again"]


def test_seconds_apart_and_what_is_over_at_once_are_told_to_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A node that was stopped for minutes has old words of the others, for a moment."""
    caplog.set_level("INFO")
    watched = Watched()
    assert watched.show(0.01, 0, 0.01, looks=9) == []
    assert watched.show(6, 0, 0, looks=LOOKS - 1) == []
    assert watched.show(0, 0, 0) == []
    assert caplog.messages == []

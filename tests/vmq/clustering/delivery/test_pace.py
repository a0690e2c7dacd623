"""When messages leave for leaders: at once, or with others."""

from itertools import pairwise

import pytest

from tests.simulator.clock import Clock
from vmq.clustering.delivery.pace import CROWDED, PACE, Pace


class Node(Clock):
    """What leaves when."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[tuple[float, str]] = []
        self.pace = Pace(lambda: self.now, self.later)

    def come(self, name: str, *, is_alone: bool, then: float | None = None) -> None:
        self.pace.soon(lambda: self.left.append((self.now, name)), is_alone)
        if then is not None:
            self.run(then)

    def fail(self) -> None:
        self.left.append((self.now, "fails"))
        raise RuntimeError("of one partition")


def test_who_is_alone_waits_for_nobody() -> None:
    node = Node()
    for number in range(5):
        node.come(f"{number}", is_alone=True)
        assert node.left[number:] == []
        node.run(0)
        assert node.left[number:] == [(node.now, f"{number}")]
        node.run(0.001)


def test_of_many_all_leave_together_a_pace_apart() -> None:
    node = Node()
    for number in range(100):
        node.come(f"{number}", is_alone=number % 4 == 0, then=0.001)
    node.run(1.0)
    assert [name for _, name in node.left] == [f"{number}" for number in range(100)]
    times = sorted({time for time, _ in node.left})
    assert all(later - sooner >= PACE * 0.99 for sooner, later in pairwise(times[1:]))
    assert len(times) <= 0.1 / PACE + 2


def test_two_at_the_same_time_count_as_many() -> None:
    node = Node()
    node.come("a", is_alone=True)
    node.come("b", is_alone=True, then=0.001)
    node.come("a", is_alone=True, then=0.001)
    assert [name for _, name in node.left] == ["a", "b"]
    node.run(PACE)
    assert node.left[2:] == [(PACE, "a")]


def test_a_while_after_they_were_many_one_alone_waits_for_nobody_again() -> None:
    node = Node()
    node.come("a", is_alone=False, then=CROWDED + 0.001)
    node.come("b", is_alone=True, then=0.001)
    node.come("c", is_alone=True, then=0.001)
    assert [round(time, 3) for time, _ in node.left] == [0.0, 0.051, 0.052]


def test_a_defect_in_one_partition_keeps_no_other_waiting() -> None:
    node = Node()
    node.come("a", is_alone=True)
    node.pace.soon(node.fail, is_alone=True)
    node.come("b", is_alone=True)
    with pytest.raises(RuntimeError, match="of one partition"):
        node.run(0.001)
    assert [name for _, name in node.left] == ["a", "fails", "b"]
    node.come("a", is_alone=True, then=PACE)
    assert node.left[-1][1] == "a"

"""When messages leave for leaders: at once, or with others."""

from collections.abc import Callable
from itertools import pairwise

from vmq.clustering.delivery.pace import CROWDED, PACE, Pace


class Node:
    """A clock, and what leaves when."""

    def __init__(self) -> None:
        self.time = 0.0
        self.calls: list[tuple[float, Callable[[], None]]] = []
        self.left: list[tuple[float, str]] = []
        self.pace = Pace(lambda: self.time, self.later)

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        self.calls.append((self.time + seconds, what))

    def come(self, name: str, *, is_alone: bool) -> None:
        self.pace.soon(lambda: self.left.append((self.time, name)), is_alone)

    def run(self, until: float) -> None:
        while self.calls and self.calls[0][0] <= until:
            self.time, what = self.calls.pop(0)
            what()
        self.time = until


def test_who_is_alone_waits_for_nobody() -> None:
    node = Node()
    for number in range(5):
        node.come("a", is_alone=True)
        node.run(0.001 * (number + 1))
    assert node.left == [(0.001 * number, "a") for number in range(5)]


def test_of_many_all_leave_together_a_pace_apart() -> None:
    node = Node()
    for number in range(100):
        node.come(f"{number}", is_alone=number % 4 == 0)
        node.run(0.001 * (number + 1))
    node.run(1.0)
    assert [name for _, name in node.left] == [f"{number}" for number in range(100)]
    times = sorted({time for time, _ in node.left})
    assert all(later - sooner >= PACE * 0.99 for sooner, later in pairwise(times[1:]))
    assert len(times) <= 0.1 / PACE + 2


def test_two_at_the_same_time_count_as_many() -> None:
    node = Node()
    node.come("a", is_alone=True)
    node.come("b", is_alone=True)
    node.run(0.001)
    node.come("a", is_alone=True)
    node.run(0.002)
    assert [name for _, name in node.left] == ["a", "b"]
    node.run(PACE)
    assert node.left[-1] == (PACE, "a")


def test_a_while_after_they_were_many_one_alone_waits_for_nobody_again() -> None:
    node = Node()
    node.come("a", is_alone=False)
    node.run(CROWDED + 0.001)
    node.come("b", is_alone=True)
    node.run(CROWDED + 0.002)
    node.come("c", is_alone=True)
    node.run(CROWDED + 0.003)
    assert [round(time, 3) for time, _ in node.left] == [0.0, 0.051, 0.052]

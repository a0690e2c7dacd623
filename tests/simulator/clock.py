"""The time of a simulated cluster: events, and nothing between them."""

import heapq
from collections.abc import Callable
from typing import Any

#: The wall clock at the beginning, in milliseconds.
EPOCH = 1_700_000_000_000

#: Seconds between two looks of who waits for something.
LOOK = 0.25


class Clock:
    """What is to happen when; events of the same moment happen in the order in which they were asked for."""

    def __init__(self) -> None:
        #: Seconds since the beginning.
        self.now = 0.0
        #: Seconds that one event takes: with none, whoever looks again at once until time has passed looks forever.
        self.cost = 0.0
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._order = 0

    def later(self, delay: float, what: Callable[..., object], *arguments: Any) -> None:
        self._order += 1
        heapq.heappush(self._events, (self.now + delay, self._order, what, arguments))

    def step(self) -> None:
        """The next event happens."""
        due, _, what, arguments = heapq.heappop(self._events)
        self.now = max(self.now, due) + self.cost
        what(*arguments)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._events and self._events[0][0] <= end:
            self.step()
        self.now = max(self.now, end)

    def until(self, condition: Callable[[], object], limit: float, look: float = LOOK) -> None:
        """Lets time pass until something is so, and fails after so many seconds."""
        end = self.now + limit
        while not condition():
            assert self.now < end, f"not so after {limit} s"
            self.run(look)

"""Deadlines of many jobs: set, moved and cancelled at a constant cost.

Most deadlines are cancelled long before they are due (a job is acknowledged in milliseconds, its retry is due in
minutes), so a heap would hold ever more that means nothing. Here a deadline is a link in the ring of its bucket.
Buckets are the wider the farther they are away; what lies in a wide one is put into a narrow one when that begins
(hierarchical timing wheels: Varghese and Lauck 1987).
"""

from heapq import heappop, heappush
from typing import Final

#: Ticks a second: how exact deadlines are.
TICKS: Final = 10
#: Up to so many ticks ahead a bucket is one tick wide, then 20, then 600.
_NEAR: Final = 160
_MIDDLE: Final = 6000


class Timed:
    """Something with a deadline."""

    def __init__(self) -> None:
        self.before: Timed | None = None
        self.after: Timed | None = None
        #: By the clock of whoever sets it, in seconds.
        self.due: float = 0.0


class TimerBucket(Timed):
    """The ring of what is due about the same time; it is itself a link of it."""

    def __init__(self, tick: int) -> None:
        super().__init__()
        self.tick = tick


class JobTimers:
    """Deadlines, by a clock that never goes back."""

    def __init__(self) -> None:
        self.buckets: dict[int, TimerBucket] = {}
        #: The ticks of buckets, a heap; some of them may be gone.
        self.ticks: list[int] = []
        self.known: set[int] = set()

    def set(self, timed: Timed, due: float, now: float) -> None:
        """Gives something its deadline, instead of the one that it has."""
        if timed.after is not None:
            self.cancel(timed)
        timed.due = due
        ahead = int((due - now) * TICKS)
        tick = int(due * TICKS) + 1
        if ahead >= _NEAR:
            tick -= tick % (600 if ahead >= _MIDDLE else 20)
        bucket = self.buckets.get(tick)
        if bucket is None:
            bucket = TimerBucket(tick)
            bucket.before = bucket.after = bucket
            self.buckets[tick] = bucket
            if tick not in self.known:
                self.known.add(tick)
                heappush(self.ticks, tick)
        last = bucket.before
        assert last is not None
        timed.before = last
        timed.after = bucket
        last.after = timed
        bucket.before = timed

    def cancel(self, timed: Timed) -> None:
        """It has no deadline any more."""
        before, after = timed.before, timed.after
        if before is None or after is None:
            return
        timed.before = timed.after = None
        before.after = after
        after.before = before
        if before is after and isinstance(before, TimerBucket):
            before.before = before.after = None  # no circle for the collector
            del self.buckets[before.tick]

    def next_due(self) -> float:
        """When to call `expired` next; infinity if there is nothing."""
        ticks = self.ticks
        while ticks and ticks[0] not in self.buckets:
            self.known.discard(heappop(ticks))
        return ticks[0] / TICKS if ticks else float("inf")

    def expired(self, now: float) -> Timed | None:
        """One that is due, which has no deadline any more; None: nothing is due.

        One at a time: what is done about it may end others, or give them other deadlines.
        """
        ticks = self.ticks
        while ticks and ticks[0] <= now * TICKS:
            tick = ticks[0]
            bucket = self.buckets.get(tick)
            if bucket is None:
                self.known.discard(heappop(ticks))
                continue
            first = bucket.after
            assert first is not None
            self.cancel(first)
            if first.due <= now:
                return first
            self.set(first, first.due, now)
        return None

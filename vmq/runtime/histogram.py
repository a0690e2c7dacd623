"""A histogram of durations with fixed buckets: constant memory, one search per observation."""

from bisect import bisect_left
from typing import Final

#: Upper bounds in seconds, 10 us to 1 s; above the last there is one more bucket.
BOUNDS: Final = (
    1e-5,
    2.5e-5,
    5e-5,
    1e-4,
    2.5e-4,
    5e-4,
    1e-3,
    2.5e-3,
    5e-3,
    1e-2,
    2.5e-2,
    5e-2,
    0.1,
    0.25,
    0.5,
    1.0,
)


class Histogram:
    """How often which duration was observed since the start."""

    __slots__ = ("count", "counts", "total")

    def __init__(self) -> None:
        #: One number a bucket, the last for what is above every bound.
        self.counts = [0] * (len(BOUNDS) + 1)
        self.count = 0
        #: Sum of all observed seconds.
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        """Counts one duration; a bound belongs to the bucket below it."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.count += 1
        self.total += seconds

    def add(self, other: "Histogram") -> None:
        """Counts what another one has counted."""
        self.counts = [
            mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)
        ]
        self.count += other.count
        self.total += other.total

    def cumulative(self) -> list[tuple[float, int]]:
        """Each bound with the number of durations at or below it; the last bound is infinity."""
        below = 0
        pairs: list[tuple[float, int]] = []
        for bound, number in zip((*BOUNDS, float("inf")), self.counts, strict=True):
            below += number
            pairs.append((bound, below))
        return pairs

    def quantile(self, share: float) -> float:
        """An upper bound of the given share of the durations, 0 if there are none.

        Args:
            share: 0 to 1; 0.99 is the 99th percentile.
        """
        wanted = share * self.count
        for bound, below in self.cumulative():
            if below and below >= wanted:
                return bound
        return 0.0

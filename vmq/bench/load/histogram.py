"""A histogram of durations that costs the same for one value as for a thousand equal ones."""

from math import ceil
from typing import Final

#: Steps to each doubling: a value is off by less than 1/128.
_STEPS: Final = 128
_SIZE: Final = 58 * _STEPS


class LatencyHistogram:
    """Counts of nanoseconds in log-linear steps."""

    def __init__(self) -> None:
        self.count = 0
        self.max = 0
        self._bins = [0] * _SIZE

    def add(self, value: int, count: int = 1) -> None:
        """Counts a value `count` times; below 0 counts as 0."""
        if value < _STEPS:
            value = max(value, 0)
            index = value
        else:
            shift = value.bit_length() - 8
            index = (shift << 7) + (value >> shift)
        self.count += count
        self.max = max(self.max, value)
        self._bins[min(index, _SIZE - 1)] += count

    def clear(self) -> None:
        """Forgets everything."""
        self.count = self.max = 0
        self._bins = [0] * _SIZE

    def quantile(self, share: float) -> float:
        """The value that `share` of all values do not exceed (nearest rank); 0 without values."""
        if not self.count:
            return 0.0
        wanted = min(max(ceil(share * self.count), 1), self.count)
        seen = 0
        for index, count in enumerate(self._bins):
            seen += count
            if seen >= wanted:
                return min(_middle(index), float(self.max))
        raise AssertionError("the bins hold less than was counted")


def _middle(index: int) -> float:
    """The middle of a bin."""
    if index < 2 * _STEPS:
        return float(index)
    shift = (index >> 7) - 1
    mantissa = index - (shift << 7)
    return (mantissa + 0.5) * (1 << shift)

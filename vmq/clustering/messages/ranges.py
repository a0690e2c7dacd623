"""Sets of places as a bounded number of ranges, which may claim places too many, and never leave one out."""

from collections.abc import Iterable, Iterator
from heapq import nlargest

#: The first place and the last.
Range = tuple[int, int]


def ranges_of(places: Iterable[int], limit: int) -> list[Range]:
    """Ranges with all of these places; of more than `limit` those that are closest to each other become one.

    Args:
        places: in rising order.
        limit: how many ranges there may be, at least one.
    """
    found: list[Range] = []
    for place in places:
        if found and place <= found[-1][1] + 1:
            found[-1] = (found[-1][0], place)
        else:
            found.append((place, place))
    return found if len(found) <= limit else _joined(found, limit)


def _joined(ranges: list[Range], limit: int) -> list[Range]:
    """So many ranges at most: all gaps but the widest are closed."""
    gaps = range(1, len(ranges))
    ends = sorted(nlargest(limit - 1, gaps, key=lambda at: ranges[at][0] - ranges[at - 1][1]))
    starts = [0, *ends]
    return [
        (ranges[start][0], ranges[end - 1][1])
        for start, end in zip(starts, [*ends, len(ranges)], strict=True)
    ]


def outside(places: Iterable[int], ranges: Iterable[Range]) -> Iterator[int]:
    """Those of the places that are in none of the ranges; both in rising order."""
    rest = iter(ranges)
    first, last = next(rest, (0, -1))
    is_over = last < first
    for place in places:
        while not is_over and last < place:
            first, last = next(rest, (0, -1))
            is_over = last < first
        if is_over or place < first:
            yield place


def check_ranges(ranges: Iterable[Range]) -> None:
    """Refuses what `ranges_of` never makes.

    Raises:
        ValueError: the fault is remote.
    """
    before = -1
    for first, last in ranges:
        if not before < first <= last:
            raise ValueError("ranges that are not in order")
        before = last

"""Ranges against the sets that they stand for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.clustering.messages.ranges import Range, check_ranges, outside, ranges_of

PLACES = st.sets(st.integers(0, 60))


def within(ranges: list[Range]) -> set[int]:
    return {place for first, last in ranges for place in range(first, last + 1)}


@given(PLACES, st.integers(1, 20))
def test_ranges_have_every_place_and_few_more(places: set[int], limit: int) -> None:
    ranges = ranges_of(sorted(places), limit)
    check_ranges(ranges)
    assert len(ranges) <= limit
    assert places <= within(ranges)
    runs = sum(place - 1 not in places for place in places)
    if runs <= limit:
        assert within(ranges) == places
    else:  # no other ranges, so many, claim fewer places too many
        assert len(ranges) == limit
        gaps = sorted(
            after - before
            for before, after in zip(sorted(places), sorted(places)[1:], strict=False)
            if after - before > 1
        )
        closed = gaps[: len(gaps) - (limit - 1)]
        assert len(within(ranges) - places) == sum(gap - 1 for gap in closed)


@given(PLACES, PLACES, st.integers(1, 20))
def test_what_is_outside_is_what_the_set_lacks(
    places: set[int], others: set[int], limit: int
) -> None:
    ranges = ranges_of(sorted(others), limit)
    assert list(outside(sorted(places), ranges)) == sorted(places - within(ranges))


@pytest.mark.parametrize("ranges", ([(2, 1)], [(-1, 1)], [(1, 2), (2, 3)], [(5, 6), (1, 2)]))
def test_ranges_out_of_order_are_refused(ranges: list[Range]) -> None:
    with pytest.raises(ValueError, match="not in order"):
        check_ranges(ranges)

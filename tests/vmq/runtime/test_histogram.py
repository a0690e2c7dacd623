"""Counting durations into buckets."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.runtime.histogram import BOUNDS, Histogram


def test_the_buckets_span_10_microseconds_to_a_second_in_order() -> None:
    assert (BOUNDS[0], BOUNDS[-1]) == (1e-5, 1.0)
    assert list(BOUNDS) == sorted(set(BOUNDS))


def test_a_bound_belongs_to_its_own_bucket() -> None:
    histogram = Histogram()
    histogram.observe(1e-5)
    histogram.observe(1.0)
    below = dict(histogram.cumulative())
    assert (below[1e-5], below[0.5], below[1.0], below[inf]) == (1, 1, 2, 2)


@given(st.lists(st.floats(0, 100)))
def test_each_bound_counts_what_is_at_or_below_it(durations: list[float]) -> None:
    histogram = Histogram()
    for duration in durations:
        histogram.observe(duration)
    for bound, below in histogram.cumulative():
        assert below == sum(duration <= bound for duration in durations)
    assert histogram.count == len(durations)
    assert histogram.total == pytest.approx(sum(durations))


def test_a_quantile_is_the_bound_above_that_share() -> None:
    histogram = Histogram()
    assert histogram.quantile(0.99) == 0
    for _ in range(99):
        histogram.observe(2e-5)
    histogram.observe(2.0)
    assert histogram.quantile(0.5) == 2.5e-5
    assert histogram.quantile(0.99) == 2.5e-5
    assert histogram.quantile(1) == inf


def test_one_goes_on_with_what_another_has_counted() -> None:
    one, other = Histogram(), Histogram()
    one.observe(0.2)
    other.observe(0.3)
    other.observe(5.0)
    one.add(other)
    assert one.count == 3
    assert one.total == pytest.approx(5.5)
    assert dict(one.cumulative())[0.5] == 2

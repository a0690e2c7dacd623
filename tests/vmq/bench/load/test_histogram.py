"""The histogram against a sorted list."""

from math import ceil

from hypothesis import given
from hypothesis import strategies as st

from vmq.bench.load.histogram import LatencyHistogram

SHARES = (0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0)


def exact(values: list[int], share: float) -> int:
    ordered = sorted(values)
    return ordered[min(max(ceil(share * len(ordered)), 1), len(ordered)) - 1]


@given(st.lists(st.integers(0, 2**60), min_size=1, max_size=300))
def test_quantiles_are_within_a_step_of_the_exact_ones(values: list[int]) -> None:
    histogram = LatencyHistogram()
    for value in values:
        histogram.add(value)
    assert histogram.count == len(values)
    assert histogram.max == max(values)
    for share in SHARES:
        wanted = exact(values, share)
        assert abs(histogram.quantile(share) - wanted) <= wanted / 128


@given(st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 50)), min_size=1, max_size=50))
def test_a_value_added_many_times_is_that_many_values(pairs: list[tuple[int, int]]) -> None:
    at_once, one_by_one = LatencyHistogram(), LatencyHistogram()
    for value, count in pairs:
        at_once.add(value, count)
        for _ in range(count):
            one_by_one.add(value)
    assert at_once.count == one_by_one.count
    assert [at_once.quantile(s) for s in SHARES] == [one_by_one.quantile(s) for s in SHARES]


def test_without_values_a_quantile_is_zero() -> None:
    histogram = LatencyHistogram()
    assert histogram.quantile(0.5) == 0
    histogram.add(10)
    histogram.clear()
    assert (histogram.count, histogram.max, histogram.quantile(1.0)) == (0, 0, 0)

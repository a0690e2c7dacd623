"""Node clocks against plain sets of dots; the hybrid clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq_cluster.clocks import LOGICAL_BITS, Dot, HybridClock, NodeClock
from vmq_cluster.errors import MalformedError

DOTS = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 30)), max_size=60)


def clock_of(dots: list[Dot]) -> NodeClock:
    made = NodeClock()
    for dot in dots:
        made.add(dot)
    return made


def dots_of(clock: NodeClock) -> set[Dot]:
    return {
        (incarnation, counter)
        for incarnation, runs in clock.runs.items()
        for at in range(0, len(runs), 2)
        for counter in range(runs[at], runs[at + 1])
    }


@given(DOTS)
def test_a_clock_is_a_set_of_dots(dots: list[Dot]) -> None:
    clock, seen = NodeClock(), set()
    for dot in dots:
        assert clock.add(dot) == (dot not in seen)
        seen.add(dot)
    assert dots_of(clock) == seen
    for incarnation in range(1, 5):
        counters = {counter for owner, counter in seen if owner == incarnation}
        assert clock.last(incarnation) == max(counters, default=0)
        base = clock.base(incarnation)
        assert set(range(1, base + 1)) <= counters
        assert base + 1 not in counters
        for counter in range(32):
            assert ((incarnation, counter) in clock) == (counter in counters)


@given(DOTS, DOTS)
def test_merge_dominance_and_difference_are_those_of_sets(one: list[Dot], two: list[Dot]) -> None:
    a, b = clock_of(one), clock_of(two)
    assert a.dominates(b) == (set(two) <= set(one))
    assert dots_of(NodeClock(dict(a.beyond(b)))) == set(one) - set(two)
    assert dots_of(a.common(b)) == set(one) & set(two)
    assert (a == b) == (set(one) == set(two))
    merged = a.copy()
    changed = merged.merge(b)
    assert dots_of(merged) == set(one) | set(two)
    assert dots_of(a) == set(one)
    assert sorted(changed) == sorted({dot[0] for dot in set(two) - set(one)})


@given(DOTS)
def test_what_a_clock_sends_is_a_clock(dots: list[Dot]) -> None:
    clock = clock_of(dots)
    assert NodeClock.checked(clock.runs) == clock


def test_runs_that_touch_are_one() -> None:
    assert clock_of([(1, 1), (1, 3), (1, 2)]).runs == {1: [1, 4]}


@pytest.mark.parametrize("runs", [[], [1], [0, 2], [2, 1], [1, 3, 3, 5], [1, 1]])
def test_a_broken_clock_is_malformed(runs: list[int]) -> None:
    with pytest.raises(MalformedError):
        NodeClock.checked({1: runs})


def test_hybrid_times_rise_though_the_wall_clock_falls() -> None:
    wall = iter([100, 100, 50, 200])
    clock = HybridClock(lambda: next(wall))
    times = [clock.next() for _ in range(4)]
    assert times == sorted(set(times))
    assert times[0] >> LOGICAL_BITS == 100
    assert times[3] >> LOGICAL_BITS == 200


def test_a_later_write_has_a_higher_time_than_what_it_saw() -> None:
    clock = HybridClock(lambda: 10)
    clock.observe(5000 << LOGICAL_BITS)
    assert clock.next() > 5000 << LOGICAL_BITS

from hypothesis import given
from hypothesis import strategies as st

from vmq.core.limits import Flapping, RateLimit


def test_a_second_of_rate_is_free_and_the_debt_is_waited_for() -> None:
    limit = RateLimit(10.0, 0.0)
    assert limit.spend(10, 0.0) == 0.0
    assert limit.spend(5, 0.0) == 0.5
    assert limit.spend(0, 0.5) == 0.0
    assert limit.spend(11, 3600.0) > 0.0, "silence saves no more than a second"


@given(st.lists(st.tuples(st.integers(1, 50), st.floats(0.0, 3.0)), min_size=1, max_size=50))
def test_who_waits_as_told_never_passes_the_rate(steps: list[tuple[int, float]]) -> None:
    rate = 20.0
    limit = RateLimit(rate, 0.0)
    now = 0.0
    spent = 0
    for amount, idle in steps:
        now += idle
        before = spent
        now_before = now
        now += limit.spend(amount, now)
        spent += amount
        assert before <= rate * (1.0 + now_before) + 50
    assert spent <= rate * (1.0 + now) + 1e-6


def test_flapping_bans_after_the_limit_and_for_the_time_stated() -> None:
    flapping = Flapping(2, 10.0, 60.0)
    found = [flapping.is_banned("a", now) for now in (0.0, 1.0, 2.0, 61.9)]
    assert found == [False, False, True, True]
    assert not flapping.is_banned("b", 2.0)
    assert not flapping.is_banned("a", 62.1)


def test_slow_reconnects_are_no_flapping() -> None:
    flapping = Flapping(2, 10.0, 60.0)
    assert not any(flapping.is_banned("a", 6.0 * turn) for turn in range(100))


def test_without_a_limit_nothing_is_remembered() -> None:
    flapping = Flapping(0, 10.0, 60.0)
    assert not any(flapping.is_banned("a", 0.0) for _ in range(1000))
    assert not flapping.young


def test_what_is_remembered_is_bounded() -> None:
    flapping = Flapping(2, 10.0, 60.0, remember=100)
    for number in range(10_000):
        flapping.is_banned(str(number), 0.0)
    assert len(flapping.young) + len(flapping.old) <= 100

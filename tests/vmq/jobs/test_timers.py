"""Deadlines, against a plain dictionary of them."""

from hypothesis import given
from hypothesis import strategies as st

from vmq.jobs.timers import JobTimers, Timed


def expired(timers: JobTimers, now: float) -> list[Timed]:
    """All that is due."""
    return list(iter(lambda: timers.expired(now), None))


@given(
    st.lists(
        st.tuples(
            st.integers(0, 20),
            st.one_of(st.floats(0, 2), st.floats(0, 2000), st.floats(0, 200_000)),
            st.sampled_from(["set", "cancel", "pass"]),
        ),
        max_size=200,
    )
)
def test_what_is_due_comes_once_in_time_and_nothing_before(
    steps: list[tuple[int, float, str]],
) -> None:
    timers = JobTimers()
    things = [Timed() for _ in range(21)]
    wanted: dict[int, float] = {}
    now = 100.0
    for which, seconds, step in steps:
        if step == "set":
            timers.set(things[which], now + seconds, now)
            wanted[which] = now + seconds
        elif step == "cancel":
            timers.cancel(things[which])
            wanted.pop(which, None)
        else:
            now += seconds
            found = {things.index(each) for each in expired(timers, now)}
            assert all(wanted[each] <= now for each in found)
            # A tenth of a second late at most.
            assert {each for each, due in wanted.items() if due <= now - 0.11} <= found
            for each in found:
                del wanted[each]
    assert timers.next_due() <= min(wanted.values(), default=float("inf")) + 0.11
    assert {things.index(each) for each in expired(timers, now + 1e6)} == set(wanted)
    assert timers.next_due() == float("inf")
    assert not timers.buckets
    assert not timers.known


def test_what_is_cancelled_leaves_nothing() -> None:
    timers = JobTimers()
    timed = Timed()
    for number in range(10_000):
        now = number / 1000
        timers.set(timed, now + 300, now)
        timers.cancel(timed)
    assert not timers.buckets
    assert len(timers.ticks) < 20


def test_what_ends_with_another_is_not_due_any_more() -> None:
    timers = JobTimers()
    first, second, third = Timed(), Timed(), Timed()
    for each in (first, second, third):
        timers.set(each, 1.0, 0.0)
    assert timers.expired(2.0) is first
    timers.cancel(second)
    timers.set(third, 3.0, 2.0)
    assert timers.expired(2.0) is None
    assert expired(timers, 4.0) == [third]

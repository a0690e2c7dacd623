"""A circuit breaker, against a clock that stands still."""

from vmq_hooks.breaker import Breaker, State


class Time:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_failures_in_a_row_open_it_and_a_probe_closes_it() -> None:
    clock = Time()
    breaker = Breaker(2, 10, clock)
    assert not breaker.on_failure()
    assert not breaker.on_success()
    assert not breaker.on_failure()
    assert breaker.on_failure(), "the second in a row"
    assert not breaker.on_failure(), "of a call that was under way"
    assert not breaker.allows()
    clock.now += 10
    assert breaker.allows()
    assert not breaker.allows(), "one probe at a time"
    assert breaker.on_success()
    assert (breaker.allows(), breaker.failures, breaker.opened) == (True, 0, 1)


def test_a_failed_probe_opens_it_again_and_one_that_never_ends_is_followed_by_another() -> None:
    clock = Time()
    breaker = Breaker(1, 10, clock)
    breaker.on_failure()
    clock.now += 10
    assert breaker.allows()
    assert breaker.on_failure()
    assert (breaker.state, breaker.opened) == (State.OPEN, 2)
    assert not breaker.allows()
    for _ in range(2):
        clock.now += 10
        assert breaker.allows()


def test_without_a_limit_it_never_opens() -> None:
    breaker = Breaker(0, 10, Time())
    assert not any(breaker.on_failure() for _ in range(100))
    assert breaker.allows()

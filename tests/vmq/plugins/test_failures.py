"""Wrong passwords delay a user at an address, are forgotten, and take bounded memory."""

import pytest

from vmq.plugins.failures import FORGET, FREE, Failures

HERE, ELSEWHERE = "192.0.2.1", "192.0.2.2"


def failed(times: int, user: str | None = "ann", now: float = 0.0) -> Failures:
    failures = Failures()
    for _ in range(times):
        failures.wrong(HERE, user, now)
    return failures


@pytest.mark.parametrize(
    ("times", "delay"),
    ((0, 0), (2, 0), (3, 0.5), (4, 1), (5, 2), (6, 4), (7, 8), (8, 10), (999, 10)),
)
def test_the_delay_doubles_up_to_the_longest(times: int, delay: float) -> None:
    failures = failed(times)
    assert failures.delay(HERE, "ann", 10.0, 0.0) == delay
    assert failures.delay(HERE, "ann", 10.0, delay) == 0
    assert failures.delay(HERE, "ann", 0.0, 0.0) == 0


def test_only_this_user_at_this_address_is_delayed() -> None:
    failures = failed(100)
    assert failures.delay(HERE, "ann", 10.0, 0.0)
    assert not failures.delay(HERE, "bob", 10.0, 0.0)
    assert not failures.delay(HERE, None, 10.0, 0.0)
    assert not failures.delay(ELSEWHERE, "ann", 10.0, 0.0)
    assert (failures.of(HERE, 0.0), failures.of(ELSEWHERE, 0.0)) == (100, 0)


def test_a_right_password_clears_the_user_and_not_the_address() -> None:
    failures = failed(100)
    failures.right(HERE, "ann")
    assert not failures.delay(HERE, "ann", 10.0, 0.0)
    assert failures.of(HERE, 0.0) == 100


def test_who_leaves_before_the_verdict_is_delayed_and_its_address_is_not_to_blame() -> None:
    failures = Failures()
    for _ in range(FREE):
        failures.given_up(HERE, "ann", 0.0)
    assert failures.delay(HERE, "ann", 10.0, 0.0)
    assert failures.of(HERE, 0.0) == 0


def test_after_some_minutes_all_is_forgotten() -> None:
    failures = failed(100)
    assert failures.of(HERE, FORGET) == 100
    assert failures.of(HERE, FORGET + 1) == 0
    failures.wrong(HERE, "ann", FORGET + 1)
    assert failures.of(HERE, FORGET + 1) == 1


def test_memory_is_bounded_and_the_latest_are_remembered() -> None:
    failures = Failures(remember=100)
    for number in range(1000):
        failures.wrong(f"192.0.2.{number}", "x" * 60_000, 0.0)
    assert len(failures.pairs) <= 100
    assert len(failures.networks) <= 100
    assert failures.of("192.0.2.999", 0.0) == 1
    failures.wrong("192.0.2.960", "x", 0.0)
    assert failures.of("192.0.2.960", 0.0) == 2

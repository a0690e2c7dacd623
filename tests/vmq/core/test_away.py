"""Since when sessions are away, where the wall clock is set meanwhile; for the rest see test_registry.py."""

import pytest

from tests.vmq.support import House
from vmq.core.away import SESSIONS_A_STEP


@pytest.mark.parametrize("hours", [5, -5])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_clock_that_is_set_ends_no_session_early_and_none_late(
    durable: House, hours: int, restarts: bool
) -> None:
    durable.options.persistent_client_expiration = 100.0
    count = SESSIONS_A_STEP + 1
    for number in range(count):
        durable.client(f"c{number}", clean=False).disconnect()
    durable.pass_time(60)
    durable.wall_clock.advance(hours * 3600)
    assert durable.expired_after(39) == 0
    durable.settle()
    if restarts:
        durable.restart()
    assert durable.expired_after(1) == 250
    assert durable.expired_after(0) == count - 250


def test_who_leaves_after_the_clock_was_set_is_away_since_then(durable: House) -> None:
    durable.options.persistent_client_expiration = 100.0
    durable.client("before", clean=False).disconnect()
    durable.pass_time(60)
    durable.wall_clock.advance(7200)
    durable.client("behind", clean=False).disconnect()
    assert durable.expired_after(40) == 1
    assert set(durable.registry.offline) == {"behind"}
    assert durable.expired_after(60) == 1

"""The broker's watch over itself."""

import asyncio
import random
from collections.abc import Callable

from vmq.core.context import Core, CoreOptions
from vmq.runtime.monitor import RATE_SECONDS, RECENT, Monitor, Rates


def core_with(clock: Callable[[], float]) -> Core:
    return Core(CoreOptions(), None, clock, clock, random.Random(1).randrange)


def test_rates_are_means_between_the_oldest_and_the_latest_reading() -> None:
    rates = Rates()
    assert rates.per_second() == {}
    rates.read(100.0, {"in": 10})
    assert rates.per_second() == {}
    rates.read(102.0, {"in": 30, "new": 4})
    assert rates.per_second() == {"in": 10.0, "new": 2.0}


def test_rates_forget_what_is_older_than_their_span() -> None:
    rates = Rates()
    rates.read(0.0, {"in": 0})
    for second in range(1, RATE_SECONDS + 2):
        rates.read(float(second), {"in": 1000})
    assert rates.per_second() == {"in": 0.0}


def test_two_readings_at_one_moment_are_no_rate() -> None:
    rates = Rates()
    rates.read(1.0, {"in": 0})
    rates.read(1.0, {"in": 5})
    assert rates.per_second() == {}


def test_the_worst_of_the_recent_lags_is_known_until_it_is_old() -> None:
    monitor = Monitor(core_with(lambda: 0.0))
    assert monitor.recent_lag() == 0
    monitor.look(0.4)
    monitor.look(0.001)
    assert (monitor.core.loop_lag, monitor.recent_lag()) == (0.001, 0.4)
    for _ in range(RECENT):
        monitor.look(0.001)
    assert monitor.recent_lag() == 0.001
    assert monitor.lags.count == RECENT + 2


async def test_a_late_timer_is_a_lag() -> None:
    now = 0.0
    seen = asyncio.Event()

    def clock() -> float:
        nonlocal now
        now += 2.0  # every look at the clock finds it two seconds on
        if monitor_is_there and monitor.lags.count:
            seen.set()
        return now

    monitor_is_there = False
    monitor = Monitor(core_with(clock))
    monitor_is_there = True
    task = asyncio.create_task(monitor.run(lambda: {"in": 1}))
    await asyncio.wait_for(seen.wait(), 10)
    task.cancel()
    assert 1.8 < monitor.recent_lag() < 2.0
    assert monitor.uptime() > 0

"""Who looks every so often looks when others do."""

import asyncio

from vmq_cluster.ticks import next_tick, sleep_to_tick


def test_steps_meet_at_their_multiples() -> None:
    for begin in (0.0, 0.03, 12.3, 98_765.4321, 3_000_000.05):
        moments = []
        for step in (0.1, 0.2, 0.5, 1.0):
            now, found = begin, set()
            for _ in range(int(10 / step)):
                before, now = now, next_tick(now, step)
                assert 0.97 * step < now - before <= 1.03 * step or before == begin
                found.add(round(now * 1000))
            moments.append(found)
        for each in moments[1:]:
            assert len(each - moments[0]) <= 1  # the last may be behind the others' end


def test_a_tick_that_came_a_little_early_is_not_repeated() -> None:
    assert round(next_tick(12.299, 0.1), 6) == 12.4
    assert round(next_tick(12.3, 0.1), 6) == 12.4
    assert round(next_tick(12.301, 0.1), 6) == 12.4


async def test_tasks_that_sleep_wake_together() -> None:
    loop = asyncio.get_running_loop()
    woken: list[float] = []

    async def sleeper(step: float) -> None:
        await sleep_to_tick(step)
        woken.append(round(loop.time() / 0.01))

    await asyncio.gather(*(sleeper(0.05) for _ in range(3)))
    assert len(woken) == 3

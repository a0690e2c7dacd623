"""Turns are few, and fair."""

import asyncio
from collections.abc import Iterable

import pytest
from vmq_hooks.deadline import LIMIT
from vmq_hooks.turns import Turns, TurnsClosedError


class Bench:
    """Clients that take turns; the test ends each turn."""

    def __init__(self, at_once: int = 1) -> None:
        self.turns = Turns(at_once)
        self.began: list[str] = []
        self.release = asyncio.Semaphore(0)

    async def client(self, name: str, network: str, after_others: bool = False) -> None:
        async with self.turns.turn(network, after_others=after_others):
            self.began.append(name)
            await self.release.acquire()

    async def come(
        self, names: Iterable[str], after_others: bool = False
    ) -> list[asyncio.Task[None]]:
        """Clients come one after the other, each from the network of its first letter."""
        tasks = []
        for name in names:
            tasks.append(asyncio.create_task(self.client(name, name[0], after_others)))
            await asyncio.sleep(0)
        return tasks

    async def finish(self, *tasks: asyncio.Task[None]) -> None:
        for _ in tasks:
            self.release.release()
        async with asyncio.timeout(30):
            await asyncio.gather(*tasks)


async def test_only_so_many_work_at_a_time() -> None:
    bench = Bench(2)
    tasks = await bench.come(("a1", "a2", "a3", "a4"))
    assert bench.began == ["a1", "a2"]
    assert bench.turns.waiting == 2
    await bench.finish(*tasks)
    assert bench.began == ["a1", "a2", "a3", "a4"]
    assert bench.turns.waiting == 0


async def test_addresses_take_turns_however_many_wait_at_one() -> None:
    bench = Bench()
    tasks = await bench.come(["a0", *(f"a{number}" for number in range(1, 50)), "b1", "b2", "c1"])
    await bench.finish(*tasks)
    assert bench.began[:7] == ["a0", "a1", "b1", "c1", "a2", "b2", "a3"]
    assert len(bench.began) == len(tasks)


async def test_those_who_failed_get_every_fourth_turn_while_others_wait() -> None:
    bench = Bench()
    bad = await bench.come(("x0", "x1", "x2", "x3", "x4"), after_others=True)
    good = await bench.come(("a1", "a2", "a3", "a4", "a5", "a6"))
    await bench.finish(*bad, *good)
    assert bench.began == ["x0", "a1", "a2", "a3", "x1", "a4", "a5", "a6", "x2", "x3", "x4"]


async def test_who_goes_away_loses_its_place_and_nobody_a_turn() -> None:
    bench = Bench()
    tasks = await bench.come(("a1", "a2", "b1", "b2"))
    for gone in tasks[1:3]:
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
    assert bench.turns.waiting == 1
    await bench.finish(tasks[0], tasks[3])
    assert bench.began == ["a1", "b2"]


async def test_a_turn_that_comes_as_its_client_leaves_goes_to_the_next() -> None:
    bench = Bench()
    first = bench.turns.turn("z")
    await first.__aenter__()
    leaves, stays = await bench.come(("a1", "a2"))
    await first.__aexit__(None, None, None)  # the next one has its turn, and has not noticed yet
    leaves.cancel()
    await bench.finish(stays)
    assert bench.began == ["a2"]


async def test_nobody_waits_for_what_is_closed() -> None:
    bench = Bench()
    first, waits = await bench.come(("a1", "a2"))
    bench.turns.close()
    with pytest.raises(TurnsClosedError):
        await waits
    with pytest.raises(TurnsClosedError):
        await bench.client("a3", "a")
    await bench.finish(first)


async def test_the_deadline_stands_still_for_who_waits_and_goes_on_in_its_turn() -> None:
    bench = Bench()
    (first,) = await bench.come(("a1",))
    limits: list[asyncio.Timeout] = []

    async def verdict() -> float | None:
        async with asyncio.timeout(30) as limit:
            LIMIT.set(limit)
            limits.append(limit)
            async with bench.turns.turn("a"):
                return limit.when()

    waits = asyncio.create_task(verdict())
    await asyncio.sleep(0)
    assert bench.turns.waiting == 1
    assert [each.when() for each in limits] == [None]
    await bench.finish(first)
    assert await waits is not None

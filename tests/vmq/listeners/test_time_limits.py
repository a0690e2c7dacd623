"""One timer for all who have to have passed something."""

import asyncio
import time
from typing import Any

from tests.support.until import until
from vmq.listeners.time_limits import TimeLimits

TIMEOUT = 30
LONG = 600.0


class Late:
    """Limits, and who was told of."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[tuple[Any, str, Any]] = asyncio.Queue()
        self.limits = TimeLimits(time.monotonic, self.too_slow)

    def too_slow(self, layer: Any, reason: str, who: Any) -> None:
        self.told.put_nowait((layer, reason, who))

    async def next(self) -> tuple[Any, str, Any]:
        async with asyncio.timeout(TIMEOUT):
            return await self.told.get()


async def test_who_has_not_passed_in_time_is_told_of_once_and_others_are_not() -> None:
    late = Late()
    late.limits.set("quick", 0.01, "too slow", "one")
    late.limits.set("slow", 0.01, "too slow", "other")
    late.limits.passed("quick")
    late.limits.passed("quick")
    assert await late.next() == ("slow", "too slow", "other")
    assert late.told.empty()
    assert late.limits.pending == {}


async def test_each_has_its_own_time() -> None:
    late = Late()
    late.limits.set("long", LONG, "not in long", None)
    late.limits.set("longer", 0.1, "not in 0.1 s", None)
    late.limits.set("short", 0.01, "not in 0.01 s", None)
    assert [(await late.next())[0], (await late.next())[0]] == ["short", "longer"]
    assert list(late.limits.pending) == ["long"]


async def test_there_is_one_timer_for_all() -> None:
    late = Late()
    late.limits.set("first", LONG, "", None)
    timer = late.limits._timer
    late.limits.set("second", LONG, "", None)
    late.limits.passed("first")
    assert timer is not None
    assert late.limits._timer is timer
    assert not timer.cancelled()


async def test_who_comes_when_the_others_have_gone_has_a_time_too() -> None:
    late = Late()
    late.limits.set("first", 0.01, "", None)
    late.limits.passed("first")
    await until(lambda: late.limits._timer is None)
    late.limits.set("second", 0.01, "", None)
    assert (await late.next())[0] == "second"

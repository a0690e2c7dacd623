"""Waiting for what nothing tells of."""

import asyncio
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any, Final

#: Seconds that a test waits for what must come, on a machine that is busy.
PATIENCE: Final = 30.0


async def until(is_so: Callable[[], object], pause: float = 0.001) -> None:
    """Looks again after each moment in which something may have come about; raises TimeoutError after a long while.

    Where to ask is work, the moments are to be longer.
    """
    async with asyncio.timeout(PATIENCE):
        while True:
            if is_so():
                return
            await asyncio.sleep(pause)


async def turns(count: int = 5) -> None:
    """Lets everything run that can."""
    for _ in range(count):
        await asyncio.sleep(0)


def reach(
    holds: Callable[[], Any],
    what: str | Callable[[], str] = "it did not come to that in time",
    timeout: float = 60.0,
    rest: float = 0.0,
) -> Any:
    """The same without an event loop: waits until something holds, and returns it.

    Where asking is work for whoever is asked, it is left alone for `rest` times as long as that took.
    """
    deadline = monotonic() + timeout
    asked = monotonic()
    while not (found := holds()):
        now = monotonic()
        assert now < deadline, what if isinstance(what, str) else what()
        sleep(max(0.02, rest * (now - asked)))
        asked = monotonic()
    return found

"""When timers fire that nothing hurries: together.

A process that rests is woken by its timers alone, and pays each time for the wake-up and for caches that are cold:
several times what is done then. So whoever looks every so often looks at multiples of his step, as all others do.
"""

import asyncio

#: What share of a step too early counts as in time: clocks of event loops have milliseconds.
_EARLY = 0.02


def next_tick(now: float, step: float) -> float:
    """The next multiple of a step, of seconds above 0."""
    return (int(now / step + _EARLY) + 1) * step


async def sleep_to_tick(step: float) -> None:
    """Returns at the next multiple of a step."""
    now = asyncio.get_running_loop().time()
    await asyncio.sleep(next_tick(now, step) - now)

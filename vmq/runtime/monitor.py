"""Watches the process from inside: how late the event loop runs, and how fast the counters move.

One task for the whole broker. It reads the counters; nothing on the path of a message knows of it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from vmq.core.context import Core
from vmq.runtime.histogram import Histogram
from vmq.runtime.watchdog import BEAT
from vmq_cluster.ticks import next_tick

#: Looks that `recent_lag` remembers: five seconds.
RECENT: Final = 50
#: Looks between two readings of the counters.
LOOKS_A_READING: Final = 10
#: Rates are means over so many seconds.
RATE_SECONDS: Final = 10


class Rates:
    """Mean rates of counters over the last seconds, from readings about a second apart. Pure."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=RATE_SECONDS + 1)

    def read(self, now: float, values: Mapping[str, int]) -> None:
        """Takes a reading at monotonic second `now`."""
        self._readings.append((now, values))

    def per_second(self) -> dict[str, float]:
        """Events a second by counter, as the readings show them; empty before the second one."""
        if len(self._readings) < 2:
            return {}
        first, before = self._readings[0]
        last, after = self._readings[-1]
        span = last - first
        if span <= 0:
            return {}
        return {name: (after[name] - before.get(name, 0)) / span for name in after}


class Monitor:
    """The broker's watch over itself.

    A lag is how much later than asked a timer fires. What blocks the loop for long shows in full;
    below a millisecond the loop's own timers are no finer.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self.started = core.clock()
        self.lags = Histogram()
        self.rates = Rates()
        self._recent: deque[float] = deque([0.0], maxlen=RECENT)

    def recent_lag(self) -> float:
        """The worst lag of the last five seconds, in seconds."""
        return max(self._recent)

    def uptime(self) -> float:
        """Seconds since the broker began to start."""
        return self.core.clock() - self.started

    async def run(
        self, values: Callable[[], Mapping[str, int]], beat: Callable[[], None] = lambda: None
    ) -> None:
        """Watches until cancelled; `values` gives the counters that `rates` follows, `beat` is called at each look."""
        loop = asyncio.get_running_loop()
        clock = self.core.clock
        failed: asyncio.Future[None] = loop.create_future()
        looks = 0
        wanted = clock()
        timer: asyncio.Handle

        # A timer and no sleeping task: ten times a second, half of the work.
        def step() -> None:
            nonlocal looks, timer, wanted
            try:
                if looks:
                    self.look(max(0.0, clock() - wanted))
                if looks % LOOKS_A_READING == 0:
                    self.rates.read(clock(), values())
                looks += 1
                beat()
            except Exception as error:  # noqa: BLE001 - raised where this is awaited
                failed.set_exception(error)
                return
            now = loop.time()
            due = next_tick(now, BEAT)
            wanted = clock() + due - now
            timer = loop.call_at(due, step)

        timer = loop.call_soon(step)
        try:
            await failed
        finally:
            timer.cancel()

    def look(self, lag: float) -> None:
        """Notes one lag."""
        self.core.loop_lag = lag
        self._recent.append(lag)
        self.lags.observe(lag)

"""The broker on its stage: rounds of life, each ended by a signal in the middle of the traffic."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from tests.crash.history import History
from vmq.testing.process import BrokerProcess

STOP_TIMEOUT = 60.0


class Stage:
    """Runs the broker round by round on one data folder.

    Every packet that any client receives is a step. `aim` sets after how many further steps the
    signal is sent: at once, from within the handling of that packet, so that the moment is one of
    progress and not of the clock.
    """

    def __init__(
        self, data_dir: Path, env: Mapping[str, str], stop: signal.Signals, history: History
    ) -> None:
        self.round = 0
        self.address = ("", 0)
        self.struck = asyncio.Event()
        self.steps = 0
        self._data_dir = data_dir
        self._env = env
        self._stop = stop
        self._history = history
        self._broker: BrokerProcess | None = None
        self._begun = asyncio.Condition()
        self._target: int | None = None

    async def begin_round(self) -> None:
        """Start the broker again and let everybody connect."""
        self._broker = await asyncio.to_thread(
            BrokerProcess.start, data_dir=self._data_dir, env=self._env, args=("--allow-anonymous",)
        )
        self.address = self._broker.tcp
        self.struck.clear()
        async with self._begun:
            self.round += 1
            self._begun.notify_all()

    async def next_round(self, after: int) -> int:
        """Wait for a round later than `after`; return its number."""
        async with self._begun:
            await self._begun.wait_for(lambda: self.round > after)
            return self.round

    def aim(self, steps: int) -> None:
        """Send the signal after this many further steps."""
        self._target = self.steps + steps

    def step(self) -> None:
        """A client received a packet."""
        self.steps += 1
        if self._target is not None and self.steps >= self._target:
            self.strike()

    def strike(self) -> None:
        self._target = None
        self.struck.set()
        assert self._broker is not None
        os.kill(self._broker.pid, self._stop)

    async def end_round(self) -> None:
        """Wait until the broker that was struck has ended, and look at how it did."""
        broker, self._broker = self._broker, None
        assert broker is not None
        try:
            code = await asyncio.to_thread(broker.wait, STOP_TIMEOUT)
        finally:
            await asyncio.to_thread(broker.close)
        if code != (0 if self._stop == signal.SIGTERM else -self._stop):
            self._history.object(f"round {self.round}: the broker ended with exit code {code}")
        if "Traceback" in (log := broker.stderr_text()):
            self._history.object(f"round {self.round}: the broker logged an exception:\n{log}")

    def close(self) -> None:
        """End the broker however it stands."""
        if self._broker is not None:
            self._broker.kill()
            self._broker.close()
            self._broker = None

"""What waits to be safe without a connection: a step of a sink (`vmq.streams.serving.sinks`).

In a module of its own because it is compiled with `vmq.core.output`: a compiled class has no interpreted subclasses.
"""

import asyncio

from vmq.core.output import Outbox, Output


class SinkStep(Output):
    """What waits for a step: for its commits, and for queues that ask publishers to wait."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(outbox)
        self.pauses = 0
        self.failure: str | None = None
        #: Set whenever something of it changed.
        self.change = asyncio.Event()
        self.is_written = False

    def write(self) -> None:
        self.is_written = True
        self.change.set()

    def close(self, reason: str) -> None:
        self.failure = reason
        self.change.set()

    def pause(self) -> None:
        self.pauses += 1

    def resume(self) -> None:
        self.pauses -= 1
        self.change.set()

    def describe(self) -> str:
        return "sink"

    def waits(self) -> bool:
        """Whether it is not safe yet, or somebody asks to wait."""
        return self.failure is None and (not self.is_written or self.pauses > 0)

    async def settle(self) -> None:
        """Returns when it is safe and nobody asks to wait, or has failed."""
        self.touch()
        self.outbox.flush()
        while self.waits():
            self.change.clear()
            await self.change.wait()

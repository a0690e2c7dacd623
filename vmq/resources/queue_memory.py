"""What waits in memory for all clients together stays within limits.max_memory.

Near the limit the largest of those queues lose their oldest messages, before publishers have to wait: one slow client
shall not stop all others. What is given back to the C library does not leave the process, but is there for the next
message. So it is the queues that may not have more from then on, less what the process grows all the same, until the
process has less again.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from vmq.core.context import Core
from vmq.core.queue import Queue
from vmq.core.registry import Registry
from vmq.core.waiting import MEMORY_FULL
from vmq.resources.memory import NEAR
from vmq_cluster.ticks import next_tick

#: Seconds between two looks, and between two when the process is near the limit; `wake` asks for one at once.
INTERVAL: Final = 0.2
NEAR_INTERVAL: Final = 0.02

#: The share of the limit above which queues lose messages.
HIGH: Final = 0.8

#: The share of the limit that they lose at least: looking for the largest of many takes time.
LEAST: Final = 0.01

#: Messages that are dropped between two passes of the event loop.
STEP: Final = 1000


class QueueMemory:
    """Drops what memory has no room for."""

    def __init__(
        self,
        core: Core,
        registries: Callable[[], Iterable[Registry]],
        limit: Callable[[], int],
        measure: Callable[[], int],
    ) -> None:
        """`limit` is in bytes, below 0: none; `measure` says what the process has."""
        self.core = core
        self.registries = registries
        self.limit = limit
        self.measure = measure
        #: What the process had at most since it has more than the share; 0: it has not.
        self.level = 0
        #: What the queues may have until then.
        self.allowed = 0
        self.is_near = False
        self.wanted = asyncio.Event()

    def wake(self) -> None:
        """Has it look in the next turn of the event loop: what comes may fill the memory faster than seconds pass."""
        self.is_near = True
        self.wanted.set()

    async def run(self) -> None:
        """Looks until cancelled."""
        loop = asyncio.get_running_loop()
        timer: asyncio.TimerHandle

        # A timer that wakes no task: what is done five times a second in a broker that rests has to be cheap.
        def arm() -> None:
            nonlocal timer
            due = next_tick(loop.time(), NEAR_INTERVAL if self.is_near else INTERVAL)
            timer = loop.call_at(due, step)

        def step() -> None:
            if self.is_near or self.level or self.core.waiting_bytes:
                self.wanted.set()
            else:
                arm()

        while True:
            arm()
            try:
                await self.wanted.wait()
            finally:
                timer.cancel()
            self.wanted.clear()
            await self.look()

    async def look(self) -> None:
        """Drops as much as the process has too much."""
        limit = self.limit()
        used = self.measure()
        high = int(limit * HIGH)
        self.is_near = 0 <= limit * NEAR < used
        if limit < 0 or used <= high:
            self.level = 0
            return
        waiting = self.core.waiting_bytes
        if not self.level:
            self.level, self.allowed = high, waiting
        if used > self.level:
            self.allowed = max(0, self.allowed - (used - self.level))
            self.level = used
        if waiting > self.allowed:
            await self.drop(max(waiting - self.allowed, int(limit * LEAST)))

    async def drop(self, excess: int) -> None:
        """Has the largest queues lose so many bytes together."""
        queues = [
            subscriber.queue
            for registry in self.registries()
            for subscriber in registry.subscribers.values()
            if subscriber.queue.droppable_bytes()
        ]
        height = height_for([queue.droppable_bytes() for queue in queues], excess)
        for queue in queues:
            more = queue.droppable_bytes() > height
            while more:
                more = drop_down_to(queue, height)
                await asyncio.sleep(0)


def height_for(sizes: Iterable[int], excess: int) -> int:
    """Down to which size the largest must go so that all lose so much together; 0: it is more than all have."""
    falling = sorted(sizes, reverse=True)
    above = 0
    for count, size in enumerate(falling):
        if count and above - count * size >= excess:
            return (above - excess) // count
        above += size
    return max(0, above - excess) // len(falling) if falling else 0


def drop_down_to(queue: Queue, height: int) -> bool:
    """Drops some of a queue's oldest messages in memory; whether it still has more than so many bytes."""
    left = STEP
    while left > 0 and queue.droppable_bytes() > height:
        if not queue.drop_from_memory(MEMORY_FULL):
            return False
        left -= 1
    return left == 0

"""Async implementations of hooks that give information only: run behind the broker's back, in order.

A client's notices reach a plugin one after the other; those of different clients do not wait for each
other. What waits is bounded: beyond the limit notices are left out, counted and logged.
"""

import asyncio
from collections import deque
from typing import Any, Final

from vmq_hooks import SubscriberId

from vmq.plugins.guard import LateError, PluginGuard
from vmq.plugins.steps import ChainStep, ends_task

#: Notices of one plugin that may wait.
LIMIT: Final = 10_000

Notice = tuple[ChainStep, tuple[Any, ...]]


class NoticeQueues:
    """The async notices of one plugin."""

    def __init__(self, guard: PluginGuard, limit: int = LIMIT) -> None:
        self._guard = guard
        self._limit = limit
        self._waiting = 0
        self._queues: dict[object, deque[Notice]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def put(self, step: ChainStep, arguments: tuple[Any, ...]) -> None:
        """Has a step called soon, after what came before for the same client."""
        if self._waiting >= self._limit:
            self._guard.overflowed(step.hook)
            return
        self._waiting += 1
        key = next((each for each in arguments if isinstance(each, SubscriberId)), None)
        queue = self._queues.get(key)
        if queue is not None:
            queue.append((step, arguments))
            return
        self._queues[key] = queue = deque([(step, arguments)])
        task = asyncio.get_running_loop().create_task(self._run(key, queue))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, key: object, queue: "deque[Notice]") -> None:
        try:
            while queue:
                step, arguments = queue.popleft()
                self._waiting -= 1
                await self._tell(step, arguments)
        finally:
            self._waiting -= len(queue)
            del self._queues[key]

    async def _tell(self, step: ChainStep, arguments: tuple[Any, ...]) -> None:
        guard = self._guard
        if step.is_open():
            return
        try:
            work = step.call(*arguments)
            await guard.settled(step.hook, work, step.observe, is_verdict=False)
        except LateError:
            return  # told
        except BaseException as error:
            if ends_task(error):
                raise
            guard.failed(step.hook, error)
        else:
            if guard.failures:
                guard.succeeded()

    async def finish(self, seconds: float) -> None:
        """Waits for what is under way, so long at most; then it is cancelled."""
        if not self._tasks:
            return
        _, late = await asyncio.wait(self._tasks, timeout=seconds)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

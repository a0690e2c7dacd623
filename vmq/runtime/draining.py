"""The tasks of queues: one for each that drains, and only while it does."""

import asyncio
import logging

from vmq.core.context import Core
from vmq.core.queue import Queue
from vmq.core.states import FAILED
from vmq.store.store import StoreError

log = logging.getLogger("vmq.tasks")


class QueueTasks:
    """Drains backlogs step by step, so that no queue keeps the loop from the others."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.tasks: dict[Queue, asyncio.Task[None]] = {}

    def wake(self, queue: Queue) -> None:
        """A queue wants `drain_step` called soon."""
        if queue not in self.tasks:
            task = asyncio.get_running_loop().create_task(self.drain(queue))
            self.tasks[queue] = task

    async def drain(self, queue: Queue) -> None:
        outbox = self.core.outbox
        try:
            while queue.drain_step():
                outbox.flush()
                await asyncio.sleep(0)
        except StoreError as error:
            log.error("cannot drain the queue of client=%s: %s", queue.client_id, error)
            queue.output.finish(str(error), FAILED)
        except Exception:
            log.exception("cannot drain the queue of client=%s", queue.client_id)
            queue.output.finish("its queue cannot be read", FAILED)
        finally:
            del self.tasks[queue]
            outbox.flush()

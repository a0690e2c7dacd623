"""What a broker does in the background for its sessions and queues, whoever is connected."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, Final

from vmq.config.options import Config
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq.persistence.opening import store_folder
from vmq.resources.aging import age
from vmq.resources.disk import DiskWatch, usage_of
from vmq.resources.drop_log import DropLog
from vmq.resources.memory import MemoryWatch
from vmq.resources.queue_memory import QueueMemory

log = logging.getLogger("vmq.broker")

#: Seconds between two looks for sessions that were away too long.
EXPIRE_EVERY: Final = 60.0
#: Seconds between some of them and the next: a fleet that was cut off is too old at the same time.
EXPIRE_PAUSE: Final = 0.01


class Upkeep:
    """The tasks of one broker.

    Args:
        core: the broker's.
        registries: its topic trees by mountpoint.
        config: the configuration.
        memory: what the process may have.
    """

    def __init__(
        self,
        core: Core,
        registries: Mapping[str, Registry],
        config: Config,
        memory: MemoryWatch,
    ) -> None:
        self.core = core
        self.registries = registries
        folder = store_folder(config)
        self.queues = QueueMemory(core, self.trees, lambda: memory.limit, memory.measure)
        memory.near = self.queues.wake
        self.disk = DiskWatch(
            core, self.trees, config.store, lambda: usage_of(folder), memory.sharers
        )
        self.drops = DropLog(core)

    def trees(self) -> list[Registry]:
        """The topic trees that there are now."""
        return list(self.registries.values())

    def works(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Each to be run as a task, until it is cancelled."""
        yield self.expire_sessions()
        yield self.queues.run()
        yield self.disk.run()
        yield self.drops.run()
        yield age(self.core, self.trees)

    def configure(self, config: Config) -> None:
        """Goes by another configuration from now on."""
        self.disk.configure(config.store)

    async def expire_sessions(self) -> None:
        """Ends durable sessions that were away too long, every minute."""
        while True:
            await asyncio.sleep(EXPIRE_EVERY)
            count = 0
            for registry in self.trees():
                while ended := registry.expire():
                    count += ended
                    await asyncio.sleep(EXPIRE_PAUSE)
            if count:
                log.info("expired sessions=%d", count)

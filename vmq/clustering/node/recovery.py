"""When a node that could not read its storage can have it again: its process is to start anew then.

What such a node had under way may be half done, so it takes no part any more, and others have its slots meanwhile. A
node made anew in the same process would lose what the broker's other parts wait for; a start goes by what is on disk.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

from vmq_cluster.errors import ClusterError
from vmq_cluster.leveldb import LevelStorage

log = logging.getLogger("vmq.cluster")

#: Seconds between two tries to read all of it.
READ_AGAIN: Final = 10.0
#: Seconds that a process lives at least before it is to start anew: a disk that fails now and then makes it no loop.
LIFE: Final = 60.0
#: Behind all keys, which begin with a letter.
_END: Final = b"\xff"


class Recovery:
    """Tries to read the storage of one node as a start would.

    Args:
        folder: where it is.
        open_storage: opens it.
    """

    def __init__(self, folder: Path, open_storage: Callable[[Path], LevelStorage]) -> None:
        self._folder = folder
        self._open_storage = open_storage
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        #: It can be read whole again: whoever runs the process is to start it anew.
        self.readable = asyncio.Event()

    def begin(self, storage: LevelStorage) -> None:
        """The storage, which is open, could not be read."""
        self._task = self._loop.create_task(self._run(storage))

    async def stop(self) -> None:
        """Ends; nobody reads when it returns."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self, storage: LevelStorage) -> None:
        wait, is_readable = LIFE - (self._loop.time() - self._began), False
        while not is_readable:
            await asyncio.sleep(wait)
            wait, is_readable = READ_AGAIN, await self._tried(storage)
        log.warning("the cluster's storage can be read again: the process is to start anew")
        self.readable.set()

    async def _tried(self, storage: LevelStorage) -> bool:
        trying = self._loop.run_in_executor(None, self._can_be_read, storage)
        try:
            return await asyncio.shield(trying)
        finally:  # a thread cannot be cancelled
            await asyncio.wait([trying])

    def _can_be_read(self, storage: LevelStorage) -> bool:
        """Whether all of it can be read, from the disk and not from a cache; in a thread."""
        storage.close()  # what failed to write may have opened it anew
        try:
            fresh = self._open_storage(self._folder)
        except ClusterError:
            return False
        try:
            return not any(self._is_stopped for _ in fresh.scan(b"", _END))
        except ClusterError:
            return False
        finally:
            fresh.close()

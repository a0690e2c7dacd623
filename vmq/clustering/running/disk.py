"""What a node has of slots on its disk: records, the node's number as a store, and the lives of its broker.

Commits are those of `vmq.clustering.slots.effects`: one at a time, while the next gathers. One that is a promise is
synced whatever `store.durability` says; then, and with "fsync", a thread writes it.
"""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from vmq.clustering.slots.effects import Effects
from vmq.clustering.slots.words import BOOT_BITS, STORE_BITS
from vmq_cluster.errors import ClusterError, StorageError
from vmq_cluster.leveldb import LevelStorage
from vmq_cluster.storage import MemoryStorage, Storage

log = logging.getLogger("vmq.cluster")

_OWN: Final = b"!store"
_IMPORTED: Final = b"!nodes"
#: `SlotDisk.imported` where there was nothing.
NOTHING_IMPORTED: Final = b"0"
#: Lives of brokers are counted from here in minutes: a disk that lost the last number does not use it again.
_EPOCH: Final = 1_704_067_200
#: Seconds until a commit that failed is tried again.
RETRY_AFTER: Final = 1.0


class _Store(msgspec.Struct, array_like=True):
    """Which store it is, its last life, and how many slots the cluster has."""

    number: int
    life: int
    slots: int


class SlotDisk:
    """The disk of one node.

    Args:
        folder: a database of its own; None: it is in memory.
        durability: as `store.durability`.
        open_storage: opens the database.
    """

    def __init__(
        self,
        folder: Path | None,
        durability: str,
        open_storage: Callable[[Path], Storage] = LevelStorage,
    ) -> None:
        """Raises `StorageError`."""
        self.storage: Storage = MemoryStorage() if folder is None else open_storage(folder)
        self._is_synced = durability == "fsync"
        self._is_memory = folder is None
        self._writing: asyncio.Future[None] | None = None
        #: A commit that failed waits to be tried again.
        self._waits = False
        self._is_closed = False
        #: Why it cannot be written; nothing: it can.
        self.failure = ""

    def begin_life(self, slots: int, now: float, random: Random) -> tuple[int, int]:
        """The number of the store, made when it has none, and that of this life of the broker, which is on disk.

        Raises:
            ClusterError: its cluster has another number of slots.
            StorageError: it cannot be read or written.
        """
        raw = self.storage.get(_OWN)
        own = _Store(random.randrange(1, 1 << STORE_BITS), 0, slots)
        if raw is not None:
            own = msgspec.msgpack.decode(raw, type=_Store)
        if own.slots != slots:
            self.storage.close()
            raise ClusterError(
                f"cluster.slots is {slots}, and this store's cluster has {own.slots}"
            )
        own.life = max(own.life + 1, int(now - _EPOCH) // 60) & (1 << BOOT_BITS) - 1
        self.storage.write({_OWN: msgspec.msgpack.encode(own)}, sync=not self._is_memory)
        return own.number, own.life

    def own_store(self) -> int:
        """The number of the store; 0: it has none yet."""
        raw = self.storage.get(_OWN)
        return 0 if raw is None else msgspec.msgpack.decode(raw, type=_Store).number

    def release(self) -> None:
        """Ends the use of a disk to which nothing was committed."""
        self.storage.close()

    def imported(self) -> bytes:
        """How far it is with what the broker's store had of sessions, as `import_all` was told; b"": not begun."""
        return self.storage.get(_IMPORTED) or b""

    def import_all(self, effects: Effects, stage: bytes) -> None:
        """Writes what has gathered and how far it is, at once: all of it or nothing.

        Raises:
            StorageError: it cannot be written.
        """
        number, writes, _ = effects.begin_commit()
        self.storage.write({**writes, _IMPORTED: stage}, sync=not self._is_memory)
        effects.end_commit(number)

    def commit(self, effects: Effects, stored: Callable[[int], None]) -> None:
        """Writes what has gathered, if no commit is under way; `stored` is told when it is on disk."""
        if self._writing is not None or self._is_closed or not effects.writes:
            return
        self._write(*effects.begin_commit(), stored)

    def _write(
        self,
        number: int,
        writes: dict[bytes, bytes | None],
        must_sync: bool,
        stored: Callable[[int], None],
    ) -> None:
        if self._is_memory or not (must_sync or self._is_synced):
            try:
                self.storage.write(writes, sync=False)
            except StorageError as error:
                self._fail(error, number, writes, must_sync, stored)
            else:
                self.failure = ""
                stored(number)
            return
        loop = asyncio.get_running_loop()
        self._writing = loop.run_in_executor(None, lambda: self.storage.write(writes, sync=True))

        def done(future: "asyncio.Future[None]") -> None:
            self._writing = None
            error = future.exception()
            if error is not None:
                self._fail(error, number, writes, must_sync, stored)
            else:
                self.failure = ""
                stored(number)

        self._writing.add_done_callback(done)

    def _fail(
        self,
        error: BaseException,
        number: int,
        writes: dict[bytes, bytes | None],
        must_sync: bool,
        stored: Callable[[int], None],
    ) -> None:
        """Nothing of it counts as safe until it is written."""
        if not self.failure:
            log.error("the records of slots cannot be written: %s", error)
        self.failure = str(error)
        if self._is_closed:
            return
        loop = asyncio.get_running_loop()
        self._writing, self._waits = loop.create_future(), True

        def again() -> None:
            self._writing, self._waits = None, False
            if self._is_closed:
                return
            try:
                self.storage.mend()
            except StorageError as failure:
                self._fail(failure, number, writes, must_sync, stored)
            else:
                self._write(number, writes, must_sync, stored)

        loop.call_later(RETRY_AFTER, again)

    async def close(self, effects: Effects) -> None:
        """Writes what has gathered, and ends: not under a thread that writes, if it is after a failure."""
        while self._writing is not None and not self._waits:
            await asyncio.wait([self._writing])
            await asyncio.sleep(0)
        self._is_closed = True
        if effects.writes and not self.failure:
            _, writes, _ = effects.begin_commit()
            try:
                self.storage.write(writes, sync=not self._is_memory)
            except StorageError as error:
                log.error("the records of slots cannot be written: %s", error)
        self.storage.close()

"""Where a node keeps what must outlive it: ordered keys, atomic batches.

The machines see a `Transaction` over a `Storage`: what one pass writes is one batch, committed before a word of it
leaves the node. `vmq_cluster.leveldb` is the storage of real nodes; the one in memory is for nodes that may forget,
and for the simulator, to which it gives crashes that lose what had not been synced.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from typing import Protocol

from vmq_cluster.errors import StorageError, UnwrittenError

#: Keys to write; no value: the key is deleted.
Batch = Mapping[bytes, bytes | None]


class Readable(Protocol):
    """Ordered keys with values, to be read. Whatever fails raises `StorageError`."""

    def get(self, key: bytes) -> bytes | None:
        """The value of a key, if it has one."""

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `first` to before `end`, ascending. Nothing is written while it is used."""


class Storage(Readable, Protocol):
    """Ordered keys with values, to be read and written."""

    def write(self, batch: Batch, sync: bool) -> None:
        """Writes all or nothing; with `sync` it also survives the loss of power, like all before it.

        Once it has failed it does so until `mend` was called.
        """

    def mend(self) -> None:
        """Has it written again after a failure, if there was one; nobody reads or writes meanwhile."""

    def close(self) -> None:
        """Ends the use of the storage."""


class MemoryStorage:
    """A storage in memory. With `crashes` it remembers how to lose what was not synced."""

    def __init__(self, crashes: bool = False) -> None:
        self._values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []
        #: What each batch since the last sync overwrote, the oldest first.
        self._undo: list[dict[bytes, bytes | None]] | None = [] if crashes else None

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys = self._keys
        at = bisect_left(keys, first)
        while at < len(keys) and keys[at] < end:
            yield keys[at], self._values[keys[at]]
            at += 1

    def write(self, batch: Batch, sync: bool) -> None:
        if self._undo is not None:
            if sync:
                self._undo.clear()
            else:
                self._undo.append({key: self._values.get(key) for key in batch})
        self._apply(batch)

    def mend(self) -> None:
        """Nothing fails."""

    def close(self) -> None:
        """Nothing to end."""

    @property
    def unsynced(self) -> int:
        """How many batches a crash may lose."""
        return len(self._undo or ())

    def lose(self, batches: int) -> None:
        """The power failed: so many of the last batches that were not synced are gone."""
        assert self._undo is not None
        for _ in range(batches):
            self._apply(self._undo.pop())
        self._undo.clear()

    def _apply(self, batch: Batch) -> None:
        for key, value in batch.items():
            if value is None:
                if self._values.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]
            else:
                if key not in self._values:
                    insort(self._keys, key)
                self._values[key] = value


class Transaction:
    """Writes that are seen at once and reach the storage together, by `commit`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._pending: dict[bytes, bytes | None] = {}
        self._sync = False

    def get(self, key: bytes) -> bytes | None:
        if key in self._pending:
            return self._pending[key]
        return self._storage.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._pending[key] = value

    def delete(self, key: bytes) -> None:
        self._pending[key] = None

    def sync(self) -> None:
        """The next commit is to survive the loss of power."""
        self._sync = True

    def commit(self) -> None:
        """Writes what is pending, if anything is.

        Raises:
            UnwrittenError: it is pending still.
        """
        if self._pending or self._sync:
            try:
                self._storage.mend()
                self._storage.write(self._pending, self._sync)
            except StorageError as error:
                raise UnwrittenError(str(error)) from error
            self._pending = {}
            self._sync = False

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Keys from `first` to before `end`, pending writes included; write nothing meanwhile."""
        pending = sorted(key for key in self._pending if first <= key < end)
        stored = self._storage.scan(first, end)
        if not pending:
            yield from stored
            return
        at = 0
        for key, value in stored:
            while at < len(pending) and pending[at] < key:
                yield from self._pending_item(pending[at])
                at += 1
            if at < len(pending) and pending[at] == key:
                yield from self._pending_item(key)
                at += 1
            else:
                yield key, value
        for key in pending[at:]:
            yield from self._pending_item(key)

    def _pending_item(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        value = self._pending[key]
        if value is not None:
            yield key, value


def after_prefix(prefix: bytes) -> bytes:
    """The first key after all that begin with `prefix`, whose last byte is not 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])

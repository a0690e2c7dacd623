"""The disks of simulated nodes: they outlive whoever writes to them, who writes nothing more when it is dead."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from random import Random

import plyvel

from vmq_cluster.storage import Batch, MemoryStorage


class Records:
    """Ordered keys with values."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.values: dict[bytes, bytes] = {}

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.values:
            insort(self.keys, key)
        self.values[key] = value

    def delete(self, key: bytes) -> None:
        if self.values.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]


class Disk:
    """What one machine keeps: the broker's store, the node's own storage, and its slots."""

    def __init__(self) -> None:
        self.records = Records()
        self.storage = MemoryStorage()
        self.slots = MemoryStorage()
        #: How likely a write to the store fails.
        self.failures = 0.0


class Database:
    """What `vmq.store.store` and its like use of plyvel, as one life has it open."""

    def __init__(self, disk: Disk | None = None, random: Random | None = None) -> None:
        self.disk = Disk() if disk is None else disk
        self._random = random
        self.is_open = True

    @property
    def records(self) -> dict[bytes, bytes]:
        return self.disk.records.values

    @records.setter
    def records(self, values: dict[bytes, bytes]) -> None:
        self.disk.records = Records()
        for key, value in values.items():
            self.disk.records.put(key, value)

    def get(self, key: bytes, **_options: object) -> bytes | None:
        return self.records.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self.disk.records.put(key, value)

    def iterator(
        self,
        prefix: bytes = b"",
        start: bytes = b"",
        stop: bytes | None = None,
        include_start: bool = True,
        include_stop: bool = False,
        reverse: bool = False,
        **_options: object,
    ) -> Iterator[tuple[bytes, bytes]]:
        """As they are now, whatever is written later."""
        keys, values = self.disk.records.keys, self.records
        first = (bisect_left if include_start else bisect_right)(keys, max(prefix, start))
        last = len(keys)
        if stop is not None:
            last = (bisect_right if include_stop else bisect_left)(keys, stop)
        elif prefix:
            last = bisect_left(keys, prefix + b"\xff" * 40)
        found = [(key, values[key]) for key in keys[first:last]]
        return reversed(found) if reverse else iter(found)

    def raw_iterator(self, **_options: object) -> Cursor:
        return Cursor(self.disk.records)

    def write_batch(self, **_options: object) -> Writes:
        return Writes(self)

    def write(self, changes: dict[bytes, bytes | None]) -> None:
        if not self.is_open:
            raise plyvel.Error("nobody is there to write")
        if self._random is not None and self._random.random() < self.disk.failures:
            raise plyvel.IOError("the disk failed")
        for key, value in changes.items():
            if value is None:
                self.disk.records.delete(key)
            else:
                self.disk.records.put(key, value)

    def close(self) -> None:
        self.is_open = False


class Cursor:
    """A place among the records, of use until somebody writes."""

    def __init__(self, records: Records) -> None:
        self._keys = records.keys
        self._at = 0

    def seek(self, key: bytes) -> None:
        self._at = bisect_left(self._keys, key)

    def seek_to_last(self) -> None:
        self._at = len(self._keys) - 1

    def next(self) -> None:
        self._at += 1

    def prev(self) -> None:
        self._at -= 1

    def valid(self) -> bool:
        return 0 <= self._at < len(self._keys)

    def key(self) -> bytes:
        return self._keys[self._at]

    def close(self) -> None:
        """Nothing to end."""


class Writes:
    """A batch, written whole or not at all."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changes: dict[bytes, bytes | None] = {}

    def put(self, key: bytes, value: bytes) -> None:
        self._changes[key] = value

    def delete(self, key: bytes) -> None:
        self._changes[key] = None

    def write(self) -> None:
        self._database.write(self._changes)


class Shelf:
    """A node's own storage, as one life has it open."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage
        self.is_open = True
        self.get = storage.get
        self.scan = storage.scan

    def write(self, batch: Batch, sync: bool) -> None:
        if self.is_open:
            self._storage.write(batch, sync)

    def sync(self) -> None:
        """Nothing is lost but with the disk."""

    def mend(self) -> None:
        """Nothing fails."""

    def close(self) -> None:
        self.is_open = False

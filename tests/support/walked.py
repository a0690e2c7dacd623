"""A database that counts what LevelDB walks over: the records that are there, and those that were deleted.

LevelDB keeps what is deleted until it merges its files, and passes over all of it up to the next record that is there,
wherever a range ends. What it passed it does not tell; so this knows what was deleted, and where each iterator goes.
It counts as if nothing was merged yet.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any


class WalkedDb:
    """What `vmq.store.store` uses of plyvel, of a database in which `dead` was deleted before."""

    def __init__(self, db: Any, dead: set[bytes] | None = None) -> None:
        self.db = db
        self.dead = set() if dead is None else dead
        #: The same in order.
        self._sorted = sorted(self.dead)
        #: Records that were passed, there or deleted.
        self.walked = 0

    def take(self) -> int:
        """What was walked over since the last time."""
        walked, self.walked = self.walked, 0
        return walked

    def get(self, key: bytes, **options: Any) -> Any:
        return self.db.get(key, **options)

    def close(self) -> None:
        self.db.close()

    # --- writes

    def write_batch(self, **options: Any) -> Batch:
        return Batch(self, self.db.write_batch(**options))

    def wrote(self, puts: set[bytes], deletes: set[bytes]) -> None:
        self._sorted += sorted(deletes - self.dead)
        self._sorted.sort()  # two runs, which it only merges
        self.dead |= deletes
        if not puts.isdisjoint(self.dead):
            self.dead -= puts
            self._sorted = sorted(self.dead)

    # --- reads

    def _dead_between(self, low: bytes | None, high: bytes | None) -> int:
        dead = self._sorted
        end = len(dead) if high is None else bisect_left(dead, high)
        return end - (0 if low is None else bisect_left(dead, low))

    def _next(self, start: bytes | None) -> bytes | None:
        """The first record that is there from a key on; to be walked to."""
        for key in self.db.iterator(start=start, include_value=False):
            self.walked += 1 + self._dead_between(start, key)
            return bytes(key)
        self.walked += self._dead_between(start, None)
        return None

    def _before(self, stop: bytes | None) -> bytes | None:
        for key in self.db.iterator(stop=stop, reverse=True, include_value=False):
            self.walked += 1 + self._dead_between(key, stop)
            return bytes(key)
        self.walked += self._dead_between(None, stop)
        return None

    def iterator(
        self,
        start: bytes | None = None,
        stop: bytes | None = None,
        prefix: bytes | None = None,
        include_start: bool = True,
        include_stop: bool = False,
        reverse: bool = False,
        include_value: bool = True,
        **_options: Any,
    ) -> Found:
        return Found(
            self._found(start, stop, prefix, include_start, include_stop, reverse, include_value)
        )

    def _found(
        self,
        start: bytes | None,
        stop: bytes | None,
        prefix: bytes | None,
        include_start: bool,
        include_stop: bool,
        reverse: bool,
        include_value: bool,
    ) -> Iterator[Any]:
        if prefix is not None:
            start, stop = prefix, prefix[:-1] + bytes([prefix[-1] + 1])
        if start is not None and not include_start:
            start += b"\0"
        if stop is not None and include_stop:
            stop += b"\0"
        at = stop if reverse else start
        if reverse and stop is not None:
            self._next(stop)  # LevelDB goes backwards from there
        while True:
            key = self._before(at) if reverse else self._next(at)
            if key is None or (start is not None and key < start):
                return
            if stop is not None and key >= stop:
                return
            yield (key, self.db.get(key)) if include_value else key
            at = key if reverse else key + b"\0"

    def raw_iterator(self, **_options: Any) -> RawIterator:
        return RawIterator(self)


class Found:
    """An iterator over such a database."""

    def __init__(self, found: Iterator[Any]) -> None:
        self._found = found

    def __iter__(self) -> Iterator[Any]:
        return self._found

    def __next__(self) -> Any:
        return next(self._found)

    def __enter__(self) -> Found:
        return self

    def __exit__(self, *_: object) -> None: ...


class RawIterator:
    """A raw iterator over such a database."""

    def __init__(self, db: WalkedDb) -> None:
        self._db = db
        self._at: bytes | None = None

    def seek(self, key: bytes) -> None:
        self._at = self._db._next(key)

    def seek_to_last(self) -> None:
        self._at = self._db._before(None)

    def next(self) -> None:
        assert self._at is not None
        self._at = self._db._next(self._at + b"\0")

    def prev(self) -> None:
        assert self._at is not None
        self._at = self._db._before(self._at)

    def valid(self) -> bool:
        return self._at is not None

    def key(self) -> bytes:
        assert self._at is not None
        return self._at

    def close(self) -> None:
        """Nothing to do."""


class Batch:
    """A batch of writes to such a database."""

    def __init__(self, db: WalkedDb, batch: Any) -> None:
        self._db = db
        self._batch = batch
        self._puts: set[bytes] = set()
        self._deletes: set[bytes] = set()

    def put(self, key: bytes, value: bytes) -> None:
        self._batch.put(key, value)
        self._puts.add(key)
        self._deletes.discard(key)

    def delete(self, key: bytes) -> None:
        self._batch.delete(key)
        self._deletes.add(key)
        self._puts.discard(key)

    def write(self) -> None:
        self._batch.write()
        self._db.wrote(self._puts, self._deletes)

    def __enter__(self) -> Batch:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.write()

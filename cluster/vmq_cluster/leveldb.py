"""The storage of real nodes: one LevelDB database."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plyvel

from vmq_cluster.errors import StorageError
from vmq_cluster.storage import Batch


class LevelStorage:
    """Ordered keys in a folder. What `write` was given survives the death of the process, synced or not."""

    def __init__(
        self,
        path: Path,
        write_buffer_size: int = 4 * 1024 * 1024,
        cache_size: int = 8 * 1024 * 1024,
    ) -> None:
        """Opens or creates the database.

        Raises:
            StorageError: another process has it, or it is damaged.
        """
        self._path = path
        #: Whether something was written since the last `sync`, as what an earlier process left may be.
        self._has_unsynced = True
        #: A write or a sync has failed: what LevelDB wrote behind it would be lost.
        self._is_torn = False
        self._sizes = write_buffer_size, cache_size
        self._db: Any = self._open()

    def _open(self) -> Any:
        buffer, cache = self._sizes
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            return plyvel.DB(
                str(self._path),
                create_if_missing=True,
                paranoid_checks=True,
                write_buffer_size=buffer,
                lru_cache_size=cache,
                bloom_filter_bits=10,
            )
        except (plyvel.Error, OSError) as error:
            raise self._failure("open", error) from None

    def mend(self) -> None:
        """Opens the database anew if a write or a sync has failed. To be called where it is read, before the next one.

        LevelDB would go on in its log behind the record that it wrote in part, and the next start could not read what
        follows; and a sync that failed may have left in memory what the next one says nothing of. Opening anew cuts
        the part off, and writes what the log has to a table.

        Raises:
            StorageError: it cannot be had yet.
        """
        if self._is_torn:
            self._db.close()
            self._db = self._open()
            self._is_torn = False

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key)
        except (plyvel.Error, RuntimeError) as error:  # closed: it cannot be opened anew
            raise self._failure("read", error) from None
        return value

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        try:
            with self._db.iterator(start=first, stop=end, verify_checksums=True) as found:
                yield from found
        except (plyvel.Error, RuntimeError) as error:
            raise self._failure("read", error) from None

    def write(self, batch: Batch, sync: bool) -> None:
        if self._is_torn:
            raise StorageError(f"the storage in {self._path} failed, and is not open anew")
        try:
            with self._db.write_batch(transaction=True, sync=sync) as writer:
                for key, value in batch.items():
                    if value is None:
                        writer.delete(key)
                    else:
                        writer.put(key, value)
            if not sync:
                self._has_unsynced = True
        except plyvel.Error as error:
            self._is_torn = True
            raise self._failure("write", error) from None

    def sync(self) -> None:
        """Makes all that was written survive the loss of power. To be called in a thread, also while others write.

        LevelDB's own way, a write with sync, holds up every other write as long as it takes. What it wrote without is
        in its log, or, since it took another log, in tables that it syncs before it deletes the old one.

        Raises:
            StorageError: the disk failed.
        """
        if self._is_torn:
            raise StorageError(f"the storage in {self._path} failed, and is not open anew")
        if not self._has_unsynced:
            return
        self._has_unsynced = False  # before: what is written from now on needs the next call
        try:
            for each in (*sorted(self._path.glob("*.log")), self._path):
                _sync_file(each)
        except OSError as error:
            self._has_unsynced = self._is_torn = True
            raise self._failure("sync", error) from None

    def close(self) -> None:
        self._db.close()

    def _failure(self, what: str, error: Exception) -> StorageError:
        text = error.args[0] if error.args else error
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        return StorageError(f"cannot {what} the cluster's storage in {self._path}: {text}")


def _sync_file(path: Path) -> None:
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return  # a log whose content is in a table
    try:
        os.fsync(file)
    finally:
        os.close(file)

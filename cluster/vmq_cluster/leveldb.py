"""The storage of real nodes: one LevelDB database."""

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
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._db: Any = plyvel.DB(
                str(path),
                create_if_missing=True,
                paranoid_checks=True,
                write_buffer_size=write_buffer_size,
                lru_cache_size=cache_size,
                bloom_filter_bits=10,
            )
        except (plyvel.Error, OSError) as error:
            raise self._failure("open", error) from None

    def get(self, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._db.get(key)
        except plyvel.Error as error:
            raise self._failure("read", error) from None
        return value

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        try:
            with self._db.iterator(start=first, stop=end, verify_checksums=True) as found:
                yield from found
        except plyvel.Error as error:
            raise self._failure("read", error) from None

    def write(self, batch: Batch, sync: bool) -> None:
        try:
            with self._db.write_batch(transaction=True, sync=sync) as writer:
                for key, value in batch.items():
                    if value is None:
                        writer.delete(key)
                    else:
                        writer.put(key, value)
        except plyvel.Error as error:
            raise self._failure("write", error) from None

    def close(self) -> None:
        self._db.close()

    def _failure(self, what: str, error: Exception) -> StorageError:
        text = error.args[0] if error.args else error
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        return StorageError(f"cannot {what} the cluster's storage in {self._path}: {text}")

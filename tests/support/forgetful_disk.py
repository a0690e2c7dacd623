"""The kernel's own way with a disk that fails."""

import errno
import os
from typing import Any

import pytest


class ForgetfulDisk:
    """What a sync that failed was to take counts as written from then on, and is not there after a power failure.

    Args:
        patch: what has it take the place of `os`.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.fails = False
        #: Bytes that no sync takes any more unless they are written again, by the file.
        self.lost: dict[int, set[int]] = {}
        self._synced: dict[int, int] = {}
        self._pwrite = os.pwrite
        patch.setattr(os, "pwrite", self._write)
        patch.setattr(os, "fdatasync", self._sync)

    def _write(self, fd: int, data: Any, at: int) -> int:
        count = self._pwrite(fd, data, at)
        self.lost.get(os.fstat(fd).st_ino, set()).difference_update(range(at, at + count))
        return count

    def _sync(self, fd: int) -> None:
        found = os.fstat(fd)
        begin = self._synced.get(found.st_ino, 0)
        if self.fails:
            self.lost.setdefault(found.st_ino, set()).update(range(begin, found.st_size))
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._synced[found.st_ino] = found.st_size

    @property
    def is_whole(self) -> bool:
        """Whether the disk has all that syncs were to take."""
        return not any(self.lost.values())

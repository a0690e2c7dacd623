"""Files of which a process has more than it may have open: each is opened when it is used, and closed again.

Those that were used last stay open, up to a quarter of what the process may have (`RLIMIT_NOFILE`, `ulimit -n`); the
others of that limit are for connections. A file is told by its path: nobody puts another one in its place while it
may be used.

A file is closed without being synced. What fails when the system writes it later is told to whoever next syncs it, as
long as nobody was told before (Linux since 4.16); so an error is not lost.
"""

import errno
import os
import resource
import threading
from collections import OrderedDict
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Final

#: Bytes that are written again at a time.
_WINDOW: Final = 1 << 20
#: A process may have so many times as many files open as are kept open here.
SHARE: Final = 4
#: Files that are kept open at least, and at most.
LEAST: Final = 16
MOST: Final = 16_384


def most_open() -> int:
    """How many files are kept open."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST if soft == resource.RLIM_INFINITY else max(LEAST, min(MOST, soft // SHARE))


def write_again(fd: int, begin: int, end: int) -> None:
    """Writes a part of a file once more, as it is read; the file is not open for appending.

    When a sync fails the system may take what it could not write for written: it is read as if nothing had happened,
    until memory is short, and the next sync succeeds without it. Written again it is the disk's to take again.

    Raises:
        OSError: the disk, or the file ends before that.
    """
    while begin < end:
        data = os.pread(fd, min(_WINDOW, end - begin), begin)
        if not data:
            raise OSError(errno.EIO, f"the file ends at byte {begin}, before {end}")
        begin += os.pwrite(fd, data, begin)


class OpenFiles:
    """Those that are open, the one that was used longest ago first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.used: OrderedDict[RestingFile, None] = OrderedDict()

    def make_room(self) -> None:
        """Closes files, under the lock, until one more may be open; those that somebody uses stay."""
        excess = len(self.used) + 1 - most_open()
        if excess <= 0:
            return
        # Not all are looked at: thousands are open, and one is closed for each that is opened.
        for file in [*islice((each for each in self.used if not each.users), excess)]:
            del self.used[file]
            os.close(file.fd)
            file.fd = -1


_OPEN: Final = OpenFiles()


def count_open() -> int:
    """How many of these files are open now."""
    return len(_OPEN.used)


class RestingFile:
    """A file that is open while it is used, `with file as fd`, by any thread, and perhaps for a while longer.

    Args:
        path: where it lies.
        flags: how it is opened.

    Raises:
        OSError: it cannot be opened; also whenever it is used.
    """

    __slots__ = ("fd", "flags", "is_closed", "path", "users")

    def __init__(self, path: Path, flags: int = os.O_RDWR) -> None:
        self.path = path
        self.flags = flags | os.O_CLOEXEC
        self.fd = -1
        #: How many have it in use; it is closed when nobody has.
        self.users = 0
        self.is_closed = False
        with self:
            pass  # that it is there shows now

    def __enter__(self) -> int:
        with _OPEN.lock:
            if self.is_closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self.path))
            if self.fd < 0:
                _OPEN.make_room()
                self.fd = os.open(self.path, self.flags, 0o640)
                _OPEN.used[self] = None
            else:
                _OPEN.used.move_to_end(self)
            self.users += 1
            return self.fd

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with _OPEN.lock:
            self.users -= 1
            if self.is_closed and not self.users:
                self._close()

    def close(self) -> None:
        """Lets go of it for good; who uses it goes on until he is done."""
        with _OPEN.lock:
            self.is_closed = True
            if not self.users:
                self._close()

    def _close(self) -> None:
        if self.fd >= 0:
            del _OPEN.used[self]
            os.close(self.fd)
            self.fd = -1

"""The files of the log: the last is written, the oldest goes when nothing in it is wanted any more."""

import errno
import os
import shutil
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Final

from crc32c import crc32c

from vmq.jobs.storage.frames import HEAD, HEAD_SIZE
from vmq.jobs.storage.indexes import drop_indexes, index_path

#: How a segment begins.
HEADER: Final = b"VMQJOBS1"
_SUFFIX: Final = ".jobs"
#: What a damaged segment is kept as, until the operator has seen it.
_DAMAGED: Final = ".damaged"
#: Files that are open to be read at a time.
_MOST_OPEN: Final = 64
#: Bytes that are written between two calls of `JobSegments.on_step`.
STEP: Final = 1 << 18


def write_all(fd: int, pieces: list[bytes]) -> int:
    """Writes at the end of a file; returns how many bytes that is.

    Raises:
        OSError: the disk; some of it may be there.
    """
    total = sum(map(len, pieces))
    written = os.writev(fd, pieces)
    if written < total:
        rest = b"".join(pieces)[written:]
        while rest:
            rest = rest[os.write(fd, rest) :]
    return total


class JobSegment:
    """One file."""

    def __init__(self, number: int, path: Path, size: int = 0) -> None:
        self.number = number
        self.path = path
        self.size = size
        #: Nanoseconds that its times are behind: the clock was set after they were written (`JobClock`).
        self.shift = 0
        #: Jobs that lie here and are wanted, and their bytes.
        self.live = 0
        self.live_bytes = 0
        self.fd = -1
        self.has_index = False
        #: Where its frames begin, and which of them have bodies that are known to be what was written.
        self.frames = array("I")
        self.checked = bytearray()


class JobSegments:
    """The segments of one folder.

    Args:
        folder: made when missing.
        syncing: held by who syncs: a lock, if threads do.
    """

    def __init__(self, folder: Path, syncing: AbstractContextManager[object] | None = None) -> None:
        self.folder = folder
        self._syncing = nullcontext() if syncing is None else syncing
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.all: dict[int, JobSegment] = {}
        for path in sorted(folder.glob("*" + _SUFFIX)):
            if path.stem.isdigit():
                number = int(path.stem)
                self.all[number] = JobSegment(number, path, path.stat().st_size)
        drop_indexes(folder, self.all)
        self.last: JobSegment | None = None
        #: Behind what counts of the last one there may be the beginning of more, which could not be cut off.
        self.is_torn = False
        #: Called when so many bytes more were written.
        self.on_step: Callable[[], None] = lambda: None
        self._stepped = 0
        #: Bytes of the last segment that are on disk; what is behind has to be written again before the next sync.
        self._synced = 0
        self._is_unsure = False

    def begin(self) -> JobSegment:
        """A new last segment.

        Raises:
            OSError: the disk.
        """
        self.mend()
        names = (name.partition(".")[0] for name in self.damaged())
        kept = (int(name) for name in names if name.isdigit())
        number = max([0, *self.all, *kept]) + 1
        path = self.folder / f"{number:010d}{_SUFFIX}"
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            write_all(fd, [HEADER])
            self.sync()  # of a segment that is not the last one only the events are checked
            self.sync_folder()
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)  # the next try begins it anew, with its header
            raise
        found = JobSegment(number, path, len(HEADER))
        found.fd = fd
        self.all[number] = self.last = found
        self._synced = 0
        return found

    def append(self, pieces: list[bytes]) -> None:
        """Writes at the end of the last segment, all or nothing.

        Raises:
            OSError: the disk.
        """
        last = self.last
        assert last is not None
        self.mend()
        try:
            total = write_all(last.fd, pieces)
        except OSError:
            self.is_torn = True
            self.mend()
            raise
        last.frames.append(last.size)
        last.size += total
        self._stepped += total
        if self._stepped >= STEP:
            self._stepped = 0
            self.on_step()

    def mend(self) -> None:
        """Cuts off the beginning of what could not be written: a start passes over what stands behind it.

        Raises:
            OSError: the disk.
        """
        if self.is_torn and self.last is not None:
            os.ftruncate(self.last.fd, self.last.size)
            self.is_torn = False

    def read(self, number: int, offset: int, size: int) -> bytes:
        """Bytes of a body in a segment.

        Raises:
            OSError: the disk, or it is not what was written.
        """
        segment = self.all.get(number)
        if segment is None:
            raise FileNotFoundError(f"segment {number} is gone")
        if segment.fd < 0:
            self.close_some()
            segment.fd = os.open(segment.path, os.O_RDONLY | os.O_CLOEXEC)
        place = bisect_right(segment.frames, offset) - 1
        checked = segment.checked
        if len(checked) < len(segment.frames):
            checked.extend(bytes(len(segment.frames) - len(checked)))
        if not checked[place]:
            self.check(segment, segment.frames[place])
            checked[place] = 1
        return os.pread(segment.fd, size, offset)

    def check(self, segment: JobSegment, at: int, *, with_events: bool = False) -> None:
        """Reads the bodies of a frame, and perhaps its events.

        Raises:
            OSError: the disk, or they are not what was written.
        """
        head = os.pread(segment.fd, HEAD_SIZE, at)
        if len(head) == HEAD_SIZE:
            _, events_crc, bodies_crc, told, size, _ = HEAD.unpack(head)
            events = os.pread(segment.fd, told, at + HEAD_SIZE) if with_events else b""
            bodies = os.pread(segment.fd, size, at + HEAD_SIZE + told)
            are_well = not with_events or crc32c(events) == events_crc
            if are_well and len(bodies) == size and crc32c(bodies) == bodies_crc:
                return
        raise OSError(errno.EIO, f"{segment.path} is damaged behind byte {at}")

    def close_some(self) -> None:
        """Closes what is open to be read, if there is much."""
        others = [each for each in self.all.values() if each.fd >= 0 and each is not self.last]
        if len(others) >= _MOST_OPEN:
            for each in others:
                os.close(each.fd)
                each.fd = -1

    def oldest(self) -> JobSegment | None:
        """The oldest segment, unless it is the one that is written."""
        for segment in self.all.values():
            return None if segment is self.last else segment
        return None

    def drop_oldest(self) -> None:
        """Removes segments from the oldest on while nothing in them is wanted.

        In this order alone: what a segment says of a job's end matters as long as the job's beginning is there.
        """
        while True:
            segment = self.oldest()
            if segment is None or segment.live > 0:
                return
            if segment.fd >= 0:
                os.close(segment.fd)
            index_path(segment.path).unlink(missing_ok=True)  # first: its number may come again
            segment.path.unlink(missing_ok=True)
            del self.all[segment.number]

    def total(self) -> int:
        """Bytes on disk."""
        return sum(each.size for each in self.all.values())

    def sync(self) -> None:
        """Has the last segment on disk; in any thread.

        Raises:
            OSError: the disk.
        """
        with self._syncing:
            last = self.last
            if last is None:
                return
            size = last.size
            if self._is_unsure:
                self._write_again(last, size)
            self._is_unsure = True
            os.fdatasync(last.fd)
            self._is_unsure = False
            self._synced = size

    def sync_found(self) -> None:
        """Has on disk what an earlier life wrote: its last segment may be in memory alone, those before it are not.

        Raises:
            OSError: the disk.
        """
        if self.all:
            fd = os.open(self.all[max(self.all)].path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)
            self.sync_folder()

    def _write_again(self, last: JobSegment, size: int) -> None:
        """A sync failed: what it was to take may be in memory alone, if it is there, and no other sync takes it."""
        with last.path.open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), HEADER, 0)
            behind = last.frames[bisect_left(last.frames, self._synced) :]
            for at, end in pairwise([*(each for each in behind if each < size), size]):
                self.check(last, at, with_events=True)
                if os.pwrite(file.fileno(), os.pread(last.fd, end - at, at), at) < end - at:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync_folder(self) -> None:
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def keep_damaged(self, segment: JobSegment) -> None:
        """Keeps a file for whoever may get more out of it; it is written no more, so a second name is enough.

        Raises:
            OSError: the disk.
        """
        kept = segment.path.with_name(segment.path.name + _DAMAGED)
        if kept.exists():
            return
        try:
            os.link(segment.path, kept)
        except OSError:  # there are file systems without
            shutil.copyfile(segment.path, kept)

    def damaged(self) -> list[str]:
        """The names of the damaged files that are kept."""
        return sorted(each.name for each in self.folder.glob(f"[0-9]*{_SUFFIX}{_DAMAGED}"))

    def close(self) -> None:
        """Closes the files."""
        for each in self.all.values():
            if each.fd >= 0:
                os.close(each.fd)
                each.fd = -1

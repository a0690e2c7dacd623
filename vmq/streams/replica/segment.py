"""The last segments of a replicated partition: files that grow, in which the place of each batch is known."""

import os
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from vmq.disk.open_files import RestingFile, write_again
from vmq.streams.log.checkpoint import sync_folder
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.frame import END, BadFrameError, Frame, check, parse
from vmq.streams.log.index import Index, IndexEnd
from vmq.streams.log.recovery import is_torn
from vmq.streams.log.segment import Header, SegmentFlawError, file_name, index_path, walk
from vmq.streams.replica.batches import batch_of
from vmq_cluster.raft.messages import Batch

_WINDOW: Final = 1 << 20
#: Batches that are read at a time: each takes some 30 us, in which nothing else of the node's groups goes on.
_MOST: Final = 256


class LooseSegment:
    """A segment whose batches can be read, and cut, one by one."""

    def __init__(self, path: Path, base: int, start: int) -> None:
        self.path = path
        self.base = base
        self.start = start
        self.index = Index(base, start)
        self.file = RestingFile(path)
        #: Rows are missing: nothing is written behind it.
        self.is_compacted = False
        #: Where each batch begins, in offsets and in bytes; the highest time, and the rows, up to its end.
        self.offsets = array("q")
        self.positions = array("q")
        self.times = array("q")
        self.rows = array("q")
        #: Bytes that are on the disk itself.
        self.synced = start
        self.is_doubtful = False
        #: It is from before there was a group: its batches say nothing of one.
        self.is_earlier = False

    @classmethod
    def make(cls, folder: Path, base: int, header: Header) -> "LooseSegment":
        """Begins a segment. Raises `OSError`."""
        path = folder / file_name(base)
        work = path.with_name(path.name + ".tmp")
        work.write_bytes(header.raw)
        work.replace(path)
        try:
            sync_folder(folder)
            return cls(path, base, len(header.raw))
        except OSError:
            path.unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: Path, header: Header) -> "LooseSegment":
        """Reads a segment that lies there. What it covers is whole; `flaw` says why it ends there.

        Raises:
            DamagedError: it does not even begin with the schema.
            OSError: the disk.
        """
        base = int(path.stem)
        made = cls(path, base, 0)
        try:
            with made.file as fd:
                made._look(fd, header)
        except BaseException:
            made.close()
            raise
        return made

    def _look(self, fd: int, header: Header) -> None:
        start = header.size_in(fd)
        if start is None:
            text = "it does not begin with this stream's schema"
            raise DamagedError(self.path, 0, self.base, text)
        self.start = start
        self.is_compacted = header.of(fd).is_compacted
        self.index = Index(self.base, start)
        with suppress(SegmentFlawError):
            for position, frame in walk(fd, start, os.fstat(fd).st_size, self.base):
                self.note(position, frame)
        self.synced = self.index.size

    def flaw(self, trusted: int | None) -> SegmentFlawError | None:
        """What is wrong behind the last whole batch, if that is more than a torn tail or the end's mark."""
        with self.file as fd:
            return self._flaw(fd, trusted)

    def _flaw(self, fd: int, trusted: int | None) -> SegmentFlawError | None:
        size = os.fstat(fd).st_size
        if trusted is not None and self.index.size < trusted:
            reason = f"the file is whole up to byte {self.index.size}, and {trusted} were written"
            return SegmentFlawError(self.index.size, self.end, reason, short=False)
        try:
            for _ in walk(fd, self.index.size, size, self.end):
                break
        except SegmentFlawError as flaw:
            return None if is_torn(fd, flaw, size, trusted) else flaw
        return None

    # --- what it holds

    @property
    def end(self) -> int:
        """The offset behind the last."""
        return self.index.end

    @property
    def count(self) -> int:
        """How many batches there are."""
        return len(self.offsets)

    def note(self, position: int, frame: Frame) -> None:
        """A batch lies there."""
        if not self.offsets:
            self.is_earlier = not frame.raft
        self.offsets.append(frame.offset)
        self.positions.append(position)
        self.index.add(frame.offset, frame.span, frame.rows, frame.size, frame.time)
        self.times.append(self.index.time)
        self.rows.append(self.index.rows)

    def can_be_cut(self, offset: int) -> bool:
        """Whether what is left before an offset is whole batches, and can be written on, or is all there is."""
        at = bisect_left(self.offsets, offset)
        is_between = at == len(self.offsets) or self.offsets[at] == offset
        return offset >= self.end or (is_between and not self.is_compacted)

    def position_of(self, offset: int) -> int:
        """Where the batch that begins at an offset lies; the end's is where the next one goes."""
        at = bisect_left(self.offsets, offset)
        return self.positions[at] if at < len(self.positions) else self.index.size

    def write(self, messages: list[bytes]) -> None:
        """Writes batches behind the last, all or none.

        Raises:
            OSError: the disk.
        """
        position = self.index.size
        data = messages[0] if len(messages) == 1 else b"".join(messages)
        view = memoryview(data)
        with self.file as fd:
            try:
                at = position
                while view:
                    written = os.pwrite(fd, view, at)
                    at += written
                    view = view[written:]
            except OSError:
                with suppress(OSError):
                    os.ftruncate(fd, position)
                raise
        whole = memoryview(data)
        at = 0
        while at < len(whole):
            frame = parse(whole, at)
            assert frame is not None
            self.note(position + at, frame)
            at += frame.size

    def read(self, offset: int, limit: int) -> list[Batch]:
        """Batches from the one that holds an offset on, about so many bytes, one at least, and not too many.

        Raises:
            BadFrameError: one is not what was written.
            OSError: the disk.
        """
        at = max(0, bisect_right(self.offsets, offset) - 1)
        begin = self.positions[at]
        stop = min(at + _MOST, bisect_left(self.positions, begin + limit, lo=at + 1))
        end = self.positions[stop] if stop < len(self.positions) else self.index.size
        view = memoryview(self._pread(end - begin, begin))
        found = []
        position = 0
        while position < end - begin:
            frame = parse(view, position)
            if frame is None:
                raise BadFrameError("the mark of the end stands where a batch was")
            check(view, position, frame)
            raw = bytes(view[position : position + frame.size])
            found.append(batch_of(frame, raw))
            position += frame.size
        return found

    def _pread(self, size: int, position: int) -> bytes:
        with self.file as fd:
            return os.pread(fd, size, position)

    def heads(self, end: int) -> Iterator[Batch]:
        """The batches before an offset; those of rows without their bodies.

        Raises:
            OSError: one is not what was written.
        """
        stop = bisect_left(self.offsets, end)
        at = 0
        while at < stop:
            begin = self.positions[at]
            view = memoryview(self._pread(_WINDOW, begin))
            first = at
            while at < stop:
                try:
                    frame = parse(view, self.positions[at] - begin)
                except BadFrameError as error:
                    if at > first:
                        break  # the next window has it whole
                    raise OSError(f"{self.path}: {error}") from None
                assert frame is not None
                yield batch_of(frame, b"")
                at += 1

    # --- what becomes of it

    def seal(self) -> None:
        """Nothing more is written to it. Raises `OSError`."""
        with self.file as fd:
            os.pwrite(fd, END, self.index.size)
        with suppress(OSError):
            self.index.save(index_path(self.path))

    def unseal(self) -> None:
        """It is written on. Raises `OSError`."""
        with self.file as fd:
            os.ftruncate(fd, self.index.size)
        index_path(self.path).unlink(missing_ok=True)

    def without(self, offset: int) -> "LooseSegment":
        """The segment without what begins at an offset or behind, in a file of its own in this one's place.

        Who has this one open keeps it. Raises `OSError`.
        """
        keep = bisect_left(self.offsets, offset)
        size = self.position_of(offset)
        work = self.path.with_name(self.path.name + ".tmp")
        target = os.open(work, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
        try:
            at = 0
            while at < size:
                data = self._pread(min(_WINDOW, size - at), at)
                if not data:
                    raise OSError(f"{self.path}: it ends before byte {size}")
                at += os.write(target, data)
            os.fdatasync(target)
        finally:
            os.close(target)
        index_path(self.path).unlink(missing_ok=True)
        work.replace(self.path)
        sync_folder(self.path.parent)
        made = LooseSegment(self.path, self.base, self.start)
        made.offsets = self.offsets[:keep]
        made.positions = self.positions[:keep]
        made.times = self.times[:keep]
        made.rows = self.rows[:keep]
        made.synced = size
        made.index = self._index_of(keep, size, offset)
        return made

    def freeze(self, offset: int) -> None:
        """Who reads this one in its place no more sees nothing behind an offset."""
        keep = bisect_left(self.offsets, offset)
        self.index.reset(self._mark(keep, self.position_of(offset), offset))

    def _mark(self, keep: int, size: int, offset: int) -> IndexEnd:
        time = self.times[keep - 1] if keep else -1
        rows = self.rows[keep - 1] if keep else 0
        entries = bisect_left(self.index.offsets, offset)
        return IndexEnd(size, offset if keep else self.base, time, keep, rows, entries, "")

    def _index_of(self, keep: int, size: int, offset: int) -> Index:
        made = Index(self.base, self.start)
        made.offsets, made.positions = self.index.offsets[:], self.index.positions[:]
        made.times, made.first_time = self.index.times[:], self.index.first_time
        made.reset(self._mark(keep, size, offset))
        return made

    def sync(self) -> None:
        """Waits until it is on the disk itself. Raises `OSError`: the next one writes again what this was to take."""
        size = self.index.size
        if self.synced < size:
            with self.file as fd:
                if self.is_doubtful:
                    write_again(fd, self.synced, size)
                self.is_doubtful = True
                os.fdatasync(fd)
            self.is_doubtful = False
            self.synced = size

    def distrust(self, synced: int, *, is_doubtful: bool) -> None:
        """Has the next sync take all behind a byte; `is_doubtful`: written again: an earlier one may have failed."""
        self.synced = max(self.start, min(synced, self.synced))
        self.is_doubtful = is_doubtful

    def close(self) -> None:
        """Closes the file."""
        self.file.close()

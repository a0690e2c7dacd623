"""The file of one segment: an Arrow IPC stream, and how stretches of it are read.

Its name is the offset of its first row, in 20 digits. Readers take stretches of whole batches into a
buffer of their own: a file that is cut or goes away under a memory map would end the process.
"""

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple, NoReturn

import pyarrow as pa
from pyarrow import ipc

from vmq.config.streams import StreamOptions
from vmq.disk.open_files import RestingFile, write_again
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.frame import BadFrameError, Frame, ShortFrameError, check, parse
from vmq.streams.log.index import Index
from vmq.streams.log.schema import COMPACTED, STORED, segment_schema

#: The registered extension of Arrow IPC streams.
SUFFIX: Final = ".arrows"
INDEX_SUFFIX: Final = ".index"
#: Stands beside segments that are a copy of another node's, which still owns the partition; names that node.
COPY: Final = "copy"

#: Bytes that are read at a time; a batch that has more is read whole.
WINDOW: Final = 1 << 20
#: A stretch ends with the batch that brings it to this many rows, or bytes in memory.
SPAN_ROWS: Final = 32_768
SPAN_BYTES: Final = 4 << 20


def file_name(base: int) -> str:
    """The name of the segment that begins at an offset."""
    return f"{base:020}{SUFFIX}"


def index_path(path: Path) -> Path:
    """Where the index of a segment lies."""
    return path.with_suffix(INDEX_SUFFIX)


def giver_of(folder: Path) -> str | None:
    """Whose copy lies in a partition's folder; None: it is the partition. Versions before named nobody: ""."""
    mark = folder / COPY
    return mark.read_text(encoding="utf-8") if mark.exists() else None


class Header:
    """The schema message that begins the segments of a partition, those that are not compacted or those that are."""

    def __init__(self, stream: str, partition: int, *, is_compacted: bool = False) -> None:
        self.stream = stream
        self.partition = partition
        self.is_compacted = is_compacted
        columns = COMPACTED if is_compacted else STORED
        self.schema: pa.Schema = segment_schema(stream, partition, columns)
        self.raw: bytes = self.schema.serialize().to_pybytes()

    @cached_property
    def compacted(self) -> "Header":
        """That of the partition's compacted segments."""
        return self if self.is_compacted else Header(self.stream, self.partition, is_compacted=True)

    def size_in(self, fd: int) -> int | None:
        """Bytes of a file's schema message; None if the file does not begin with one of this partition's."""
        found = self._look(fd)
        return None if found is None else found[1]

    def of(self, fd: int) -> "Header":
        """The one that a file begins with; this one, if it is none of this partition's."""
        found = self._look(fd)
        return self if found is None else found[0]

    def _look(self, fd: int) -> "tuple[Header, int] | None":
        """Another version of Arrow may lay the same schema out in another way."""
        found = os.pread(fd, len(self.raw), 0)
        if found == self.raw:
            return self, len(self.raw)
        length = 8 + int.from_bytes(found[4:8], "little")
        if len(found) < 8 or length > 4 * len(self.raw):
            return None
        try:
            schema = ipc.read_schema(pa.py_buffer(os.pread(fd, length, 0)))
        except (pa.ArrowException, OSError):
            return None
        for each in (self, self.compacted):
            if schema.equals(each.schema, check_metadata=True):
                return each, length
        return None


class Active:
    """The segment that grows, and how much of it readers may see."""

    def __init__(self, path: Path, index: Index, began: float) -> None:
        self.path = path
        self.file = RestingFile(path)
        self.index = index
        self.began = began
        self.synced = 0
        # The system tells one of two who sync a file that it failed.
        self.syncing = threading.Lock()
        self.is_doubtful = False

    def write(self, parts: Iterable[bytes | memoryview]) -> None:
        """Writes behind what the index covers, all of it or with an error."""
        position = self.index.size
        with self.file as fd:
            for part in parts:
                view = memoryview(part)
                while view:
                    written = os.pwrite(fd, view, position)
                    position += written
                    view = view[written:]

    def cut(self, size: int) -> None:
        """Has the file end there."""
        with self.file as fd:
            os.ftruncate(fd, size)
        self.synced = min(self.synced, size)

    def distrust(self, synced: int) -> None:
        """Has the next sync take all behind a byte: an earlier life's last one may have failed."""
        self.synced = synced
        self.is_doubtful = True

    def sync(self, size: int | None = None) -> None:
        """Waits until what is written is on disk, or so many bytes of it; whoever writes need not be who calls this.

        Raises:
            OSError: the disk; the next sync writes again what this one was to take.
        """
        size = self.index.size if size is None else size
        with self.file as fd:
            self.sync_open(fd, size)

    def sync_open(self, fd: int, size: int) -> None:
        """Syncs for who has the file open: sealed and closed meanwhile, it is not to be had again."""
        with self.syncing:
            if self.is_doubtful:
                write_again(fd, self.synced, size)
            self.is_doubtful = True
            os.fdatasync(fd)
            self.is_doubtful = False
            self.synced = max(self.synced, size)


class PlacedFrame(NamedTuple):
    """A frame, and where it begins in its file."""

    position: int
    frame: Frame


class BatchSpan(NamedTuple):
    """Consecutive batches as they were read: `next` is the position behind them, `end` the offset.

    Rows of a compacted segment bring their offsets, as a column behind the others; else these are consecutive.
    """

    rows: pa.RecordBatch
    offset: int
    next: int
    end: int


class Packed(NamedTuple):
    """Consecutive batches as an Arrow IPC stream, compressed as they lie in the segment.

    Its rows have consecutive offsets, or are `compacted`: then each brings its own. It has none where batches without
    rows were passed over: one reads on.
    """

    stream: pa.Buffer
    offset: int
    rows: int
    next: int
    end: int
    compacted: bool = False


class SegmentFlawError(Exception):
    """A batch that cannot be used: where it begins, which offset it should have, and why."""

    def __init__(self, position: int, offset: int, reason: str, *, short: bool) -> None:
        super().__init__(reason)
        self.position = position
        self.offset = offset
        self.reason = reason
        self.short = short

    def damage(self, path: Path) -> DamagedError:
        """This damage as the error that readers get."""
        return DamagedError(path, self.position, self.offset, self.reason)


class Window:
    """A part of a file in memory, moved along it."""

    def __init__(self, fd: int, limit: int) -> None:
        self.fd = fd
        self.limit = limit
        self.start = 0
        self.view = memoryview(b"")

    def move(self, position: int, size: int) -> None:
        """Reads up to `size` bytes from a position on, not beyond the limit."""
        self.start = position
        self.view = memoryview(
            os.pread(self.fd, max(0, min(size, self.limit - position)), position)
        )

    def reaches_limit(self) -> bool:
        """Whether more cannot be had."""
        return self.start + len(self.view) >= self.limit

    def frame_at(self, position: int) -> Frame | None:
        """The checked frame at a position; None at the mark of the stream's end.

        Raises:
            BadFrameError: there is no whole, unharmed one.
        """
        try:
            return self._frame_at(position)
        except ShortFrameError:
            if self.start == position and self.reaches_limit():
                raise
        self.move(position, WINDOW)
        try:
            frame = parse(self.view, 0)
        except ShortFrameError:
            frame = None
        if frame is not None and frame.size > len(self.view):
            self.move(position, frame.size)
        return self._frame_at(position)

    def _frame_at(self, position: int) -> Frame | None:
        frame = parse(self.view, position - self.start)
        if frame is not None:
            check(self.view, position - self.start, frame)
        return frame


def walk(fd: int, position: int, limit: int, offset: int) -> Iterator[PlacedFrame]:
    """The checked frames of a file from a position to a limit, or to the mark of the stream's end.

    `offset` is that of the first.

    Raises:
        FlawError: a batch is not whole or not what was written.
    """
    window = Window(fd, limit)
    while position < limit:
        try:
            frame = window.frame_at(position)
            if frame is not None and frame.offset != offset:
                raise_other(frame)
        except BadFrameError as error:
            short = isinstance(error, ShortFrameError)
            raise SegmentFlawError(position, offset, str(error), short=short) from None
        if frame is None:
            return
        yield PlacedFrame(position, frame)
        position += frame.size
        offset = frame.end


def read_span(
    fd: int, header: Header, position: int, limit: int, offset: int, fields: list[int] | None
) -> BatchSpan:
    """Reads the batches from a position on, some MiB of them.

    Args:
        fd: the file.
        header: which it begins with (`Header.of`).
        position: where a batch begins, below `limit`.
        limit: how far the file may be read.
        offset: that of the first batch.
        fields: numbers of the stored columns that are wanted; None = all.

    Raises:
        FlawError: a batch is not whole, or not what was written.
    """
    packed = read_packed(fd, header, position, limit, offset)
    return BatchSpan(unpack(packed, position, fields), offset, packed.next, packed.end)


def read_packed(
    fd: int, header: Header, position: int, limit: int, offset: int, most: int = SPAN_BYTES
) -> Packed:
    """Reads the batches from a position on as they lie in the file; their checksums are right.

    `most`: bytes in memory with which they are enough.

    Raises:
        FlawError: a batch is not whole, or not what was written.
    """
    buffer, view = _fill(fd, header, position, min(WINDOW, limit - position))
    try:
        size, rows, end = _frames(view, offset, most)
        if not size and len(view):
            # A batch that is larger than the window, if it is one.
            frame = parse(view, 0)
            if frame is not None and position + frame.size <= limit:
                buffer, view = _fill(fd, header, position, frame.size)
            size, rows, end = _frames(view, offset, most, whole=True)
    except BadFrameError as error:
        short = isinstance(error, ShortFrameError)
        raise SegmentFlawError(position, offset, str(error), short=short) from None
    if not size:  # it was cut meanwhile, as a follower does with what its leader has not
        raise SegmentFlawError(position, offset, "it ends before it should", short=True)
    stream = buffer.slice(0, len(header.raw) + size)
    return Packed(stream, offset, rows, position + size, end, header.is_compacted)


def unpack(packed: Packed, position: int, fields: list[int] | None) -> pa.RecordBatch:
    """The rows of batches that were read at a position; `fields` as in `read_span`.

    Raises:
        FlawError: Arrow cannot read them.
    """
    if packed.compacted and fields is not None:
        fields = [*fields, len(STORED)]
    options = ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    try:
        with ipc.open_stream(packed.stream, options=options) as reader:
            table = reader.read_all().combine_chunks()
    except (pa.ArrowException, OSError) as error:
        text = f"Arrow refuses it: {error}"
        raise SegmentFlawError(position, packed.offset, text, short=False) from None
    batches = table.to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)


def _fill(fd: int, header: Header, position: int, size: int) -> tuple[pa.Buffer, memoryview]:
    """A part of a file behind the schema, as a stream that Arrow can read; and a view of that part.

    Nothing is copied in Python: that would stop the event loop, which has the same interpreter.
    """
    begin = len(header.raw)
    buffer = pa.allocate_buffer(begin + size)
    view = memoryview(buffer).cast("B")
    view[:begin] = header.raw
    end = begin
    while end < len(view):
        count = os.preadv(fd, [view[end:]], position + end - begin)
        if not count:
            break
        end += count
    return buffer, view[begin:end]


def _frames(
    view: memoryview, offset: int, most: int, *, whole: bool = False
) -> tuple[int, int, int]:
    """Bytes and rows of the checked batches that some bytes begin with, up to those of a span; and where they end.

    Batches with rows and those without are in no span together.

    Raises:
        BadFrameError: the first batch is not what was written; with `whole`, or is not there whole.
    """
    rows = size = nbytes = 0
    end = offset
    while size < len(view) and rows < SPAN_ROWS and nbytes < most:
        try:
            frame = parse(view, size)
            if frame is None:
                break
            check(view, size, frame)
            if frame.offset != end:
                raise_other(frame)
        except BadFrameError as error:
            # What follows good batches is judged when it is next read, as the first.
            if size or (isinstance(error, ShortFrameError) and not whole):
                break
            raise
        if size and (frame.rows == 0) != (rows == 0):
            break
        rows += frame.rows
        size += frame.size
        nbytes += frame.nbytes
        end = frame.end
    return size, rows, end


def raise_other(frame: Frame) -> NoReturn:
    """A batch is whole, but another one should be in its place."""
    raise BadFrameError(f"the batch has offset {frame.offset}")


class OpenSegment:
    """A segment that is open for reading; `growing` while it is the partition's last."""

    def __init__(self, fd: int, path: Path, index: Index, header: Header, *, growing: bool) -> None:
        self.fd = fd
        #: Which it begins with.
        self.header = header.of(fd)
        self.path = path
        self.index = index
        self.growing = growing
        #: What lies beside it does not help this reader.
        self.alone = growing


class Sealed(NamedTuple):
    """A segment that is complete. `inode` tells it from a merged copy that takes its place; `rows` only count.

    `time` is the highest of its rows, -1 where it is damaged.
    """

    path: Path
    base: int
    end: int
    size: int
    time: int
    inode: int
    merged: bool
    rows: int = 0


def sealed_of(path: Path, index: Index) -> Sealed:
    """What is to be known of a sealed segment."""
    found = path.stat()
    times = index.time, found.st_ino
    return Sealed(path, index.base, index.end, found.st_size, *times, index.merged, index.rows)


def expired(
    sealed: Sequence[Sealed],
    size: int,
    options: StreamOptions,
    now: float,
    *,
    beside: Mapping[Path, int] = MappingProxyType({}),
    is_gone: bool = False,
) -> Iterator[tuple[Sealed, bool]]:
    """The oldest segments that are too old or too many; True: there is no room for them.

    One of which no time is known (it has no rows, or is damaged) is no older than what lies behind it: who reads from
    an offset in it goes on, and what can be read of it is not taken before its time.

    Args:
        sealed: those of a partition, the oldest first.
        size: bytes of all its segments.
        options: of its stream.
        now: seconds since 1970.
        beside: bytes of what lies beside segments, by their paths; it goes with them, and counts.
        is_gone: the stream is; all are to go.
    """
    size += sum(beside.values())
    oldest = -1
    if options.retention_age_seconds is not None:
        oldest = int((now - options.retention_age_seconds) * 1_000_000)
    room = options.retention_bytes // options.partitions if options.retention_bytes else None
    for place, each in enumerate(sealed):
        is_too_much = is_gone or (room is not None and size > room)
        if not is_too_much and oldest <= _newest(islice(sealed, place, None)):
            return
        yield each, is_too_much
        size -= each.size + beside.get(each.path, 0)


def _newest(sealed: Iterable[Sealed]) -> float:
    """The highest time of the first of some segments that is known to have one."""
    known = (each.time for each in sealed if each.time > 0 or (each.time == 0 and each.rows))
    return next(known, inf)

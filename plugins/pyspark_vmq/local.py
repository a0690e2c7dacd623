"""Messages read from the broker's segments where they lie, if that is on this machine, instead of over a socket.

The broker says which file the rows of a ticket begin in and which follow, to whom it would also send them, and only to
a program that knows the machine's boot id. It names device and inode, so no other file is taken for it, and how
far each may be read: rows behind that are not published. Whoever has mapped a segment reads it to its end, whatever
merging and retention do meanwhile. What cannot be had so (no permission, another container, an older broker,
`local_reads` off, damage) is left to Flight, which also has the right words for what is wrong.

A segment is an Arrow IPC stream. In the custom metadata of each batch stand its first offset, its rows, the length
of its body, and a CRC-32C of the whole message with zeros in the checksum's place; in a compacted segment, of whose
rows some are gone, also how many offsets it takes: then each row brings its own.
"""

import errno
import logging
import mmap
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark_vmq.client import Client
from pyspark_vmq.errors import ServerError, Unauthenticated, Unavailable
from pyspark_vmq.unpacking import Unpacker

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("pyspark_vmq")

#: Rows that make a batch for Spark, as many as a merged segment has in each of its own.
BATCH_ROWS: Final = 16_384
#: Bytes in memory that make one with fewer rows.
BATCH_BYTES: Final = 4 << 20

#: Answers that are out of date when they come, one after the other, before it is given up.
TRIES: Final = 3

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MARK: Final = re.compile(
    rb"offset=(\d{20}) rows=(\d{10}) bytes=(\d{12}) time=\d{20} body=(\d{12}) crc32c=([0-9a-f]{8})"
)
_SPAN: Final = re.compile(rb"span=(\d{20})")
_CRC_LENGTH: Final = 8


class NotHereError(Exception):
    """The files cannot be had, or not the ones that the broker means."""


class FlawError(Exception):
    """A segment holds something else than what was written."""


class Spot(NamedTuple):
    """Where rows begin: in the batch at byte `position`, whose offset is `first`, or in one behind it.

    The file may be read up to byte `limit`, which is behind offset `last`.
    """

    path: str
    device: int
    inode: int
    position: int
    first: int
    limit: int
    last: int


class Frame(NamedTuple):
    """A batch: bytes `position` to `limit` of its segment, `span` offsets from `offset` on, and its size in memory."""

    position: int
    limit: int
    offset: int
    rows: int
    nbytes: int
    span: int

    @property
    def end(self) -> int:
        """The offset behind it."""
        return self.offset + self.span


class Files:
    """The segments that hold one range.

    Args:
        client: asked where they lie.
        ticket: of a get of the range.
        unpacker: makes the columns.
    """

    def __init__(self, client: Client, ticket: Mapping[str, Any], unpacker: Unpacker) -> None:
        self.client = client
        self.ticket = ticket
        self.unpacker = unpacker

    def read(self, start: int) -> "Iterator[tuple[pa.RecordBatch | None, int]]":
        """The rows from an offset on that match, if there are any, each time with the offset to read on from.

        It ends with the range, or earlier: where something cannot be had from files.

        Raises:
            DataLossError: the retention was faster.
            Unavailable: the broker is away.
            Unauthenticated: a token has ended.
        """
        end = self.ticket["end"]
        try:
            while start < end:
                for spot, data in self.segments_at(start):
                    last = min(end, spot.last)
                    for rows, following in self.rows_in(spot, data, start, last):
                        start = following
                        yield rows, start
                    if start < last:  # what was left has no rows
                        start = last
                        yield None, start
        except (NotHereError, FlawError) as reason:
            log.debug(
                "stream '%s', partition %d: from offset %d on by Flight, not from files: %s",
                self.ticket["stream"],
                self.ticket["partition"],
                start,
                reason,
            )

    def segments_at(self, start: int) -> list[tuple[Spot, mmap.mmap]]:
        """Where an offset lies, and that segment and some behind it as far as they may be read.

        All are mapped at once, before merging and retention go on.

        Raises:
            NotHereError: the first one is not to be had.
        """
        reason: Exception | None = None
        for _ in range(TRIES):
            owner, spots = self.ask(start)
            found: list[tuple[Spot, mmap.mmap]] = []
            try:
                for spot in spots:
                    found.append((spot, mapped(spot)))
            except (OSError, ValueError) as error:
                reason = error
            if found:
                return found  # what hinders further ones is found out there
            # Deleted or merged since the answer? Else it is so each time: in another container.
            if not isinstance(reason, FileNotFoundError):
                break
        owner.has_files = False
        raise NotHereError(reason)

    def ask(self, start: int) -> tuple[Client, list[Spot]]:
        """Where an offset lies, with some segments behind that one, and who says so.

        Raises:
            NotHereError: nobody does.
        """
        if not machine():
            raise NotHereError("this machine has no boot id, or this Python no crc32c")
        try:
            asked = {**self.ticket, "start": start, "machine": machine()}
            found = next(self.client.file(asked), None)
        except (Unavailable, Unauthenticated):
            raise
        except ServerError as error:
            raise NotHereError(error) from None
        if found is None:
            raise NotHereError("they were not to be had before")
        owner, told = found
        spot = told.get("spot")
        if spot is None or told["end"] < self.ticket["end"]:
            raise NotHereError("the range is not there")
        if told.get("sparse"):
            raise NotHereError("few rows match, and the broker finds them at once")
        # A broker of an older version names one.
        spots = [spot, *told.get("further", [])]
        return owner, [Spot(*(each[name] for name in Spot._fields)) for each in spots]

    def rows_in(
        self, spot: Spot, data: mmap.mmap, start: int, end: int
    ) -> "Iterator[tuple[pa.RecordBatch, int]]":
        """The rows of one segment between two offsets.

        Raises:
            FlawError: the segment is damaged.
        """
        import pyarrow as pa
        from pyarrow import ipc

        whole = pa.py_buffer(data)
        source = pa.BufferReader(whole)
        try:
            with ipc.open_stream(source, options=self.unpacker.options_for(whole)) as reader:
                for group in groups(frames(data, spot, start, end)):
                    parts = []
                    for frame in group:
                        source.seek(frame.position)
                        parts.append(reader.read_next_batch())
                    first = group[0].offset
                    skip = max(0, start - first)
                    following = min(group[-1].end, end)
                    count = following - first - skip
                    if "offset" in parts[0].schema.names:
                        parts = [between(parts, start, following)]
                        skip, count = 0, parts[0].num_rows
                    yield self.unpacker.rows_of(parts, skip, count, first + skip), following
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise FlawError(f"{spot.path}: Arrow refuses it: {error}") from None


def between(parts: "list[pa.RecordBatch]", start: int, end: int) -> "pa.RecordBatch":
    """The rows of some batches that have offsets from `start` to before `end`; they bring them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pa.concat_batches(parts)
    offsets = rows.column("offset")
    return rows.filter(pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end)))


def mapped(spot: Spot) -> mmap.mmap:
    """The file of a spot up to its limit.

    Raises:
        OSError: it cannot be opened; FileNotFoundError also if another file has its place.
    """
    # The name may stand for anything here: a pipe would be waited for.
    fd = os.open(spot.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        file = os.fstat(fd)
        if (file.st_dev, file.st_ino) != (spot.device, spot.inode) or file.st_size < spot.limit:
            raise FileNotFoundError(errno.ENOENT, "another file is there", spot.path)
        return mmap.mmap(fd, spot.limit, prot=mmap.PROT_READ)
    finally:
        os.close(fd)


def frames(data: mmap.mmap, spot: Spot, start: int, end: int) -> Iterator[Frame]:
    """The checked batches of a segment that hold the rows between two offsets; those without rows are passed over.

    Raises:
        FlawError: one is not what was written.
    """
    view = memoryview(data)
    position, offset = spot.position, spot.first
    while offset < end:
        frame = frame_at(view, position, offset, start)
        if frame is None:
            raise FlawError(f"{spot.path}: the batch at byte {position} is not what was written")
        if frame.end > start and frame.rows:
            yield frame
        position, offset = frame.limit, frame.end


def frame_at(view: memoryview, position: int, offset: int, start: int) -> Frame | None:
    """The batch of an offset at a position; None if there is no unharmed one. Before `start` only its head counts."""
    import crc32c

    length = 8 + int.from_bytes(view[position + 4 : position + 8], "little")
    head = bytes(view[position : position + length])
    mark = _MARK.search(head)
    if mark is None or int(mark[1]) != offset:
        return None
    limit = position + length + int(mark[4])
    told = _SPAN.search(head)
    rows = int(mark[2])
    span = (rows if told is None else int(told[1])) or 1  # one without rows takes an offset, too
    frame = Frame(position, limit, offset, rows, int(mark[3]), span)
    if limit > len(view):
        return None
    if frame.end <= start:
        return frame
    at = mark.start(5)
    blank = head[:at] + b"0" * _CRC_LENGTH + head[at + _CRC_LENGTH :]
    found = crc32c.crc32c(view[position + length : limit], crc32c.crc32c(blank))
    return frame if found == int(mark[5], 16) else None


def groups(found: Iterator[Frame]) -> Iterator[list[Frame]]:
    """Batches of consecutive offsets, as many as make one for Spark."""
    group: list[Frame] = []
    size = 0
    for frame in found:
        if group and group[-1].end != frame.offset:
            yield group
            group, size = [], 0
        group.append(frame)
        rows, size = frame.end - group[0].offset, size + frame.nbytes
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


@cache
def machine() -> str:
    """The machine's boot id, in 32 hexadecimal digits; empty if there is none, or segments cannot be checked."""
    with suppress(OSError, ImportError):
        import crc32c  # noqa: F401 - needed further down; a Spark of its own may lack it

        return _BOOT_ID.read_text(encoding="ascii").strip().replace("-", "")
    return ""

"""Reading a partition forwards from an offset, in any thread, whatever the writer and the retention do meanwhile.

A cursor holds the file it reads open: a segment that is merged or deleted under it stays as it was,
to its end. Rows that are not published yet are never seen.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from vmq.config.columns import TypedColumn
from vmq.streams.log.columns import Projection, as_stream, within
from vmq.streams.log.conditions import Condition
from vmq.streams.log.errors import DamagedError, OutOfRangeError, StreamError
from vmq.streams.log.frame import END
from vmq.streams.log.index import Index, load
from vmq.streams.log.ordered.reading import beside, portions
from vmq.streams.log.recovery import examine
from vmq.streams.log.schema import STORED
from vmq.streams.log.segment import (
    SPAN_BYTES,
    BatchSpan,
    Header,
    OpenSegment,
    Packed,
    Sealed,
    SegmentFlawError,
    index_path,
    read_packed,
    unpack,
)

if TYPE_CHECKING:  # a process of SQL reads what it is shown, and starts the sooner
    from vmq.streams.log.archive import PartitionArchive

_TOPIC = STORED.get_field_index("topic")


class Chunk(NamedTuple):
    """Rows of a read, perhaps none; the next read goes on at offset `next`."""

    rows: pa.RecordBatch
    next: int


class PackedChunk(NamedTuple):
    """Rows of a read as an Arrow IPC stream, of more columns than are wanted, perhaps.

    Those that count are `rows` rows from row `skip` on, and have consecutive offsets from `first`
    on; unless `offset` is a column: then all count, and each has its own.
    """

    stream: pa.Buffer
    skip: int
    rows: int
    first: int
    next: int


class GrowingSegment(Protocol):
    """The last segment of a log."""

    @property
    def path(self) -> Path: ...
    @property
    def index(self) -> Index: ...


class Extent(Protocol):
    """A partition from its first offset to behind its last."""

    @property
    def stream(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def header(self) -> Header: ...
    @property
    def earliest(self) -> int: ...
    @property
    def end(self) -> int: ...


class PartitionLog(Extent, Protocol):
    """What cursors need of a partition: of one that grows, or of one that lies in a folder (see there)."""

    @property
    def changed(self) -> threading.Lock: ...
    @property
    def sealed(self) -> Sequence[Sealed]: ...
    @property
    def active(self) -> GrowingSegment: ...
    @property
    def closed(self) -> bool: ...
    @property
    def visible(self) -> int: ...
    @property
    def damage(self) -> DamagedError | None: ...
    @property
    def kept(self) -> int: ...
    @property
    def archive(self) -> "PartitionArchive | None": ...
    def note(self, damage: DamagedError) -> None:
        """Damage was met in a segment."""


class Cursor:
    """The place of one reader in one partition; `close` it, or use it in a `with`.

    Raises:
        OutOfRangeError: the partition has no such offset. Its end is one: rows may come.
        DamagedError: it is refused as a whole.
    """

    def __init__(self, partition: PartitionLog, offset: int) -> None:
        self.partition = partition
        self.offset = offset
        if partition.damage is not None:
            raise partition.damage
        earliest, end = partition.earliest, partition.end
        if not earliest <= offset <= end:
            raise self._out_of_range()
        self.place: OpenSegment | None = None
        #: Where the batch that holds `offset` or comes next begins, and its own first offset.
        self.position = 0
        self.first = 0
        #: Where the batches began that were read last.
        self.began = 0
        #: Bytes in memory of batches that are read together, about.
        self.most = SPAN_BYTES

    def __enter__(self) -> "Cursor":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the file."""
        if self.place is not None:
            os.close(self.place.fd)
            self.place = None

    def read(self, fields: list[int] | None, *, stays: bool = False) -> BatchSpan | None:
        """The batches at the cursor, and moves it behind them; None at the partition's end.

        The span may begin before the offset at which the cursor was. `stays`: it comes to the end of a segment of which
        no further row is left, and not into the next one: None, too.

        Raises:
            OutOfRangeError: the retention was faster.
            StreamError: the stream was deleted.
            DamagedError: a batch is not what was written.
        """
        packed = self.read_packed(stays=stays)
        if packed is None:
            return None
        return BatchSpan(self.unpack(packed, fields), packed.offset, packed.next, packed.end)

    def read_packed(self, *, stays: bool = False) -> Packed | None:
        """The batches at the cursor as they lie in the segment, and moves it behind them."""
        wanted = self.offset
        packed = self._read_packed()
        # An index leads to a batch before the offset; where a large one follows small ones, they are not read together.
        while packed is not None and (not packed.rows or packed.end <= wanted):
            if stays and self._is_behind_segment():
                return None
            packed = self._read_packed()
        return packed

    def _is_behind_segment(self) -> bool:
        """Whether a sealed segment is open, and nothing of it is left."""
        place = self.place
        return place is not None and self.offset >= self.limits(place)[1] and not place.growing

    def _read_packed(self) -> Packed | None:
        """What lies at the cursor, with rows or without."""
        if self.place is None:
            if self.offset >= self.partition.end:
                return None
            self.open()
        place = self.place
        assert place is not None
        limit, end = self.limits(place)
        if self.offset >= end:
            if place.growing:
                return None
            self.close()
            return self._read_packed()
        try:
            begin = place.fd, place.header, self.position
            packed = read_packed(*begin, limit, self.first, self.most)
        except SegmentFlawError as flaw:
            raise self._damaged(flaw, place) from None
        self.began, self.position = self.position, packed.next
        self.first = self.offset = packed.end
        return packed

    def unpack(self, packed: Packed, fields: list[int] | None) -> pa.RecordBatch:
        """Rows of what was read last: numbers of the stored columns that are wanted, None = all."""
        assert self.place is not None
        try:
            return unpack(packed, self.began, fields)
        except SegmentFlawError as flaw:
            raise self._damaged(flaw, self.place) from None

    def limits(self, place: OpenSegment) -> tuple[int, int]:
        """How far the open segment may be read: position and offset."""
        if place.growing:
            with self.partition.changed:
                if place.index is self.partition.active.index:
                    return self.partition.visible, self.partition.end
            place.growing = False  # it was sealed meanwhile
        return place.index.size, place.index.end

    def here(self) -> OpenSegment | None:
        """The segment that holds the offset, open; None at the partition's end."""
        if self.place is not None:
            _, end = self.limits(self.place)
            if self.offset < end or self.place.growing:
                return self.place
            self.close()
        return self.open() if self.offset < self.partition.end else None

    def pass_to(self, offset: int) -> None:
        """Goes on at an offset further on."""
        self.close()
        self.offset = offset

    def open(self) -> OpenSegment:
        """Opens the segment that holds the offset, and finds the batch."""
        partition = self.partition
        if partition.archive is not None and self.offset < partition.kept:
            return self._open_recalled(partition.archive)
        with partition.changed:
            sealed = next((each for each in partition.sealed if each.end > self.offset), None)
            if partition.closed:
                raise StreamError(f"stream {partition.stream!r} is closed or deleted")
            if self.offset < partition.earliest:
                raise self._out_of_range()
            # Under the lock: no merged copy takes the file's place, and no rollback shortens the index.
            if sealed is None:
                active = partition.active
                fd = os.open(active.path, os.O_RDONLY | os.O_CLOEXEC)
                header = partition.header
                place = OpenSegment(fd, active.path, active.index, header, growing=True)
                found = place.index.find(self.offset)
            else:
                fd = os.open(sealed.path, os.O_RDONLY | os.O_CLOEXEC)
                place = OpenSegment(fd, sealed.path, Index(0, 0), partition.header, growing=False)
        self.place = place
        if sealed is not None:
            place.index = self._index(place, sealed)
            found = place.index.find(self.offset)
        assert found is not None
        self.position, self.first = found
        return place

    def _open_recalled(self, archive: "PartitionArchive") -> OpenSegment:
        """Opens a segment that the archive has, once it is here."""
        if self.partition.closed:
            raise StreamError(f"stream {self.partition.stream!r} is closed or deleted")
        if self.offset < self.partition.earliest:
            raise self._out_of_range()
        while True:
            found = archive.recall(self.offset)
            try:
                fd = os.open(found.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # others took its place just now
            break
        header = self.partition.header
        self.place = place = OpenSegment(fd, found.path, Index(0, 0), header, growing=False)
        sealed = Sealed(found.path, found.base, 0, found.size, 0, 0, merged=True)
        place.index = self._index(place, sealed)
        at = place.index.find(self.offset)
        assert at is not None
        self.position, self.first = at
        return place

    def _index(self, place: OpenSegment, sealed: Sealed) -> Index:
        """The index of a sealed segment: as it was saved, or made anew."""
        saved = load(index_path(sealed.path), sealed.base, sealed.size - len(END))
        if saved is not None:
            return saved
        # A merged copy takes its place just now, or saving the index failed.
        try:
            return examine(place.fd, sealed.path, sealed.base, self.partition.header)
        except DamagedError as damage:
            self.partition.note(damage)
            raise

    def _damaged(self, flaw: SegmentFlawError, place: OpenSegment) -> DamagedError:
        damage = flaw.damage(place.path)
        self.partition.note(damage)
        return damage

    def _out_of_range(self) -> OutOfRangeError:
        partition = self.partition
        return OutOfRangeError(
            partition.stream, partition.number, self.offset, partition.earliest, partition.end
        )


class LogReader:
    """What is read of a partition: which columns, which topics (see `Projection`).

    Args:
        partition: what is read.
        columns: those that are wanted; None = all.
        topic_filter: a filter of topics; None = all.
        cursor: what moves in this kind of partition.
        typed: the typed columns of its stream.
        where: what is to hold of rows besides.

    Raises:
        StreamError: there is no such column, the filter is none, or a condition cannot be.
    """

    def __init__(
        self,
        partition: Extent,
        columns: Sequence[str] | None = None,
        topic_filter: str | None = None,
        cursor: Callable[[Any, int], Cursor] = Cursor,
        typed: Sequence[TypedColumn] = (),
        where: Sequence[Condition] = (),
    ) -> None:
        self.partition = partition
        self.cursor = cursor
        self.projection = Projection(columns, topic_filter, typed, where)

    def read_packed(self, start: int, end: int | None = None) -> Iterator[PackedChunk]:
        """`read`, but the batches come as they lie in the segment wherever all their rows match.

        That leaves decompressing to who asked, and sends less. It yields nothing if nothing matches.
        """
        partition = self.partition
        with self.cursor(partition, start) as cursor:
            latest = partition.end
            end = latest if end is None else end
            if not start <= end <= latest:
                raise OutOfRangeError(partition.stream, partition.number, end, start, latest)
            while cursor.offset < end:
                at = cursor.offset
                beside = self._beside(cursor, end)
                if beside is not None:
                    for span in portions(beside, SPAN_BYTES):
                        found = self._chunk(span.rows, span.offset, span.end, None).rows
                        if found.num_rows:
                            sizes = found.num_rows, span.offset, span.end
                            yield PackedChunk(as_stream(found), 0, *sizes)
                    continue
                packed = cursor.read_packed(stays=True)
                if packed is None and cursor.offset > at:
                    continue  # the next segment may have them by topic
                if packed is None or packed.offset >= end:
                    return  # only batches without rows were left
                skip = max(0, at - packed.offset)
                first = packed.offset + skip
                following = min(packed.end, end)
                count = following - first
                chunk = PackedChunk(packed.stream, skip, count, first, following)
                if not packed.compacted and self.matches_all(cursor, packed, skip, count):
                    yield chunk
                    continue
                rows = cursor.unpack(packed, self.projection.fields)
                rows, first = within(rows, packed.offset, at, end)
                found = self._chunk(rows, first, following, None).rows
                if found.num_rows:
                    yield chunk._replace(stream=as_stream(found), skip=0, rows=found.num_rows)

    def matches_all(self, cursor: Cursor, packed: Packed, skip: int, count: int) -> bool:
        """Whether all of some rows that were read last are wanted."""
        wanted = self.projection.filter
        if wanted is None:
            return True
        topics = cursor.unpack(packed, [_TOPIC]).column(0).slice(skip, count)
        mask = wanted.mask(topics)
        return mask is None or bool(pc.all(mask).as_py())

    def read(
        self,
        start: int,
        end: int | None = None,
        limit: int | None = None,
        most: int = SPAN_BYTES,
    ) -> Iterator[Chunk]:
        """Reads the rows from offset `start` up to `end`, or to the present end of the partition.

        There is at least one chunk, and the last one's `next` is `end`, unless `limit` rows came
        first. A chunk ends with the batch that brings it to `most` bytes in memory.

        Raises:
            OutOfRangeError: offsets that the partition has no longer, or not yet.
            DamagedError: a batch is not what was written.
        """
        partition = self.partition
        with self.cursor(partition, start) as cursor:
            latest = partition.end
            end = latest if end is None else end
            if not start <= end <= latest:
                raise OutOfRangeError(partition.stream, partition.number, end, start, latest)
            cursor.most = min(most, SPAN_BYTES)
            done = start == end or limit == 0
            if done:
                yield Chunk(self.projection.empty(), start)
            if done:
                return
            for span in self._spans(cursor, end, most, limit):
                rows, offset = within(span.rows, span.offset, start, end)
                chunk = self._chunk(rows, offset, min(span.end, end), limit)
                if limit is not None:
                    limit -= chunk.rows.num_rows
                done = chunk.next >= end or limit == 0
                if done or chunk.rows.num_rows:
                    yield chunk
                if done:
                    return
            yield Chunk(self.projection.empty(), end)  # only batches without rows were left

    def _spans(self, cursor: Cursor, end: int, most: int, limit: int | None) -> Iterator[BatchSpan]:
        """Rows up to an offset: all that are wanted, and others perhaps."""
        while cursor.offset < end:
            beside = self._beside(cursor, end, limit)
            if beside is not None:
                yield from portions(beside, most)
                continue
            at = cursor.offset
            span = cursor.read(self.projection.fields, stays=True)
            if span is None and cursor.offset > at:
                continue  # the next segment may have them by topic
            if span is None or span.offset >= end:
                return
            yield span

    def _beside(self, cursor: Cursor, end: int, limit: int | None = None) -> BatchSpan | None:
        """What the segment at the cursor has of the wanted topics up to an offset, if what lies beside it helps.

        The cursor is behind it then. `limit`: rows that are enough.
        """
        place = cursor.here() if self.projection.asks_topics else None
        found = None if place is None else beside(place, self.projection, cursor.offset, end, limit)
        if found is not None:
            cursor.pass_to(found.end)
        return found

    def _chunk(self, rows: pa.RecordBatch, offset: int, following: int, limit: int | None) -> Chunk:
        """The wanted columns of the wanted rows, which begin at an offset, and reach up to another."""
        partition = self.partition
        result, offsets = self.projection.apply(rows, partition.stream, partition.number, offset)
        if limit is not None and result.num_rows > limit:
            result = result.slice(0, limit)
            following = offsets[limit - 1].as_py() + 1
        return Chunk(result, following)

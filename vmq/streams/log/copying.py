"""Segments that are written anew, beside those whose rows they have: with larger batches, or with fewer rows."""

from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from vmq.streams.log.columns import offsets_of
from vmq.streams.log.frame import BATCH_BYTES, BATCH_ROWS, END, encode
from vmq.streams.log.index import Index
from vmq.streams.log.segment import BatchSpan, Header, Sealed, SegmentFlawError, read_span


def spans_of(
    header: Header, run: Sequence[Sealed], fields: list[int] | None = None
) -> Iterator[BatchSpan]:
    """The rows of sealed neighbours, some MiB at a time; `fields`: numbers of the stored columns that are wanted.

    Raises:
        DamagedError: a segment is not what was written.
        OSError: the disk.
    """
    for sealed in run:
        with sealed.path.open("rb") as source:
            fd = source.fileno()
            position, offset, limit = header.size_in(fd) or 0, sealed.base, sealed.size - len(END)
            own = header.of(fd)
            while position < limit:
                try:
                    span = read_span(fd, own, position, limit, offset, fields)
                except SegmentFlawError as flaw:
                    raise flaw.damage(sealed.path) from None
                yield span
                position, offset = span.next, span.end


def is_compacted(header: Header, run: Sequence[Sealed]) -> bool:
    """Whether one of some segments is. Raises `OSError`."""
    for sealed in run:
        with sealed.path.open("rb") as source:
            if header.of(source.fileno()).is_compacted:
                return True
    return False


class SegmentCopy:
    """A segment on its way into a file.

    Args:
        file: empty.
        header: what it begins with. Of a compacted one rows may be missing.
        base: its first offset.
        options: how batches are written.
        receipt: what they are to name.
        index: of what is in the file already; None: nothing is.
        time: of a batch of which no row is left, in microseconds: its age is that of what it was.
    """

    def __init__(
        self,
        file: BinaryIO,
        header: Header,
        base: int,
        options: Any,
        receipt: str = "",
        index: Index | None = None,
        time: int = 0,
    ) -> None:
        self._file = file
        self._time = time
        self._header = header
        self._options = options
        self._receipt = receipt
        if index is None:
            index = Index(base, len(header.raw))
            index.merged = True
            file.write(header.raw)
        self.index = index
        self.rows = 0
        self._gathered: list[pa.RecordBatch] = []
        self._count = self._size = 0
        self._end = index.end

    def add(self, rows: pa.RecordBatch, offset: int, end: int) -> bool:
        """Takes the next rows, which begin at an offset, or bring theirs, and reach up to another.

        Returns whether there are enough for a batch: then `flush` it.
        """
        if self._header.is_compacted and rows.schema.names[-1] != "offset":
            rows = rows.append_column("offset", offsets_of(rows, offset))
        self._gathered.append(rows.replace_schema_metadata(self._header.schema.metadata))
        self._count += rows.num_rows
        self._size += rows.nbytes
        self._end = end
        return self._count >= BATCH_ROWS or self._size >= BATCH_BYTES

    def flush(self, told: str = "") -> None:
        """Writes what was taken as a batch. `told`: what its group says of it."""
        if not self._gathered:
            return
        rows = pa.concat_batches(self._gathered).cast(self._header.schema)
        self._gathered = []
        self._count = self._size = 0
        self._write(rows, self._end, told)

    def reach(self, end: int) -> None:
        """What was taken reaches up to an offset, though there are no rows."""
        if self._end < end or self.index.end < end:
            empty = pa.RecordBatch.from_pylist([], schema=self._header.schema)
            self.add(empty, self._end, end)
            self.flush()

    def control(self, told: str) -> None:
        """Writes a batch of the group's own, which takes one offset."""
        empty = pa.RecordBatch.from_pylist([], schema=self._header.schema)
        self._end = self.index.end + 1
        self._write(empty, self._end, told)

    def _write(self, rows: pa.RecordBatch, end: int, told: str) -> None:
        index = self.index
        newest = self._time
        if rows.num_rows:
            newest = max(0, pc.max(rows.column("timestamp").cast(pa.int64())).as_py() or 0)
        span = end - index.end
        head, body = encode(
            rows,
            index.end,
            newest,
            len(self._header.raw),
            self._options,
            self._receipt,
            told,
            span if self._header.is_compacted else 0,
        )
        self._file.write(head)
        self._file.write(body)
        size = len(head) + len(body)
        index.add(index.end, span, rows.num_rows, size, newest, self._receipt)
        self.rows += rows.num_rows

    def finish(self) -> Index:
        """The end of the segment."""
        self._file.write(END)
        return self.index

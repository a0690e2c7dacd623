"""The rows of a sealed segment once more, ordered by topic, for readers of few topics.

Where devices report in turn each batch of a segment has every topic, and whoever wants one of a thousand unpacks all
of them. Here the rows of a topic lie together, in blocks that are compressed by themselves, behind one another in the
order of their offsets. A directory behind the blocks says how many rows each topic has, so a filter with wildcards is
asked once a topic.

The file is an Arrow IPC stream of the stored columns but the topic, with their offsets; its batches (blocks) are
checked as those of a segment are (`frame`), their "offset" is the number of their first row. Behind its end follow the
directory, which is two streams, of topics and of blocks, and a footer that says where it begins, with a checksum of it.
Where ordering brings nothing the file has the topics alone, or nothing: so it is not tried again.

The segment stays the truth: the file can be made anew at any time, and its name says of what it was made. One that
cannot be read is as good as none, and deleted.
"""

import os
import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import crc32c
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from vmq.streams.log.frame import BadFrameError, check, parse
from vmq.streams.log.schema import COMPACTED, STORED

SUFFIX: Final = ".ordered"

COLUMNS: Final = COMPACTED.remove(COMPACTED.get_field_index("topic"))
_HEAD: Final = COLUMNS.serialize().to_pybytes()
TOPICS: Final = pa.schema([("topic", pa.string()), ("rows", pa.int64())])
BLOCKS: Final = pa.schema([("position", pa.int64()), ("row", pa.int64())])
#: Where the directory begins, its length and its CRC-32C.
FOOTER: Final = struct.Struct("<qqI4x8s")
MAGIC: Final = b"vmqtopic"


class OrderedFlawError(Exception):
    """The file is not what was written."""


class OrderedBlock(NamedTuple):
    """Bytes `position` to `limit` of the file hold rows `first` to before `end`."""

    position: int
    limit: int
    first: int
    end: int


class Selected(NamedTuple):
    """Which rows are wanted: runs of row numbers, each from one up to another, and the blocks that hold them."""

    runs: list[tuple[int, int]]
    blocks: list[OrderedBlock]
    rows: int

    @property
    def unpacked(self) -> int:
        """Rows of the blocks."""
        return sum(each.end - each.first for each in self.blocks)

    @property
    def size(self) -> int:
        """Bytes of the blocks."""
        return sum(each.limit - each.position for each in self.blocks)


def path_of(segment: Path, size: int, inode: int) -> Path:
    """Where the ordered rows of a segment lie: of that file, as another may take its place."""
    return segment.with_name(f"{segment.stem}.{size:x}-{inode:x}{SUFFIX}")


class OrderedFile:
    """Such a file, open: it may be deleted meanwhile.

    Raises:
        OSError: there is none.
        OrderedFlawError: it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            topics, blocks = self._directory()
        except BaseException:
            self.close()
            raise
        #: In order; empty: nothing is known of the rows.
        self.topics: pa.StringArray = topics.column("topic")
        self._counts: pa.Int64Array = topics.column("rows")
        #: Behind the last row of each topic.
        self._ends = numbers_of(pc.cumulative_sum(self._counts))
        self._positions = array("q", blocks.column("position").to_pylist())
        self._rows = array("q", blocks.column("row").to_pylist())

    def __enter__(self) -> "OrderedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the file."""
        os.close(self._fd)

    @property
    def rows(self) -> int:
        """Those of the segment."""
        return self._ends[-1] if len(self.topics) else 0

    @property
    def blocks(self) -> list[OrderedBlock]:
        """All of them."""
        return [self._block(number) for number in range(len(self._rows) - 1)]

    def count(self, mask: pa.BooleanArray) -> int:
        """How many rows some topics have."""
        return pc.sum(self._counts.filter(mask)).as_py() or 0

    def select(self, mask: pa.BooleanArray) -> Selected | None:
        """The rows of some topics; None: where they are is not here."""
        rows = self.count(mask)
        if rows and not self._rows:
            return None
        runs: list[tuple[int, int]] = []
        for number in pc.indices_nonzero(mask).to_pylist():
            first = self._ends[number - 1] if number else 0
            if runs and runs[-1][1] == first:
                first = runs.pop()[0]
            runs.append((first, self._ends[number]))
        numbers = sorted(
            {
                number
                for first, end in runs
                for number in range(
                    bisect_right(self._rows, first) - 1, bisect_left(self._rows, end)
                )
            }
        )
        return Selected(runs, [self._block(number) for number in numbers], rows)

    def read(
        self, wanted: Selected, fields: list[int] | None, start: int, end: int
    ) -> pa.RecordBatch:
        """The rows of a selection that have offsets from `start` to before `end`, in the order of these.

        `fields`: numbers of the stored columns that are wanted, None = all. Offsets come behind them.

        Raises:
            OrderedFlawError: the file is damaged.
            OSError: the disk.
        """
        names = [STORED.names[each] for each in (range(len(STORED)) if fields is None else fields)]
        found = [
            _within(rows, start, end)
            for block in wanted.blocks
            for rows in self._pieces(block, wanted.runs, names)
        ]
        if not found:
            schema = pa.schema([COMPACTED.field(name) for name in (*names, "offset")])
            return pa.RecordBatch.from_pylist([], schema=schema)
        rows = found[0] if len(found) == 1 else pa.concat_batches(found)
        if len(wanted.runs) == 1 and self._is_one_topic(wanted.runs[0]):
            return rows
        return rows.take(pc.array_sort_indices(rows.column("offset")))

    def bounds(self, block: OrderedBlock) -> tuple[str, str]:
        """The first and the last topic of a block."""
        first = bisect_right(self._ends, block.first)
        last = bisect_right(self._ends, block.end - 1)
        return self.topics[first].as_py(), self.topics[last].as_py()

    def _is_one_topic(self, run: tuple[int, int]) -> bool:
        return bisect_right(self._ends, run[0]) == bisect_right(self._ends, run[1] - 1)

    def _block(self, number: int) -> OrderedBlock:
        positions, rows = self._positions, self._rows
        return OrderedBlock(
            positions[number], positions[number + 1], rows[number], rows[number + 1]
        )

    def _pieces(
        self, block: OrderedBlock, runs: list[tuple[int, int]], names: list[str]
    ) -> Iterator[pa.RecordBatch]:
        """What a block has of some runs."""
        rows = self._unpacked(block, [each for each in (*names, "offset") if each != "topic"])
        at = max(0, bisect_right(runs, (block.first, block.end)) - 1)
        for run in runs[at:]:
            first, end = max(run[0], block.first), min(run[1], block.end)
            if first >= block.end:
                return
            if first >= end:
                continue
            piece = rows.slice(first - block.first, end - first)
            columns = dict(zip(piece.schema.names, piece.columns, strict=True))
            if "topic" in names:
                columns["topic"] = self._topics_of(first, end)
            yield pa.RecordBatch.from_arrays(
                [columns[name] for name in (*names, "offset")],
                schema=pa.schema([COMPACTED.field(name) for name in (*names, "offset")]),
            )

    def _topics_of(self, first: int, end: int) -> pa.StringArray:
        """The topics of some rows."""
        numbers = array("i")
        at = bisect_right(self._ends, first)
        while first < end:
            behind = min(end, self._ends[at])
            numbers.extend(array("i", [at]) * (behind - first))
            first, at = behind, at + 1
        return self.topics.take(
            pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
        )

    def _unpacked(self, block: OrderedBlock, names: list[str]) -> pa.RecordBatch:
        """Some columns of a block."""
        raw = self._read(block.position, block.limit - block.position)
        try:
            frame = parse(memoryview(raw), 0)
            if frame is None or frame.offset != block.first or frame.size != len(raw):
                raise OrderedFlawError("the directory leads to another block")
            check(memoryview(raw), 0, frame)
            wanted = sorted(COLUMNS.get_field_index(name) for name in names)
            options = ipc.IpcReadOptions(included_fields=wanted, use_threads=False)
            with ipc.open_stream(pa.py_buffer(_HEAD + raw), options=options) as reader:
                rows = reader.read_next_batch()
        except (BadFrameError, pa.ArrowException, StopIteration) as error:
            raise OrderedFlawError(str(error)) from None
        if rows.num_rows != block.end - block.first or set(rows.schema.names) != set(names):
            raise OrderedFlawError("the block has other rows, or columns")
        return rows

    def _directory(self) -> list[pa.RecordBatch]:
        """Topics and blocks."""
        size = os.fstat(self._fd).st_size
        footer = self._read(max(0, size - FOOTER.size), FOOTER.size)
        position, length, crc, magic = FOOTER.unpack(footer)
        if magic != MAGIC or position < 0 or position + length + FOOTER.size != size:
            raise OrderedFlawError("it has no footer")
        raw = self._read(position, length)
        if crc32c.crc32c(raw) != crc:
            raise OrderedFlawError("the checksum of its directory differs")
        source = pa.BufferReader(raw)
        found: list[pa.RecordBatch] = []
        for _ in range(2):
            with ipc.open_stream(source) as reader:
                found += list(reader)
        return found

    def _read(self, position: int, length: int) -> bytes:
        raw = os.pread(self._fd, length, position)
        if len(raw) != length:
            raise OrderedFlawError("it is shorter than it was")
        return raw


def _within(rows: pa.RecordBatch, start: int, end: int) -> pa.RecordBatch:
    offsets = rows.column("offset")
    kept = pc.and_(pc.greater_equal(offsets, start), pc.less(offsets, end))
    return rows.filter(kept)


def numbers_of(values: pa.Int64Array) -> memoryview:
    """64-bit numbers, none of them null, for what bisects."""
    if not len(values):
        return memoryview(array("q"))
    buffer = values.buffers()[1]
    return memoryview(buffer).cast("b").cast("q")[values.offset : values.offset + len(values)]

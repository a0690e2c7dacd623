"""Makes the ordered rows of a sealed segment, in bounded memory.

The topics decide where each row comes; then the rows are dealt out to parts of the order, through a file that has no
name, and each part is put in order by itself.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Final, NamedTuple

import crc32c
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from vmq.streams.log.columns import offsets_of
from vmq.streams.log.copying import spans_of
from vmq.streams.log.frame import END, encode
from vmq.streams.log.ordered.file import BLOCKS, COLUMNS, FOOTER, MAGIC, TOPICS, numbers_of
from vmq.streams.log.schema import STORED
from vmq.streams.log.segment import Header, Sealed

#: Rows of a block, and its bytes in memory: what is unpacked at once.
BLOCK_ROWS: Final = 2048
BLOCK_BYTES: Final = 512 << 10
#: Bytes of rows that are put in order at a time.
PART_BYTES: Final = 16 << 20
#: Fewer topics are not worth a copy of their rows.
LEAST_TOPICS: Final = 8
#: Bytes of topics that a directory may have, and rows of a segment: all of them are in memory at once.
MOST_TOPIC_BYTES: Final = 16 << 20
MOST_ROWS: Final = 1 << 24
#: What a row takes beside its payload, about.
_ROW_BYTES: Final = 96
_TOPIC: Final = STORED.get_field_index("topic")
_PAYLOAD: Final = STORED.get_field_index("payload")
#: Where a row comes in the order.
_PLACE: Final = "place"


class _Survey(NamedTuple):
    """The topics of a segment in order, with their rows; where each row comes, and the bytes up to each place."""

    topics: pa.StringArray
    counts: pa.Int64Array
    places: pa.UInt64Array
    sizes: memoryview


def make(header: Header, sealed: Sealed, target: Path) -> None:
    """Writes the ordered rows of a segment, or that there are none.

    Raises:
        DamagedError: the segment is not what was written.
        OSError: the disk.
    """
    survey = _survey(header, sealed)
    work = target.with_name(target.name + ".tmp")
    try:
        with work.open("wb") as file:
            file.write(COLUMNS.serialize().to_pybytes())
            blocks: list[tuple[int, int]] = []
            if survey is not None and len(survey.topics) >= LEAST_TOPICS:
                blocks = _write_blocks(file, header, sealed, survey)
            file.write(END)
            _write_directory(file, survey, blocks)
        work.replace(target)
    except BaseException:
        work.unlink(missing_ok=True)
        raise


def _survey(header: Header, sealed: Sealed) -> _Survey | None:
    """Looks at the topics; None: they are too many."""
    numbers: dict[str, int] = {}
    found: list[pa.Array] = []
    lengths: list[pa.Array] = []
    rows = size = 0
    for span in spans_of(header, [sealed], [_TOPIC, _PAYLOAD]):
        encoded = span.rows.column("topic").dictionary_encode()
        names = encoded.dictionary.to_pylist()
        for name in names:
            if name not in numbers:
                numbers[name] = len(numbers)
                size += len(name.encode())
        rows += span.rows.num_rows
        if size > MOST_TOPIC_BYTES or rows > MOST_ROWS:
            return None
        own = pa.array([numbers[name] for name in names], pa.int32())
        found.append(own.take(encoded.indices))
        lengths.append(pc.binary_length(span.rows.column("payload")))
    topics = pa.array(numbers, pa.string())
    in_order = pc.array_sort_indices(topics)
    # Of a permutation, this is the inverse.
    ranks = pc.array_sort_indices(in_order).take(_joined(found))
    order = pc.array_sort_indices(ranks)  # stable: rows of a topic stay in the order of offsets
    counted = pc.value_counts(ranks)
    counts = counted.field(1).take(pc.array_sort_indices(counted.field(0)))
    sizes = pc.add(_joined(lengths).take(order).cast(pa.int64()), _ROW_BYTES)
    up_to = numbers_of(pc.cumulative_sum(sizes))
    return _Survey(topics.take(in_order), counts, pc.array_sort_indices(order), up_to)


def _joined(found: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays(found) if found else pa.array([], pa.int32())


def _write_blocks(
    file: BinaryIO, header: Header, sealed: Sealed, survey: _Survey
) -> list[tuple[int, int]]:
    """Writes the rows in order; returns position and first row of each block, and of what follows them."""
    options = ipc.IpcWriteOptions(compression=pa.Codec("zstd", 1), use_threads=False)
    position = schema_size = file.tell()
    blocks: list[tuple[int, int]] = []
    count, row = len(survey.places), 0
    cuts: list[int] = []
    while not cuts or cuts[-1] < count:
        cuts.append(_cut(survey.sizes, cuts[-1] if cuts else 0, PART_BYTES, count))
    with TemporaryFile(dir=Path(file.name).parent) as spill:
        pieces = _deal(spill, header, sealed, survey.places, cuts)
        for end, parts in zip(cuts, pieces, strict=True):
            part = _ordered(spill, parts)
            first = row
            while row < end:
                behind = _cut(survey.sizes, row, BLOCK_BYTES, min(end, row + BLOCK_ROWS))
                block = part.slice(row - first, behind - row)
                blocks.append((position, row))
                for each in encode(block, row, 0, schema_size, options):
                    position += file.write(each)
                row = behind
    blocks.append((position, row))
    return blocks


def _cut(sizes: memoryview, row: int, size: int, end: int) -> int:
    """Up to where rows from one on have so many bytes: one at least, and not behind `end`."""
    before = sizes[row - 1] if row else 0
    return min(end, max(row + 1, bisect_right(sizes, before + size, row, end)))


def _deal(
    spill: BinaryIO, header: Header, sealed: Sealed, places: pa.UInt64Array, cuts: Sequence[int]
) -> list[list[tuple[int, int]]]:
    """Deals the rows out to the parts that end at some places: for each, position and length of its pieces."""
    found: list[list[tuple[int, int]]] = [[] for _ in cuts]
    options = ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    at = position = 0
    for span in spans_of(header, [sealed]):
        here = places.slice(at, span.rows.num_rows)
        at += span.rows.num_rows
        rows = span.rows
        if "offset" not in rows.schema.names:
            rows = rows.append_column("offset", offsets_of(rows, span.offset))
        rows = rows.select(COLUMNS.names).append_column(_PLACE, here)
        rows = rows.take(pc.array_sort_indices(here))
        own = array("Q", rows.column(_PLACE).to_pylist())
        first = 0
        for part, cut in zip(found, cuts, strict=True):
            behind = bisect_left(own, cut, first)
            if behind > first:
                sink = pa.BufferOutputStream()
                with ipc.new_stream(sink, rows.schema, options=options) as writer:
                    writer.write_batch(rows.slice(first, behind - first))
                length = spill.write(sink.getvalue())
                part.append((position, length))
                position += length
            first = behind
    return found


def _ordered(spill: BinaryIO, pieces: Sequence[tuple[int, int]]) -> pa.RecordBatch:
    """The rows of a part in their order."""
    found: list[pa.RecordBatch] = []
    for position, length in pieces:
        spill.seek(position)
        with ipc.open_stream(spill.read(length)) as reader:
            found += list(reader)
    rows = pa.concat_batches(found)
    ordered = rows.select(COLUMNS.names).take(pc.array_sort_indices(rows.column(_PLACE)))
    return pa.RecordBatch.from_arrays(ordered.columns, schema=COLUMNS)


def _write_directory(
    file: BinaryIO, survey: _Survey | None, blocks: Sequence[tuple[int, int]]
) -> None:
    columns = [[], []] if survey is None else [survey.topics, survey.counts]
    topics = pa.record_batch(columns, schema=TOPICS)
    places = pa.record_batch([[each[at] for each in blocks] for at in (0, 1)], schema=BLOCKS)
    sink = pa.BufferOutputStream()
    options = ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    for batch in (topics, places):
        with ipc.new_stream(sink, batch.schema, options=options) as writer:
            writer.write_batch(batch)
    raw = sink.getvalue().to_pybytes()
    position = file.tell()
    file.write(raw + FOOTER.pack(position, len(raw), crc32c.crc32c(raw), MAGIC))

"""Rows of streams between nodes, as Arrow IPC streams. Only nodes that keep streams need this."""

from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from vmq.streams.log.schema import COMPACTED, STORED

EMPTY = pa.RecordBatch.from_pylist([], schema=STORED)

_OPTIONS = ipc.IpcWriteOptions(compression="lz4")


class RowsError(ValueError):
    """What came are no rows of a stream: the fault is remote."""


def pack(rows: pa.RecordBatch) -> bytes:
    """Rows of the stored columns as bytes, with their offsets if they bring them."""
    sink = pa.BufferOutputStream()
    plain = rows.replace_schema_metadata(None)
    with ipc.new_stream(sink, plain.schema, options=_OPTIONS) as writer:
        writer.write_batch(plain)
    return bytes(sink.getvalue())


def unpack(raw: bytes, end: int = -1) -> pa.RecordBatch:
    """Rows out of what `pack` made of them, in one batch: with their offsets only if they keep them, up to an `end`.

    Raises:
        RowsError: they are none, or their offsets do not rise up to there: the fault is remote.
    """
    rows = _read(raw)
    if end < 0:
        return rows.select(STORED.names)
    if rows.schema.names == STORED.names:
        if rows.num_rows > end:
            raise RowsError(f"{rows.num_rows} rows before offset {end}")
    else:
        offsets = rows.column("offset")
        if offsets.null_count or any(
            one >= other for one, other in pairwise([-1, *offsets.to_pylist(), end])
        ):
            raise RowsError(f"offsets that do not rise up to {end}")
    return rows


def _read(raw: bytes) -> pa.RecordBatch:
    try:
        with ipc.open_stream(raw) as reader:
            if not any(map(reader.schema.equals, (STORED, COMPACTED))):
                raise RowsError(f"columns {', '.join(reader.schema.names):.200}")
            table = reader.read_all()
        table.validate(full=True)
        batches = table.combine_chunks().to_batches()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RowsError(f"no rows: {error}") from None
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=reader.schema)


def newest_of(rows: pa.RecordBatch) -> int:
    """The highest timestamp, in microseconds."""
    return int(pc.max(rows.column("timestamp").cast(pa.int64())).as_py() or 0)

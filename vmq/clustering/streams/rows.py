"""Rows of streams between nodes, as Arrow IPC streams. Only nodes that keep streams need this."""

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from vmq.streams.log.schema import STORED

EMPTY = pa.RecordBatch.from_pylist([], schema=STORED)

_OPTIONS = ipc.IpcWriteOptions(compression="lz4")


class RowsError(ValueError):
    """What came are no rows of a stream: the fault is remote."""


def pack(rows: pa.RecordBatch) -> bytes:
    """Rows of the stored columns as bytes."""
    sink = pa.BufferOutputStream()
    plain = rows.replace_schema_metadata(None)
    with ipc.new_stream(sink, plain.schema, options=_OPTIONS) as writer:
        writer.write_batch(plain)
    return bytes(sink.getvalue())


def unpack(raw: bytes) -> pa.RecordBatch:
    """Rows out of what `pack` made of them, in one batch; `EMPTY` where there are none.

    Raises:
        RowsError: they are none.
    """
    try:
        with ipc.open_stream(raw) as reader:
            if not reader.schema.equals(STORED):
                raise RowsError(f"columns {', '.join(reader.schema.names):.200}")
            table = reader.read_all()
        table.validate(full=True)
        batches = table.combine_chunks().to_batches()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RowsError(f"no rows: {error}") from None
    return batches[0] if batches else EMPTY


def newest_of(rows: pa.RecordBatch) -> int:
    """The highest timestamp, in microseconds."""
    return int(pc.max(rows.column("timestamp").cast(pa.int64())).as_py() or 0)

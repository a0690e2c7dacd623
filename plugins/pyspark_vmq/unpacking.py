"""From what the broker sends to the columns of a Spark schema, without a loop over rows.

The broker sends batches as they lie in its segments: an Arrow IPC stream each, compressed, with the stored
columns. Decoding them here spares it the work, and the network most of the bytes.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark_vmq.planning import Range

if TYPE_CHECKING:
    import pyarrow as pa

#: A column that is worth fetching with all the others. Without it the broker had better choose.
BULK = "payload"

_ramps: "list[pa.Array]" = []


def arrow_schema(columns: Mapping[str, bool]) -> "pa.Schema":
    """The schema that Spark expects of batches with these columns; True: may be null."""
    import pyarrow as pa

    types = {
        "topic": pa.string(),
        "payload": pa.binary(),
        "qos": pa.int32(),
        "retain": pa.bool_(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "client_id": pa.string(),
        "key": pa.binary(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())])),
        "stream": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }
    return pa.schema(
        [pa.field(name, types[name], nullable=nullable) for name, nullable in columns.items()]
    )


def unpacked(
    batch: "pa.RecordBatch", told: Mapping[str, Any], wanted: Range, schema: "pa.Schema"
) -> "pa.RecordBatch":
    """The rows of a batch of a packed get, in the columns of a schema."""
    import pyarrow as pa
    from pyarrow import ipc

    stream = only_value(batch.column(0))
    with ipc.open_stream(stream) as reader:
        stored = reader.schema.names
    there = [name for name in stored if name in schema.names]
    fields = [stored.index(name) for name in there]
    options = ipc.IpcReadOptions(included_fields=fields, use_threads=False)
    with ipc.open_stream(stream, options=options) as reader:
        (rows,) = reader.read_all().combine_chunks().to_batches()
    count = told["rows"]
    rows = rows.slice(told["skip"], count)
    columns = dict(zip(there, rows.columns, strict=True))
    if "offset" not in columns:
        columns["offset"] = _consecutive(told["first"], count)
    for name, value in (("stream", wanted.stream), ("partition", wanted.partition)):
        if name in schema.names:
            columns[name] = pa.repeat(pa.scalar(value, schema.field(name).type), count)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def only_value(column: "pa.BinaryArray") -> "pa.Buffer":
    """The bytes of a column of one value; taking it by its index would copy them."""
    _, ends, data = column.buffers()
    start, end = memoryview(ends).cast("i")[column.offset : column.offset + 2]
    return data.slice(start, end - start)


def _consecutive(first: int, count: int) -> "pa.Array":
    """So many numbers from the first on."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not _ramps or len(_ramps[0]) < count:
        _ramps[:] = [pa.array(range(max(count, 1 << 15)), pa.int64())]
    return pc.add(_ramps[0].slice(0, count), pa.scalar(first, pa.int64()))

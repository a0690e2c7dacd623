"""From what the broker sends to the columns of a Spark schema, without a loop over rows.

The broker sends batches as they lie in its segments: an Arrow IPC stream each, compressed, with the stored
columns. Decoding them here spares it the work, and the network most of the bytes.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark_vmq.planning import Range

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import ipc

#: A column that is worth fetching with all the others. Without it the broker had better choose.
BULK = "payload"

#: Rows for which a column is made at once where batches have fewer.
RAMP: Final = 1 << 15

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


class Unpacker:
    """Makes columns of a Spark schema out of the packed batches of one range."""

    def __init__(self, wanted: Range, schema: "pa.Schema") -> None:
        import pyarrow as pa

        self.schema = schema
        #: Columns that have one value in the whole range.
        self.same = {
            name: Repeated(pa.scalar(value, schema.field(name).type))
            for name, value in (("stream", wanted.stream), ("partition", wanted.partition))
            if name in schema.names
        }
        #: The stored columns that are wanted, and how to read them, by the schema in front of a batch.
        self.known: dict[bytes, tuple[list[str], Any]] = {}

    def unpacked(self, batch: "pa.RecordBatch", told: Mapping[str, Any]) -> "pa.RecordBatch":
        """The rows that count in a batch of a packed get."""
        import pyarrow as pa
        from pyarrow import ipc

        stream = only_value(batch.column(0))
        there, options = self._found_in(stream)
        with ipc.open_stream(stream, options=options) as reader:
            parts = list(reader)
        # Few large batches cost Spark less than many small ones.
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        count = told["rows"]
        if rows.num_rows != count:
            rows = rows.slice(told["skip"], count)
        columns = dict(zip(there, rows.columns, strict=True))
        if "offset" not in columns:
            columns["offset"] = _consecutive(told["first"], count)
        for name, repeated in self.same.items():
            columns[name] = repeated.times(count)
        return pa.RecordBatch.from_arrays(
            [columns[name] for name in self.schema.names], schema=self.schema
        )

    def _found_in(self, stream: "pa.Buffer") -> "tuple[list[str], ipc.IpcReadOptions]":
        """Which wanted columns a stream has. One partition's streams all begin with the same schema."""
        from pyarrow import ipc

        view = memoryview(stream)
        head = bytes(view[: 8 + int.from_bytes(view[4:8], "little")])
        found = self.known.get(head)
        if found is None:
            with ipc.open_stream(stream) as reader:
                stored = reader.schema.names
            there = [name for name in stored if name in self.schema.names]
            fields = [stored.index(name) for name in there]
            found = there, ipc.IpcReadOptions(included_fields=fields, use_threads=False)
            self.known[head] = found
        return found


class Repeated:
    """A value as a column, of which Spark gets as much as a batch needs."""

    def __init__(self, value: "pa.Scalar") -> None:
        import pyarrow as pa

        self.value = value
        self.column = pa.repeat(value, 0)

    def times(self, count: int) -> "pa.Array":
        """So many of them."""
        import pyarrow as pa

        if len(self.column) < count:
            self.column = pa.repeat(self.value, max(count, RAMP))
        return self.column.slice(0, count)


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
        _ramps[:] = [pa.array(range(max(count, RAMP)), pa.int64())]
    return pc.add(_ramps[0].slice(0, count), pa.scalar(first, pa.int64()))

"""From stored columns to those of a Spark schema, without a loop over rows.

The broker sends batches as they lie in its segments: an Arrow IPC stream each, compressed, with the stored
columns. Decoding them here spares it the work, and the network most of the bytes. Or they come from the segments
themselves (`pyspark_vmq.local`).
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark_vmq.planning import Range
from pyspark_vmq.topics import TopicFilter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import ipc

#: A column that is worth fetching with all the others. Without it the broker had better choose.
BULK = "payload"

NARROWEST: Final = "retain"

#: Rows for which a column is made at once where batches have fewer.
RAMP: Final = 1 << 15

_ramps: "list[pa.Array]" = []


def arrow_schema(columns: Mapping[str, bool | str]) -> "pa.Schema":
    """The schema that Spark expects of batches with these columns; see `pyspark_vmq.schema.Columns`."""
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
    typed = {
        "string": pa.string(),
        "boolean": pa.bool_(),
        "int": pa.int32(),
        "bigint": pa.int64(),
        "double": pa.float64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
    return pa.schema(
        [
            pa.field(name, typed[each])
            if isinstance(each, str)
            else pa.field(name, types[name], each)
            for name, each in columns.items()
        ]
    )


class Unpacker:
    """Makes columns of a Spark schema out of the stored batches of one range.

    Args:
        wanted: the range.
        schema: the columns.
        topic: a filter of topics that is still to be applied; empty = none.
    """

    def __init__(self, wanted: Range, schema: "pa.Schema", topic: str = "") -> None:
        import pyarrow as pa

        self.schema = schema
        self.topics = TopicFilter(topic) if topic else None
        #: What is to be decoded.
        self.needed = {*schema.names, "offset", *(["topic"] if topic else [])}
        #: Columns that have one value in the whole range.
        self.same = {
            name: Repeated(pa.scalar(value, schema.field(name).type))
            for name, value in (("stream", wanted.stream), ("partition", wanted.partition))
            if name in schema.names
        }
        #: How to read the needed columns, by the schema in front of a batch.
        self.known: dict[bytes, ipc.IpcReadOptions] = {}

    def unpacked(self, batch: "pa.RecordBatch", told: Mapping[str, Any]) -> "pa.RecordBatch":
        """The rows that count in a batch of a packed get."""
        from pyarrow import ipc

        stream = only_value(batch.column(0))
        with ipc.open_stream(stream, options=self.options_for(stream)) as reader:
            parts = list(reader)
        return self.rows_of(parts, told["skip"], told["rows"], told["first"])

    def rows_of(
        self, parts: "Sequence[pa.RecordBatch]", skip: int, count: int, first: int
    ) -> "pa.RecordBatch":
        """Some rows of consecutive batches, from a row on; `first` is its offset, if they do not bring their own."""
        import pyarrow as pa

        # Few large batches cost Spark less than many small ones.
        rows = parts[0] if len(parts) == 1 else pa.concat_batches(parts)
        if rows.num_rows != count:
            rows = rows.slice(skip, count)
        columns = dict(zip(rows.schema.names, rows.columns, strict=True))
        if "offset" in self.schema.names and "offset" not in columns:
            columns["offset"] = _consecutive(first, count)
        for name, repeated in self.same.items():
            columns[name] = repeated.times(count)
        found = pa.RecordBatch.from_arrays(
            [columns[name] for name in self.schema.names], schema=self.schema
        )
        mask = None if self.topics is None else self.topics.mask(columns["topic"])
        return found if mask is None else found.filter(mask)

    def options_for(self, stream: "pa.Buffer") -> "ipc.IpcReadOptions":
        """How to read the needed columns of a stream. One partition's streams all begin with the same schema."""
        from pyarrow import ipc

        view = memoryview(stream)
        head = bytes(view[: 8 + int.from_bytes(view[4:8], "little")])
        found = self.known.get(head)
        if found is None:
            with ipc.open_stream(stream) as reader:
                stored = reader.schema.names
            fields = [number for number, name in enumerate(stored) if name in self.needed]
            # None would be all. Where every column is made here, the narrowest one says how many rows there are.
            fields = fields or [stored.index(NARROWEST)]
            found = ipc.IpcReadOptions(included_fields=fields, use_threads=False)
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

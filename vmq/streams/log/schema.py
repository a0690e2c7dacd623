"""The columns of a stream, with the very types that Spark accepts of a Python source.

A segment stores the first eight. `stream`, `partition` and `offset` are the same or consecutive in a
batch, so they are kept once (in the schema's metadata and in each batch's) and added on reading.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from vmq.streams.log.errors import StreamError

HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))

STORED: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("payload", pa.binary()),
        ("qos", pa.int32()),
        ("retain", pa.bool_()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("client_id", pa.string()),
        ("key", pa.binary()),
        ("headers", HEADERS),
    ]
)

READ: Final = pa.schema(
    [
        *STORED,
        ("stream", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)


#: Those of a compacted segment: of its rows some are gone, so each of the others says its offset.
COMPACTED: Final = STORED.append(pa.field("offset", pa.int64()))


def segment_schema(stream: str, partition: int, columns: pa.Schema = STORED) -> pa.Schema:
    """The schema at the head of a partition's segments: it says whose they are."""
    return columns.with_metadata({"vmq.stream": stream, "vmq.partition": str(partition)})


def projected(columns: Sequence[str] | None, typed: Iterable[pa.Field] = ()) -> pa.Schema:
    """The schema of a read that wants these columns, in this order; None = all.

    `typed`: the columns that this stream has beside those of all streams.

    Raises:
        StreamError: there is no such column, or it is named twice, or none is named.
    """
    there = pa.schema([*READ, *typed])
    if columns is None:
        return there
    for name in columns:
        if name not in there.names:
            raise StreamError(
                f"there is no column {name!r:.80}; accepted: {', '.join(there.names)}"
            )
    if not columns:
        raise StreamError(f"no column is wanted; accepted: {', '.join(there.names)}")
    if len(set(columns)) != len(columns):
        raise StreamError(f"a column is named twice in {', '.join(columns)}")
    return pa.schema([there.field(name) for name in columns])

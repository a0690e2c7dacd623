"""What a get of Flight sends: rows, or Arrow streams as they lie in the segments.

Packed, the batches go out compressed and undecoded, and the reader decodes them: fewer bytes to send, and
hardly any work in the broker. Each is the one value of a batch of one binary column.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from vmq.config.columns import TypedColumn, read_columns
from vmq.streams.flight.tickets import BadTicketError, Ticket
from vmq.streams.log.cursor import LogReader

PACKED: Final = pa.schema([pa.field("packed", pa.binary(), nullable=False)])

#: A batch and its metadata: JSON that says where to read on.
Sent = tuple[pa.RecordBatch, pa.Buffer]


def batches_of(reader: LogReader, wanted: Ticket, start: int) -> tuple[pa.Schema, Iterator[Sent]]:
    """The schema and the batches of a ticket, from an offset on.

    Raises:
        BadTicketError: it asks for what cannot be had packed.
    """
    if not wanted.packed:
        return reader.projection.schema, _rows(reader, wanted, start)
    if reader.projection.typed is not None:
        raise BadTicketError(
            "a typed column in a packed get; accepted: those that every stream has"
        )
    if wanted.limit is not None:
        raise BadTicketError("a limit in a packed get; accepted: start and end")
    if wanted.where:
        raise BadTicketError("a where in a packed get; accepted: a filter of topics")
    return PACKED, _packed(reader, wanted, start)


def typed_of(wanted: Ticket, schema: Mapping[str, str]) -> list[TypedColumn]:
    """The typed columns that a get may have: packed, all columns are those that are stored."""
    return (
        []
        if wanted.packed and not wanted.where and wanted.columns is None
        else read_columns(schema)
    )


def _rows(reader: LogReader, wanted: Ticket, start: int) -> Iterator[Sent]:
    for chunk in reader.read(start, wanted.end, wanted.limit):
        yield chunk.rows, pa.py_buffer(b'{"next": %d}' % chunk.next)


def _packed(reader: LogReader, wanted: Ticket, start: int) -> Iterator[Sent]:
    for chunk in reader.read_packed(start, wanted.end):
        told = {
            "next": chunk.next,
            "skip": chunk.skip,
            "rows": chunk.rows,
            "first": chunk.first,
        }
        yield of_one(chunk.stream), pa.py_buffer(json.dumps(told).encode())


def of_one(value: pa.Buffer) -> pa.RecordBatch:
    """A batch of one value, which is not copied."""
    ends = pa.array([0, value.size], pa.int32()).buffers()[1]
    column = pa.Array.from_buffers(pa.binary(), 1, [None, ends, value])
    return pa.RecordBatch.from_arrays([column], schema=PACKED)

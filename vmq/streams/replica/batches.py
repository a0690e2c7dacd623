"""Batches of a group's log as they lie in segments, and the other way round.

A batch of rows is the Arrow message that its leader made; followers write these bytes as they are. What the group says
of itself, a control batch, becomes a message without rows. Kind, term, producers and a control batch's own bytes ride
in the message's metadata, inside the checksum.
"""

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from vmq.streams.log.frame import BadFrameError, Frame, check, encode, parse, write_options
from vmq.streams.log.schema import STORED
from vmq.streams.log.segment import Header
from vmq.streams.log.small import FewRows
from vmq_cluster.raft.dots import DOTTED
from vmq_cluster.raft.messages import ROWS, Batch, Mark
from vmq_cluster.raft.state import check_control

_TOLD: Final = msgspec.msgpack.Decoder(tuple[int, int, tuple[Mark, ...], bytes])
_ENCODER: Final = msgspec.msgpack.Encoder()
_EMPTY: Final = pa.RecordBatch.from_pylist([], schema=STORED)
_PLAIN: Final = write_options("none")
#: Bytes of a batch that are kept in memory until it is committed: there may be thousands of partitions.
_LITTLE: Final = 16 * 1024


class Codec:
    """Makes and reads the batches of one partition."""

    def __init__(self, header: Header) -> None:
        self._header = header
        self._schema_size = len(header.raw)
        #: What was made last, if it is little: followers are sent it without a look at the disk.
        self.made: Batch | None = None

    def make(
        self,
        offset: int,
        term: int,
        kind: int,
        marks: tuple[Mark, ...],
        parts: Sequence[Any],
        options: Any,
    ) -> Batch:
        """A batch of rows, of which there is one part, or of what the group says; `options`: how rows are written."""
        if kind == ROWS:
            made = self._rows(offset, term, marks, parts[0], options)
        else:
            made = Batch(offset, 1, term, kind, marks, b"".join(parts))
        self.made = made if len(made.body) <= _LITTLE else None
        return made

    def _rows(
        self,
        offset: int,
        term: int,
        marks: tuple[Mark, ...],
        rows: pa.RecordBatch | FewRows,
        options: Any,
    ) -> Batch:
        if isinstance(rows, FewRows):
            few = rows.message(offset, "", tell(ROWS, term, marks, b""))
            return Batch(offset, rows.num_rows, term, ROWS, marks, b"".join(few))
        newest = max(0, pc.max(rows.column("timestamp").cast(pa.int64())).as_py() or 0)
        told = tell(ROWS, term, marks, b"")
        batch = rows.replace_schema_metadata(self._header.schema.metadata)
        head, body = encode(batch, offset, newest, self._schema_size, options, "", told)
        return Batch(offset, rows.num_rows, term, ROWS, marks, b"".join((head, body)))

    def blank(self, first: int, end: int, term: int) -> Batch:
        """A batch of rows that are all gone, as in a compacted segment."""
        header = self._header.compacted
        empty = pa.RecordBatch.from_pylist([], schema=header.schema)
        told = tell(ROWS, term, (), b"") if term else ""
        size, span = len(header.raw), end - first
        head, body = encode(empty, first, 0, size, _PLAIN, "", told, span)
        return Batch(first, span, term, ROWS, (), b"".join((head, body)))

    def message(self, batch: Batch) -> bytes:
        """A batch as it lies in a segment."""
        if batch.kind == ROWS:
            return batch.body
        told = tell(batch.kind, batch.term, batch.marks, batch.body)
        empty = _EMPTY.replace_schema_metadata(self._header.schema.metadata)
        head, body = encode(empty, batch.offset, 0, self._schema_size, _PLAIN, "", told)
        return b"".join((head, body))


def united(marks: Iterable[Mark]) -> tuple[Mark, ...]:
    """What several batches, one behind the other, say of their producers, as one says it.

    Not of dots, which have gaps: the segments behind those that are merged begin with them.
    """
    found: dict[tuple[str, str], Mark] = {}
    for each in marks:
        if each.store.startswith(DOTTED):
            continue
        known = found.get((each.store, each.boot), each)
        first = min(known.first, each.first)
        count = max(known.end, each.end) - first
        found[each.store, each.boot] = Mark(each.store, each.boot, first, count)
    return tuple(found.values())


def tell(kind: int, term: int, marks: tuple[Mark, ...], data: bytes) -> str:
    """What a message has under its key `raft`."""
    return base64.b64encode(_ENCODER.encode((kind, term, marks, data))).decode("ascii")


def batch_of(frame: Frame, raw: bytes) -> Batch:
    """The batch that lies in a segment as `raw`; of rows `raw` may be left out where only the head is of interest.

    Rows from before there was a group are of term 0, and of no producer.

    Raises:
        BadFrameError: it is not a group's.
    """
    if not frame.raft and (frame.rows or frame.compacted):
        return Batch(frame.offset, frame.span, 0, ROWS, (), raw)
    try:
        kind, term, marks, data = _TOLD.decode(base64.b64decode(frame.raft, validate=True))
    except (binascii.Error, msgspec.MsgspecError):
        raise BadFrameError("the batch lacks what its group says of it") from None
    if frame.rows > 0 if kind != ROWS else not (frame.rows or frame.compacted):
        raise BadFrameError(f"a batch of kind {kind} with {frame.rows} rows")
    body = raw if kind == ROWS else data
    return Batch(frame.offset, frame.span, term, kind, marks, body)


def rows_in(header: Header, frame: Frame, raw: bytes) -> pa.RecordBatch:
    """The rows of a batch; if it is of a compacted segment, with their offsets.

    Raises:
        BadFrameError: Arrow cannot read it.
    """
    schema = (
        header.compacted.schema
        if frame.compacted
        else Header(header.stream, header.partition).schema
    )
    try:
        return ipc.read_record_batch(pa.py_buffer(raw), schema)
    except (pa.ArrowException, OSError) as error:
        raise BadFrameError(f"Arrow refuses it: {error}") from None


def check_batches(batches: Iterable[Batch]) -> None:
    """Looks whether batches of another node are what they say.

    Raises:
        BadFrameError: one of rows is not.
        MalformedError: a control batch is not.
    """
    for batch in batches:
        if batch.kind != ROWS:
            check_control(batch)
            continue
        view = memoryview(batch.body)
        frame = parse(view, 0)
        if frame is None or frame.size != len(view):
            raise BadFrameError("a batch that is not one Arrow message")
        check(view, 0, frame)
        if batch_of(frame, batch.body) != batch:
            raise BadFrameError("a batch that says something else of itself than its sender does")

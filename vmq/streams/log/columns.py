"""From stored columns to those that a reader wants."""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from vmq.config.columns import TypedColumn
from vmq.streams.log.conditions import Condition, TopicFilter, bind
from vmq.streams.log.schema import STORED, projected
from vmq.streams.log.typed import Extraction, typed_schema

_TOPIC: Final = STORED.get_field_index("topic")
_PAYLOAD: Final = STORED.get_field_index("payload")
_OFFSET: Final = "offset"
#: Read where only derived columns are wanted: the narrowest.
_RETAIN: Final = STORED.get_field_index("retain")


class Projection:
    """Which columns, and the rows of which topics.

    Args:
        columns: names of `schema.READ` or of `typed`, in the order that they are wanted in; None = all.
        topic_filter: an MQTT topic filter; rows of other topics are left out. None = all rows.
        typed: the typed columns of the stream.
        where: what is to hold of rows besides.

    Raises:
        StreamError: there is no such column, the filter is none, or a condition cannot be.
    """

    def __init__(
        self,
        columns: Sequence[str] | None,
        topic_filter: str | None,
        typed: Sequence[TypedColumn] = (),
        where: Sequence[Condition] = (),
    ) -> None:
        self.schema = projected(columns, typed_schema(typed))
        self.filter = None if topic_filter is None else TopicFilter(topic_filter)
        #: Makes the typed columns; None: none is wanted.
        self.typed: Extraction | None = None
        wanted = {STORED.get_field_index(name) for name in self.schema.names} - {-1}
        if self.filter is not None:
            wanted.add(_TOPIC)
        bound = bind(where, projected(None, typed_schema(typed))) if where else []
        names = {each.name for each in typed}
        #: Conditions on what is there at once, and on what has to be made.
        self.where = [each for each in bound if each.column not in names]
        self.where_made = [each for each in bound if each.column in names]
        wanted |= {STORED.get_field_index(each.column) for each in self.where} - {-1}
        asked = {*self.schema.names, *(each.column for each in self.where_made)}
        made = [each for each in typed if each.name in asked]
        if made:
            self.typed = Extraction(made)
            wanted |= {_TOPIC, _PAYLOAD} if self.typed.reads_payload else {_TOPIC}
        #: Conditions on columns that are made of the topic alone.
        self._of_topics = [
            (condition, Extraction([each]))
            for condition in self.where_made
            for each in typed
            if each.name == condition.column and each.level
        ]
        #: Something is asked of the topics.
        self.asks_topics = self.filter is not None or bool(self._of_topics)
        self.asks_topics |= any(each.column == "topic" for each in self.where)
        self._verdicts: Callable[[pa.StringArray], pa.BooleanArray] | None = None
        #: Numbers of the stored columns that have to be read.
        self.fields = sorted(wanted) or [_RETAIN]

    def empty(self) -> pa.RecordBatch:
        """No rows of these columns."""
        return pa.RecordBatch.from_pylist([], schema=self.schema)

    def matching(self, topics: pa.StringArray) -> pa.BooleanArray:
        """Which of some topics may have rows that are wanted."""
        found = pa.repeat(pa.scalar(value=True), len(topics))
        kept = None if self.filter is None else self.filter.mask(topics)
        if kept is not None:
            found = kept
        for condition in self.where:
            if condition.column == "topic":
                found = pc.and_(found, condition.mask(topics))
        for condition, extraction in self._of_topics:
            (values,) = extraction.apply(pa.record_batch([topics], names=["topic"]))
            found = pc.and_(found, condition.mask(values))
        return found if self._verdicts is None else pc.and_(found, self._verdicts(topics))

    def spare(self, verdicts: Callable[[pa.StringArray], pa.BooleanArray]) -> None:
        """Rows of topics without a verdict may be left out: whoever wants these columns filters them himself."""
        self.asks_topics, self._verdicts = True, verdicts

    def apply(
        self, rows: pa.RecordBatch, stream: str, partition: int, offset: int
    ) -> tuple[pa.RecordBatch, pa.Array]:
        """The wanted columns of the wanted rows, and their offsets.

        Args:
            rows: with the stored columns of `fields`, and offsets where they are not consecutive.
            stream: whose they are.
            partition: its number.
            offset: that of the first, if they are.
        """
        offsets = offsets_of(rows, offset)
        kept = None if self.filter is None else self.filter.mask(rows.column("topic"))
        if kept is not None:  # first: making typed columns costs the most
            rows, offsets = rows.filter(kept), offsets.filter(kept)
        for condition in self.where:
            kept = condition.mask(self._stored(condition.column, rows, offsets, stream, partition))
            rows, offsets = rows.filter(kept), offsets.filter(kept)
        made: dict[str, pa.Array] = {}
        if self.typed is not None:
            names = [each.name for each in self.typed.columns]
            made = dict(zip(names, self.typed.apply(rows), strict=True))
        for condition in self.where_made:
            kept = condition.mask(made[condition.column])
            rows, offsets = rows.filter(kept), offsets.filter(kept)
            made = {name: each.filter(kept) for name, each in made.items()}
        columns = [
            made[name] if name in made else self._stored(name, rows, offsets, stream, partition)
            for name in self.schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema), offsets

    def _stored(
        self, name: str, rows: pa.RecordBatch, offsets: pa.Array, stream: str, partition: int
    ) -> pa.Array:
        """A column that needs not be made of payloads and topics."""
        if name == "offset":
            return offsets
        if name == "partition":
            return pa.repeat(pa.scalar(partition, pa.int32()), rows.num_rows)
        if name == "stream":
            return pa.repeat(pa.scalar(stream), rows.num_rows)
        return rows.column(name)


def offsets_of(rows: pa.RecordBatch, offset: int) -> pa.Array:
    """The offsets of some rows: those that they bring, or consecutive ones from `offset` on."""
    if _OFFSET in rows.schema.names:
        return rows.column(_OFFSET)
    return pc.add(ramp(rows.num_rows), pa.scalar(offset, pa.int64()))


def within(rows: pa.RecordBatch, offset: int, start: int, end: int) -> tuple[pa.RecordBatch, int]:
    """Those of some rows that have offsets from `start` to before `end`, and the first one's, if they bring none.

    `offset`: that of the first of all, likewise.
    """
    if _OFFSET in rows.schema.names:
        offsets = rows.column(_OFFSET)
        skip, behind = (pc.sum(pc.less(offsets, each)).as_py() or 0 for each in (start, end))
        return rows.slice(skip, behind - skip), start
    skip = max(0, start - offset)
    return rows.slice(skip, max(0, end - offset - skip)), offset + skip


_RAMP = pa.array(range(0), pa.int64())


def ramp(length: int) -> pa.Array:
    """The numbers from 0 on; made once for the longest that was needed."""
    global _RAMP  # noqa: PLW0603 - a cache: two threads that make it make the same
    ramp = _RAMP
    if len(ramp) < length:
        _RAMP = ramp = pa.array(range(max(length, 1 << 16)), pa.int64())
    return ramp.slice(0, length)


def as_stream(rows: pa.RecordBatch) -> pa.Buffer:
    """Rows as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


def as_ipc(table: pa.Table) -> bytes:
    """A table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    whole: bytes = sink.getvalue().to_pybytes()
    return whole

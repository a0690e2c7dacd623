"""Rows become messages: staged at the broker by the tasks, published in one step by the driver.

A batch that Spark repeats after a failure is recognised by its query and number: the broker keeps
the number of the last batch of each query that it published, and publishes no batch twice.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from pyspark_vmq.client import client_of
from pyspark_vmq.errors import OptionError, VmqError
from pyspark_vmq.options import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import TaskContext
    from pyspark.sql.types import StructType

#: Column -> the types in which it may come.
ACCEPTED: Final = {
    "topic": ("string",),
    "payload": ("binary", "string"),
    "qos": ("int", "bigint", "smallint", "tinyint"),
    "retain": ("boolean",),
}

#: Where Spark tells a task of a streaming query which batch it works on.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


#: Bytes of one put, about: what a slow network passes on within a call, and a task has in memory to put again.
CHUNK: Final = 8 << 20

#: Puts that a task may have: the numbers of its parts follow each other, so that rows keep their order.
MOST_PUTS: Final = 1 << 24


@dataclass
class Staged(WriterCommitMessage):
    """What a task laid down at the broker: number and attempt of each part."""

    query: str
    parts: list[tuple[int, int]]


def check_columns(schema: "StructType", options: SinkOptions) -> None:
    """Whether rows of this schema can become messages.

    Raises:
        OptionError: a column is missing, unknown, or of a type that is not accepted.
    """
    columns = {field.name: field.dataType.simpleString() for field in schema.fields}
    for name, kind in columns.items():
        if name not in ACCEPTED:
            raise OptionError(
                "columns", f"'{name}' means nothing to the sink; it takes: {', '.join(ACCEPTED)}"
            )
        if kind not in ACCEPTED[name]:
            raise OptionError(
                "columns", f"'{name}' is {kind}; accepted: {', '.join(ACCEPTED[name])}"
            )
    if "payload" not in columns:
        raise OptionError("columns", "there is no 'payload'")
    if "topic" not in columns and not options.topic:
        raise OptionError("topic", "is missing: give it, or a column 'topic'")


def check_reach(options: SinkOptions) -> None:
    """Whether the broker is there and knows the user: asked once by the driver, before tasks try it each for itself.

    Raises:
        Unavailable: the broker cannot be reached for as long as `retryTimeout` says.
        ServerError: it refuses the user.
    """
    client_of(options.connection).streams()


def messages_of(
    rows: "Iterable[pa.RecordBatch]", options: SinkOptions
) -> "Iterator[pa.RecordBatch]":
    """Rows as the broker takes them: topic, payload, qos, retain.

    Raises:
        VmqError: a row without a topic.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    defaults = {
        "topic": options.topic,
        "payload": b"",
        "qos": options.qos,
        "retain": options.retain,
    }
    schema = pa.schema(
        [
            ("topic", pa.string()),
            ("payload", pa.binary()),
            ("qos", pa.int32()),
            ("retain", pa.bool_()),
        ]
    )
    for batch in rows:
        columns = []
        for field in schema:
            if field.name in batch.schema.names:
                column = batch.column(field.name).cast(field.type)
                default = defaults[field.name]
                if default != "":
                    column = pc.fill_null(column, pa.scalar(default, field.type))
                elif column.null_count:
                    raise VmqError("vmq: a row has no topic, and option 'topic' gives none")
            else:
                column = pa.repeat(pa.scalar(defaults[field.name], field.type), batch.num_rows)
            columns.append(column)
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def chunks(batches: "Iterable[pa.RecordBatch]") -> "Iterator[list[pa.RecordBatch]]":
    """Rows by puts, none of them much larger than `CHUNK`."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        step = max(1, batch.num_rows * CHUNK // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, step):
            held.append(batch.slice(start, step))
            size += held[-1].nbytes
            if size >= CHUNK:
                yield held
                held, size = [], 0
    if held:
        yield held


def stage(rows: "Iterable[pa.RecordBatch]", options: SinkOptions, query: str, batch: int) -> Staged:
    """Lays the rows of the present task down at the broker."""
    client = client_of(options.connection)
    first = _task_context().partitionId() * MOST_PUTS
    parts = []
    for number, held in enumerate(chunks(messages_of(rows, options)), first):
        named = {"query": query, "batch": batch, "part": number}
        parts.append((number, client.stage(named, held)))
    return Staged(query, parts)


def _task_context() -> "TaskContext":
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "writers run inside tasks"
    return context


def publish(
    options: SinkOptions, messages: "Sequence[WriterCommitMessage | None]", batch: int
) -> None:
    """Publishes what the tasks of a batch have staged."""
    staged = [each for each in messages if isinstance(each, Staged)]
    if staged:
        parts = [part for each in staged for part in each.parts]
        client_of(options.connection).publish(staged[0].query, batch, parts)


def discard(
    options: SinkOptions, messages: "Sequence[WriterCommitMessage | None]", batch: int
) -> None:
    """Throws away what the tasks of a batch have staged."""
    staged = [each for each in messages if isinstance(each, Staged)]
    if staged:
        body = {"query": staged[0].query, "batch": batch}
        client_of(options.connection).ask("discard", body)


class BatchWriter(DataSourceArrowWriter):
    """`df.write.format("vmq")`: all rows are published, or none."""

    def __init__(self, options: SinkOptions, schema: "StructType", query: str) -> None:
        check_columns(schema, options)
        check_reach(options)
        self.options = options
        self.query = query

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return stage(iterator, self.options, self.query, 0)

    def commit(self, messages: "list[WriterCommitMessage | None]") -> None:
        publish(self.options, messages, 0)

    def abort(self, messages: "list[WriterCommitMessage | None]") -> None:
        discard(self.options, messages, 0)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("vmq")`: each batch is published once."""

    def __init__(self, options: SinkOptions, schema: "StructType") -> None:
        check_columns(schema, options)
        check_reach(options)
        self.options = options

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        context = _task_context()
        query = context.getLocalProperty(QUERY_ID)
        batch = context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise VmqError(
                f"vmq: this version of Spark does not tell a task its query and batch "
                f"({QUERY_ID}, {BATCH_ID}); rows cannot be published exactly once"
            )
        return stage(iterator, self.options, query, int(batch))

    def commit(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        publish(self.options, messages, batchId)

    def abort(self, messages: "list[WriterCommitMessage | None]", batchId: int) -> None:
        discard(self.options, messages, batchId)

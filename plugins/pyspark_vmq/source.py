"""What Spark finds under `format("vmq")`: a batch and a streaming source, a batch and a streaming sink."""

import os
import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from pyspark_vmq.carrying import Carrying, may_carry, rows_of
from pyspark_vmq.client import Client, client_of
from pyspark_vmq.errors import OptionError
from pyspark_vmq.offsets import (
    EARLIEST,
    LATEST,
    Ids,
    Offsets,
    from_checkpoint,
    ids_of,
    to_checkpoint,
)
from pyspark_vmq.options import SourceOptions, sink_options, source_options
from pyspark_vmq.planning import Range, limited, no_earlier, ranges_between, tasks_of
from pyspark_vmq.positions import (
    at,
    checked,
    end_of,
    followed,
    ids_at,
    in_reach,
    replanned,
    start_of,
    streams_to_read,
)
from pyspark_vmq.process import spare_collector
from pyspark_vmq.reading import Task, read_task
from pyspark_vmq.schema import DDL, Columns, check_typed, projection
from pyspark_vmq.writing import BatchWriter, StreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

#: Seconds that an idle query waits at the broker for news.
LONG_POLL: Final = 0.5

#: A task costs Spark some 50 ms, as long as it takes to read this many messages.
MESSAGES_A_TASK: Final = 20_000


class DefaultSource(DataSource):
    """Messages of vmq's streams as rows, and rows as messages."""

    @classmethod
    def name(cls) -> str:
        return "vmq"

    def schema(self) -> str:
        spare_collector()
        return DDL

    def reader(self, schema: "StructType") -> "Reader":
        spare_collector()
        return Reader(source_options(self.options, "batch"), projection(schema))

    def streamReader(self, schema: "StructType") -> "StreamReader | RefusingReader":
        try:
            return StreamReader(source_options(self.options, "stream"), projection(schema))
        except OptionError as error:
            return RefusingReader(error)

    def writer(self, schema: "StructType", overwrite: bool) -> BatchWriter:
        if overwrite:
            raise OptionError(
                "mode",
                "overwrite is not accepted: messages that were published stay so; use append",
            )
        return BatchWriter(sink_options(self.options), schema, "batch-" + uuid.uuid4().hex)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> StreamWriter:
        return StreamWriter(sink_options(self.options), schema)


class RefusingReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What there is instead of a reader whose options are wrong: it says so as soon as Spark asks for anything.

    Where `streamReader` itself raises, Spark goes on to stop what it never got, and that error of its own comes last.
    """

    def __init__(self, error: OptionError) -> None:
        self.error = error

    def prepareForTriggerAvailableNow(self) -> None:
        raise self.error

    def initialOffset(self) -> dict[str, Any]:
        raise self.error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        raise self.error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self.error

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        raise self.error


def check_columns(client: Client, streams: list[str], columns: Columns) -> None:
    """Looks whether all streams have the typed columns that are to be fetched.

    Raises:
        OptionError: one has not.
    """
    if any(isinstance(each, str) for each in columns.values()):
        for stream in streams:
            check_typed(stream, client.schema(stream), columns)


def same(known: Ids, now: Ids) -> set[str]:
    """The streams of which it is known that they are the ones that they were."""
    return {each for each in known if known[each] == now.get(each)}


def deal(ranges: list[Range], options: SourceOptions) -> list[InputPartition]:
    """The tasks for some ranges: as many as asked for, else as many as pay."""
    wanted = options.min_partitions
    if wanted is None:
        total = sum(each.size for each in ranges)
        wanted = min(os.cpu_count() or 1, -(-total // MESSAGES_A_TASK))
    return [Task(each) for each in tasks_of(ranges, wanted)]


class Reader(DataSourceReader):
    """`spark.read.format("vmq")`: what lies between two positions."""

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        client = client_of(self.options.connection)
        streams = streams_to_read(client, self.options)
        check_columns(client, streams, self.columns)
        ids = ids_at(client, streams)
        start = start_of(client, self.options, streams, EARLIEST)
        end = end_of(client, self.options, streams)
        return deal(ranges_between(start, end, ids), self.options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_task(partition, self.options, self.columns)


class StreamReader(Carrying, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """`spark.readStream.format("vmq")`: everything from a position on, each message in one batch.

    Spark calls it in one process of the driver for as long as the query lives. It may never call
    `commit` for the last batch, nor `stop`, so nothing depends on them.
    """

    def __init__(self, options: SourceOptions, columns: Columns) -> None:
        self.options = options
        self.columns = columns
        #: Where a query with the trigger AvailableNow ends.
        self.target: Offsets | None = None
        self.target_ids: Ids = {}
        self.streams: list[str] = []
        self.known: Offsets = {}

    def initialOffset(self) -> dict[str, Any]:
        client = self.client()
        ids = ids_at(client, self.streams)
        return to_checkpoint(start_of(client, self.options, self.streams, LATEST), ids)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self.options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self.set_target(ids_at(self.client(), self.streams))

    def set_target(self, ids: Ids) -> None:
        self.target, self.target_ids = self.latest(), ids

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        client, known = self.client(), ids_of(start)
        ids = ids_at(client, self.streams)
        begun = followed(client, self.options, from_checkpoint(start), known, ids)
        if self.target is not None and ids != self.target_ids:
            self.set_target(ids)
        end = self.latest() if self.target is None else self.target
        begun = in_reach(client, self.options, begun, end, same(known, ids))
        if self.target is None and not ranges_between(begun, end):
            end = self.wait(begun)
        end = no_earlier(begun, end)
        # Partitions that the query has not seen start where they begin, not at 0.
        fresh = [s for s, parts in end.items() if parts.keys() - begun.get(s, {}).keys()]
        for stream, partitions in at(client, fresh, EARLIEST).items() if fresh else ():
            begun[stream] = {**partitions, **begun.get(stream, {})}
        if isinstance(limit, ReadMaxRows):
            end = limited(begun, end, limit.max_rows)
        return to_checkpoint(end, ids)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return to_checkpoint(self.known) if self.known else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        client, finish, ids = self.client(), from_checkpoint(end), ids_of(end)
        begun = {s: parts for s, parts in from_checkpoint(start).items() if s in finish}
        begun = followed(client, self.options, begun, ids_of(start), ids)
        begun = replanned(client, self.options, begun, finish, same(ids_of(start), ids))
        task = Task(ranges_between(begun, finish, ids))
        if may_carry(task, self.options):
            self.carried = rows_of(task, self.options, self.columns)
            if self.carried is not None:
                return [task]
        begun = checked(client, self.options, begun)
        return deal(ranges_between(begun, finish, ids), self.options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return read_task(partition, self.options, self.columns)

    def client(self) -> Client:
        client = client_of(self.options.connection)
        if not self.streams:
            streams = streams_to_read(client, self.options)
            check_columns(client, streams, self.columns)
            self.streams = streams
        return client

    def wait(self, known: Offsets) -> Offsets:
        """The latest offsets once there is something new, or after a while."""
        client = self.client()
        share = LONG_POLL / len(self.streams)
        for stream in self.streams:
            self.known[stream] = client.wait(stream, known.get(stream, {}), share)
            if ranges_between(known, {stream: self.known[stream]}):
                return self.known if len(self.streams) == 1 else self.latest()
        return self.known

    def latest(self) -> Offsets:
        client = self.client()
        self.known = at(client, self.streams, LATEST)
        return self.known

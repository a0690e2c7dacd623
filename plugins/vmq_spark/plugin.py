"""The plugin: its section's streams, and the figures of the pipelines that run on this machine."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct
from vmq_hooks import Broker, Checking, Mistake, Plugin

from vmq_spark.status import QueryProgress, Status, read_all

Samples = Iterator[tuple[Mapping[str, str], float]]


class SparkStream(Struct, frozen=True, forbid_unknown_fields=True):
    """A stream for pipelines: as `[streams.NAME]`, with the defaults that suit Spark."""

    filters: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=65_535)]],
        Meta(
            min_length=1,
            max_length=1000,
            description="Topic filters (+ and #): what matches any of them is kept.",
            extra={"accepts": 'a list of topic filters, as in ["sensors/#"]'},
        ),
    ]
    partitions: Annotated[
        int,
        Meta(ge=1, le=1024, description="What Spark reads in parallel; may grow, not shrink."),
    ] = 4
    key: Annotated[
        str,
        Meta(
            description="Messages with the same key keep their order.",
            extra={"accepts": '"client_id", "topic", or "level:N" for the Nth level of the topic'},
        ),
    ] = "client_id"
    retention_age: Annotated[
        str,
        Meta(
            description="How long messages are kept: longer than a pipeline may be away.",
            extra={"accepts": "a number and a unit, as in 12h or 14d"},
        ),
    ] = "14d"
    retention_bytes: Annotated[
        int, Meta(ge=0, description="Bytes above which the oldest go; 0 = no limit.")
    ] = 0
    acks: Annotated[
        Literal["memory", "os", "fsync"],
        Meta(description="When publishers are acknowledged, as in [streams.NAME]."),
    ] = "os"


class SparkConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The plugin's section of the configuration."""

    interval: Annotated[
        float,
        Meta(ge=0.1, le=3600, description="Seconds between two looks at the pipelines' progress."),
    ] = 5.0
    streams: Annotated[
        dict[str, SparkStream],
        Meta(description="Streams by name.", extra={"accepts": "a table of tables"}),
    ] = {}


#: The gauges of a pipeline, and those of a query while it runs: what each means, and its value.
PIPELINE_FIGURES: Final[Mapping[str, tuple[str, Callable[[Status], float]]]] = {
    "spark_pipeline_up": (
        "1 while a pipeline's queries run.",
        lambda s: s.state == "running",
    ),
    "spark_pipeline_restarts": (
        "Times that a pipeline's driver was started anew since its runner was started.",
        lambda s: s.runner.restarts,
    ),
}
QUERY_FIGURES: Final[Mapping[str, tuple[str, Callable[[QueryProgress], float]]]] = {
    "spark_query_batch": ("The number of a query's last batch.", lambda q: q.batch),
    "spark_query_batch_seconds": ("What a query's last batch took.", lambda q: q.batch_seconds),
    "spark_query_late": ("Rows left out because they came too late.", lambda q: q.late),
    "spark_query_rows": ("Rows that a query has read since its driver started.", lambda q: q.rows),
    "spark_query_rows_per_second": ("Rows that come to a query.", lambda q: q.rows_per_second),
}


class SparkPlugin(Plugin):
    """Streams for Spark, and a look at the pipelines."""

    Config = SparkConfig

    def __init__(self) -> None:
        self.statuses: list[Status] = []

    def check(self, broker: Checking, config: SparkConfig) -> Iterator[Mistake]:
        for name, stream in config.streams.items():
            try:
                broker.declare_stream(name, msgspec.to_builtins(stream))
            except ValueError as error:
                yield Mistake(f"streams.{name}", str(error))

    async def start(self, broker: Broker, config: SparkConfig) -> None:
        for name, stream in config.streams.items():
            await broker.declare_stream(name, msgspec.to_builtins(stream))
        for name, (text, of_pipeline) in PIPELINE_FIGURES.items():
            broker.gauge(name, text, self._of_pipelines(of_pipeline))
        for name, (text, of_query) in QUERY_FIGURES.items():
            broker.gauge(name, text, self._of_queries(of_query))
        broker.gauge("spark_query_lag", "Messages that a query has not read yet.", self._lag)
        self.statuses = await broker.run_in_thread(read_all, broker.data_dir)
        broker.spawn(self._look_for_ever(broker, config.interval), "pipelines' progress")

    async def _look_for_ever(self, broker: Broker, interval: float) -> None:
        while True:
            await asyncio.sleep(interval)
            self.statuses = await broker.run_in_thread(read_all, broker.data_dir)

    def _of_pipelines(self, value: Callable[[Status], float]) -> Callable[[], Samples]:
        def read() -> Samples:
            for status in self.statuses:
                yield {"pipeline": status.name}, value(status)

        return read

    def _of_queries(self, value: Callable[[QueryProgress], float]) -> Callable[[], Samples]:
        def read() -> Samples:
            for labels, query in self._running_queries():
                yield labels, value(query)

        return read

    def _lag(self) -> Samples:
        for labels, query in self._running_queries():
            for stream, partitions in (query.lag or {}).items():
                for partition, messages in partitions.items():
                    yield {**labels, "stream": stream, "partition": partition}, messages

    def _running_queries(self) -> Iterator[tuple[dict[str, str], QueryProgress]]:
        # What a driver said last says nothing any more once it is gone.
        for status in self.statuses:
            if status.is_running:
                for name, query in status.progress.queries.items():
                    yield {"pipeline": status.name, "query": name}, query

"""What tests of the Spark side need: devices, readers, queries, and what Spark says when it fails."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.until import reach
from tests.support.wire import PUBACK, Wire, publish_packet
from tests.vmq.workers.several import Several
from vmq.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: The streams of the shared broker and their partitions; stream NAME keeps NAME/#.
STREAMS = {
    **dict.fromkeys(("parsed", "news", "plant", "works"), 1),
    **dict.fromkeys(("columns", "batch", "walk", "resumed", "repeated", "small", "sunk"), 2),
    **dict.fromkeys(("failing", "readme", "sensors"), 2),
}

#: A stream that keeps some 200 kB, by whole segments.
RETAINED = 200_000
SHORT = {
    "VMQ_STREAMS__SHORT__FILTERS": '["short/#"]',
    "VMQ_STREAMS__SHORT__SEGMENT_BYTES": "65536",
    "VMQ_STREAMS__SHORT__RETENTION_BYTES": str(RETAINED),
}

#: Seconds for a query to do what it is to do; far more than it takes.
PATIENCE = 60


def executors_environment() -> dict[str, str]:
    """How the workers of a local session find this Python and the packages of the shelves."""
    root = Path(__file__).parents[2]
    found = [str(folder) for folder in (root, root / "plugins") if folder.is_dir()]
    given = os.environ.get("PYTHONPATH")
    return {
        "PYTHONPATH": os.pathsep.join([*found, *filter(None, [given])]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


def stream_environment(streams: Mapping[str, int]) -> dict[str, str]:
    """Streams as the broker's environment declares them."""
    env = {}
    for name, partitions in streams.items():
        section = f"VMQ_STREAMS__{name.upper()}__"
        env[section + "FILTERS"] = f'["{name}/#"]'
        env[section + "PARTITIONS"] = str(partitions)
    return env


#: Two streams that keep the same topics.
TWICE = {
    "VMQ_STREAMS__FIRST__FILTERS": '["twice/#"]',
    "VMQ_STREAMS__SECOND__FILTERS": '["twice/+"]',
}


def send(
    broker: BrokerProcess,
    messages: Iterable[tuple[str, bytes]],
    *,
    client_id: str = "device",
    username: str | None = None,
    password: str | None = None,
) -> None:
    """Publishes at QoS 1 and returns when all are acknowledged: then they are in their streams."""
    with Wire.connected(broker.tcp, client_id, username=username, password=password) as wire:
        pending = list(messages)
        for start in range(0, len(pending), 500):
            some = pending[start : start + 500]
            wire.send(
                *(
                    publish_packet(topic, payload, qos=1, packet_id=number)
                    for number, (topic, payload) in enumerate(some, 1)
                )
            )
            for number in range(1, len(some) + 1):
                assert wire.expect(PUBACK).packet_id == number


def outrun(broker: BrokerProcess, offset: int) -> None:
    """Publishes to stream `short` until what lies there up to an offset is deleted by the retention.

    Which then has nothing left to do: what is there stays until something is published.
    """
    random = Random(offset)
    deleted = re.compile(r"deleted .*/short/0/(\d+)\.arrows by the retention")

    def is_gone(lines: Sequence[str]) -> bool:
        found = (deleted.search(line) for line in lines)
        return any(int(each[1]) > offset for each in found if each)

    for _ in range(8):  # a commit is never in two segments, so one of all would be one segment
        send(broker, [("short/x", random.randbytes(5000)) for _ in range(20)])
    broker.wait_logs(f"offset {offset} is deleted", is_gone, PATIENCE)
    api = Several(broker).api
    reach(lambda: api("GET", "/stream", name="short")[1]["bytes"] <= RETAINED)


class Bridge:
    def __init__(self, spark: SparkSession, broker: BrokerProcess) -> None:
        self.spark = spark
        self.broker = broker

    @property
    def url(self) -> str:
        return next(url for url in self.broker.urls if url.startswith("grpc"))

    def options(self, given: Mapping[str, Any]) -> dict[str, str]:
        return {"server": self.url, **{name: str(value) for name, value in given.items()}}

    def load(self, schema: str | None = None, **options: Any) -> DataFrame:
        reader = self.spark.read.format("vmq").options(**self.options(options))
        return (reader.schema(schema) if schema else reader).load()

    def stream(self, schema: str | None = None, **options: Any) -> DataFrame:
        reader = self.spark.readStream.format("vmq").options(**self.options(options))
        return (reader.schema(schema) if schema else reader).load()

    def save(self, rows: DataFrame, **options: Any) -> None:
        rows.write.format("vmq").options(**self.options(options)).mode("append").save()

    def write(self, rows: DataFrame, checkpoint: Path, **options: Any) -> StreamingQuery:
        """A sink that takes what there is and ends."""
        writer = rows.writeStream.format("vmq").options(**self.options(options))
        return (
            writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        )

    def collect(self, rows: DataFrame, into: Path, checkpoint: Path) -> list[dict[str, Any]]:
        """As `take_all`; returns the progress of the batches."""
        return [dict(each) for each in take_all(rows, into, checkpoint).recentProgress]


def take_all(rows: DataFrame, into: Path, checkpoint: Path) -> StreamingQuery:
    """Runs a stream over what there is, into files of Parquet, from its checkpoint on."""
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start(str(into))
    finish(query)
    return query


def finish(query: StreamingQuery) -> None:
    """Waits for the end of a query, which fails as it does."""
    try:
        assert query.awaitTermination(PATIENCE), "the query does not end"
    finally:
        query.stop()


@contextmanager
def fails(*parts: str) -> Iterator[None]:
    """The last line of the traceback that Spark shows is ours and holds all these parts."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - Spark's classes differ by where it fails
        yield
    shown = last_line(caught.value)
    for part in parts:
        assert part in shown, f"{part!r} is not in the last line: {shown!r}\n\n{caught.value}"


def last_line(error: BaseException) -> str:
    """The last line that Python says in an error of Spark, which puts its own state behind it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = "During handling of the above exception, another exception occurred:"
    assert told not in lines, f"another error hides what is wrong:\n\n{error}"
    ours = [line for line in lines if line.startswith(("pyspark_vmq.errors.", "vmq: "))]
    return (ours or lines)[-1]

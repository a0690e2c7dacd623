"""Small batches travel with their plan: Spark's own side of that protocol, without a JVM, asks a real Flight server."""

import io
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import ipc
from pyspark import cloudpickle
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming import python_streaming_source_runner as spark
from pyspark.sql.types import BinaryType, LongType, StructField, StructType
from pyspark_vmq.carrying import CAN_CARRY, MOST_BYTES, MOST_MESSAGES, rows_of
from pyspark_vmq.errors import DataLossError
from pyspark_vmq.offsets import Offsets, to_checkpoint
from pyspark_vmq.options import source_options
from pyspark_vmq.planning import Range
from pyspark_vmq.reading import Task, read_task
from pyspark_vmq.schema import projection
from pyspark_vmq.source import StreamReader

from tests.vmq.streams.flight_support import Running
from vmq.config.streams import StreamOptions
from vmq.streams.flight.service import StreamServer

SCHEMA = StructType(
    [
        StructField("payload", BinaryType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
    ]
)
COLUMNS = projection(SCHEMA)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path, s=StreamOptions(filters=["s/#"], partitions=1))
    yield running
    running.close()


@pytest.fixture
def server(running: Running) -> Iterator[StreamServer]:
    with StreamServer(running.catalog, most_calls=2) as server:
        yield server


def reader_of(server: StreamServer, **options: str) -> StreamReader:
    given = {"server": f"grpc://127.0.0.1:{server.port}", "stream": "s", **options}
    return StreamReader(source_options(given, "stream"), COLUMNS)


def planned(reader: Any, start: Offsets, end: Offsets) -> tuple[int, list[bytes] | None]:
    """What Spark gets for a batch: the number of its tasks, and the payloads that came with them."""
    ask, answer = io.BytesIO(), io.BytesIO()
    for each in (start, end):
        text = json.dumps(to_checkpoint(each)).encode()
        ask.write(struct.pack("!i", len(text)) + text)
    ask.seek(0)
    source: Any = None
    spark.partitions_func(reader, source, SCHEMA, 10_000, ask, answer)
    answer.seek(0)

    def number() -> int:
        return int(struct.unpack("!i", answer.read(4))[0])

    tasks = number()
    for _ in range(tasks):
        answer.read(number())
    kind = number()
    if kind == spark.PREFETCHED_RECORDS_NOT_FOUND:
        return tasks, None
    if kind == spark.EMPTY_PYARROW_RECORD_BATCHES:
        return tasks, []
    number()
    with ipc.open_stream(answer) as rows:
        return tasks, rows.read_all()["payload"].to_pylist()


def passes_for_simple(reader: object) -> bool:
    return isinstance(reader, _SimpleStreamReaderWrapper)


def test_this_spark_takes_rows_from_the_driver() -> None:
    assert CAN_CARRY


def test_a_small_batch_comes_with_its_rows(running: Running, server: StreamServer) -> None:
    running.append("s/x", b"0", b"1", b"2", b"3")
    reader = reader_of(server)
    assert planned(reader, {"s": {0: 1}}, {"s": {0: 3}}) == (1, [b"1", b"2"])
    # Spark keeps them; who plans the batch anew gets it anew.
    assert planned(reader, {"s": {0: 1}}, {"s": {0: 3}}) == (1, [b"1", b"2"])
    assert planned(reader, {"s": {0: 3}}, {"s": {0: 3}}) == (0, None)


def test_rows_that_match_nothing_are_no_rows(running: Running, server: StreamServer) -> None:
    running.append("s/x", b"0", b"1")
    assert planned(reader_of(server, topic="s/y"), {"s": {0: 0}}, {"s": {0: 2}}) == (1, [])


def test_many_messages_large_ones_and_several_tasks_are_left_to_workers(
    running: Running, server: StreamServer
) -> None:
    running.append("s/x", *[b"x"] * MOST_MESSAGES, bytes(MOST_BYTES))
    reader = reader_of(server)
    _, rows = planned(reader, {"s": {0: 0}}, {"s": {0: MOST_MESSAGES}})
    assert rows == [b"x"] * MOST_MESSAGES
    assert planned(reader, {"s": {0: 0}}, {"s": {0: MOST_MESSAGES + 1}}) == (1, None)
    assert planned(reader, {"s": {0: MOST_MESSAGES}}, {"s": {0: MOST_MESSAGES + 1}}) == (1, None)
    split = reader_of(server, minPartitions="2")
    assert planned(split, {"s": {0: 0}}, {"s": {0: 2}}) == (2, None)


def test_it_passes_for_a_simple_reader_only_while_it_has_rows(
    running: Running, server: StreamServer
) -> None:
    """Else Spark would not learn how far the query is behind, and could not send the reader to tasks."""
    running.append("s/x", b"0")
    reader = reader_of(server)
    begun = to_checkpoint({"s": {0: 0}})
    end = reader.latestOffset(begun, reader.getDefaultReadLimit())
    reader.partitions(begun, end)
    assert passes_for_simple(reader)
    (rows,) = reader.getCache(begun, end)
    assert rows["payload"].to_pylist() == [b"0"]
    assert not passes_for_simple(reader)
    told = io.BytesIO()
    spark.report_latest_offset_func(reader, told)
    assert json.loads(told.getvalue()[4:]) == to_checkpoint({"s": {0: 1}})
    pickled = cloudpickle.dumps(reader)  # type: ignore[no-untyped-call]  # it has no types
    assert isinstance(cloudpickle.loads(pickled), StreamReader)


def test_loss_beside_a_small_batch_is_still_noticed(running: Running, server: StreamServer) -> None:
    """One partition has news, the other was made anew and ends before the query's place."""
    running.append("s/x", b"0", b"1")
    with pytest.raises(DataLossError, match="partition 1: offset 5 is not there"):
        reader_of(server).partitions(
            to_checkpoint({"s": {0: 0, 1: 5}}), to_checkpoint({"s": {0: 2, 1: 1}})
        )
    with pytest.raises(DataLossError, match="partition 0: offset 4 is not there"):
        reader_of(server).partitions(to_checkpoint({"s": {0: 4}}), to_checkpoint({"s": {0: 6}}))


def test_reads_given_up_hold_no_place_at_the_server(running: Running, server: StreamServer) -> None:
    for _ in range(12):
        running.append("s/x", os.urandom(MOST_BYTES))
    options = reader_of(server, localReads="false").options
    task = Task([Range("s", 0, 0, 12)])
    for _ in range(6):  # it has room for two at a time
        assert rows_of(task, options, COLUMNS) is None
    assert sum(batch.num_rows for batch in read_task(task, options, COLUMNS)) == 12

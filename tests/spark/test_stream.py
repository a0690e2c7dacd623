"""`spark.readStream.format("vmq")`: every message in one batch, across restarts of whatever it is."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.support import PATIENCE, Bridge, fails, send, stream_environment
from vmq.testing.ports import lasting_port

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


def numbered(topic: str, count: int, start: int = 0) -> list[tuple[str, bytes]]:
    return [(topic, str(number).encode()) for number in range(start, start + count)]


def payloads(bridge: Bridge, folder: Path) -> list[int]:
    rows = bridge.spark.read.parquet(str(folder)).collect()
    return sorted(int(bytes(row.payload)) for row in rows)


class Seen:
    """What the batches of a running query brought."""

    def __init__(self, rows: DataFrame, checkpoint: Path) -> None:
        self.values: list[int] = []
        self.changed = threading.Condition()
        self.query: StreamingQuery = (
            rows.writeStream.foreachBatch(self.take)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )

    def take(self, rows: DataFrame, _batch: int) -> None:
        new = [int(bytes(row.payload)) for row in rows.collect()]
        with self.changed:
            self.values += new
            self.changed.notify_all()

    def wait(self, count: int) -> list[int]:
        with self.changed:
            assert self.changed.wait_for(
                lambda: len(self.values) >= count or not self.query.isActive, PATIENCE
            ), f"{len(self.values)} of {count} came"
        assert self.query.isActive, self.query.exception()
        return sorted(self.values)

    def __enter__(self) -> Seen:
        return self

    def __exit__(self, *_args: object) -> None:
        self.query.stop()


def test_batches_are_limited_and_lag_is_told(bridge: Bridge, tmp_path: Path) -> None:
    send(bridge.broker, numbered("walk/a", 700), client_id="a")
    send(bridge.broker, numbered("walk/b", 300), client_id="e")
    frame = bridge.stream(stream="walk", startingOffsets="earliest", maxOffsetsPerTrigger=400)
    progress = bridge.collect(frame, tmp_path / "out", tmp_path / "check")
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [400, 400, 200]
    assert len(payloads(bridge, tmp_path / "out")) == 1000
    ends = [json.loads(each["sources"][0]["endOffset"]) for each in progress]
    lag = json.loads(progress[0]["sources"][0]["latestOffset"])
    assert sum(ends[0]["s"]["walk"].values()) == 400
    assert sum(lag["s"]["walk"].values()) == 1000


def test_query_goes_on_at_its_checkpoint(bridge: Bridge, tmp_path: Path) -> None:
    out, check = tmp_path / "out", tmp_path / "check"
    frame = bridge.stream(stream="resumed", startingOffsets="earliest", minPartitions=3)
    for start in (0, 150, 151):
        send(bridge.broker, numbered("resumed/x", 150 if start == 0 else 1, start))
        bridge.collect(frame, out, check)
        assert payloads(bridge, out) == list(range(start + (150 if start == 0 else 1)))


def test_small_batches_bring_every_column_as_workers_do(bridge: Bridge, tmp_path: Path) -> None:
    """Small batches come from the driver, those that are wanted in several tasks from workers."""
    import pyarrow as pa
    from pyarrow import flight

    pairs = [{"key": "k", "value": "v"}, {"key": "k", "value": ""}]
    rows = pa.record_batch(
        {
            "topic": [f"small/{number}" for number in range(40)],
            "payload": [bytes([number]) * number for number in range(40)],
            "qos": [number % 3 for number in range(40)],
            "retain": [number % 2 == 0 for number in range(40)],
            "client_id": [f"c{number}" for number in range(40)],
            "headers": [pairs[: number % 3] for number in range(40)],
        }
    )
    with flight.connect(bridge.url) as client:
        writer, _ = client.do_put(flight.FlightDescriptor.for_path("small"), rows.schema)
        writer.write_batch(rows)
        writer.close()
    wanted = bridge.load(stream="small").orderBy("partition", "offset").collect()
    assert len(wanted) == 40
    assert {len(row.headers) for row in wanted} == {0, 1, 2}
    for tasks in ("1", "3"):
        frame = bridge.stream(stream="small", startingOffsets="earliest", minPartitions=tasks)
        bridge.collect(frame, tmp_path / tasks, tmp_path / f"check-{tasks}")
        found = bridge.spark.read.parquet(str(tmp_path / tasks))
        assert found.orderBy("partition", "offset").collect() == wanted


def test_latest_is_the_default_and_news_come_while_it_runs(bridge: Bridge, tmp_path: Path) -> None:
    send(bridge.broker, numbered("news/x", 10))
    with Seen(bridge.stream(topic="news/+"), tmp_path) as seen:
        # The start is fixed with the first, empty, batch or not at all: see that the query is idle.
        until_idle(seen.query)
        send(bridge.broker, numbered("news/x", 5, 10))
        assert seen.wait(5) == list(range(10, 15))
        send(bridge.broker, numbered("news/x", 5, 15))
        assert seen.wait(10) == list(range(10, 20))


def until_idle(query: StreamingQuery) -> None:
    """Waits until a query has planned its first batch."""
    pause = threading.Event()
    for _ in range(int(PATIENCE * 10)):
        if query.lastProgress or query.status["message"].startswith("Waiting for"):
            return
        if query.exception() is not None:
            raise AssertionError(query.exception())
        pause.wait(0.1)
    raise AssertionError(f"not idle: {query.status}")


def test_wrong_options_end_the_query(bridge: Bridge, tmp_path: Path) -> None:
    """With our word as the last one, with each trigger."""
    with fails("there is no stream 'nope'"):
        bridge.collect(bridge.stream(stream="nope"), tmp_path / "out", tmp_path / "check")
    wrong = bridge.stream(stream="walk", startingOffsets="begin")
    with fails("option 'startingOffsets': 'begin' is not accepted; expected earliest, latest"):
        bridge.collect(wrong, tmp_path / "out", tmp_path / "check")
    with fails("option 'startingoffset': is unknown"):
        query = bridge.stream(stream="walk", startingOffset="1").writeStream.format("noop").start()
        query.processAllAvailable()


Start = Callable[..., Bridge]


def test_query_outlives_its_broker(own_broker: Start, tmp_path: Path) -> None:
    """With a user, whose token dies with the broker that gave it."""
    from vmq_passwd import editing

    editing.add(tmp_path / "passwd", "ann", b"secret")
    config = tmp_path / "vmq.toml"
    config.write_text(f'[plugins.passwd]\nfile = "{tmp_path}/passwd"\n')
    listen = ("tcp://127.0.0.1:0", f"grpc://127.0.0.1:{lasting_port()}")
    args = ("--config", str(config))
    user = {"username": "ann", "password": "secret"}
    bridge = own_broker(listen=listen, args=args, **stream_environment({"long": 2}))
    send(bridge.broker, numbered("long/x", 30), **user)
    frame = bridge.stream(stream="long", startingOffsets="earliest", **user)
    with Seen(frame, tmp_path / "check") as seen:
        assert seen.wait(30) == list(range(30))
        for start in (30, 60):
            bridge.broker.kill()
            bridge = own_broker(listen=listen, args=args, **stream_environment({"long": 2}))
            send(bridge.broker, numbered("long/x", 30, start), **user)
            assert seen.wait(start + 30) == list(range(start + 30))

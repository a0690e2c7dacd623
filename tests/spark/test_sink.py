"""`df.write.format("vmq")` and `df.writeStream.format("vmq")`: rows become messages, each once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import LongType, StringType, StructType
from pyspark_vmq.client import client_of
from pyspark_vmq.errors import Unavailable, VmqError
from pyspark_vmq.options import sink_options
from pyspark_vmq.source import DefaultSource
from pyspark_vmq.writing import check_columns, messages_of

from tests.spark.support import Bridge, fails, finish, send
from tests.support.wire import PUBLISH, Wire
from vmq.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rows_of(bridge: Bridge, count: int, columns: str, tasks: int = 3) -> DataFrame:
    """Numbers as messages: SQL over `id`."""
    return bridge.spark.range(count).repartition(tasks).selectExpr(*columns.split("; "))


def published(bridge: Bridge, topic: str) -> Counter[str]:
    """Payloads that went to a topic of stream sunk."""
    found = bridge.load(stream="sunk", topic=topic).select("payload").collect()
    return Counter(bytes(row.payload).decode() for row in found)


def test_batch_goes_to_the_topic_of_each_row(bridge: Bridge) -> None:
    rows = rows_of(
        bridge,
        100,
        "concat('sunk/each/', id % 2) topic; cast(id as string) payload; cast(id % 3 as int) qos; "
        "id = 7 retain",
    )
    bridge.save(rows)
    found = bridge.load(stream="sunk", topic="sunk/each/+").collect()
    assert sorted(int(bytes(row.payload)) for row in found) == list(range(100))
    for row in found:
        number = int(bytes(row.payload))
        assert (row.topic, row.qos) == (f"sunk/each/{number % 2}", number % 3)
    wire = Wire.connected(bridge.broker.tcp, "later")
    wire.subscribe(("sunk/each/+", 1))
    kept = wire.expect(PUBLISH)
    assert (kept.topic, kept.payload, kept.retain) == ("sunk/each/1", b"7", True)
    wire.stream.close()


def test_options_stand_in_for_columns(bridge: Bridge) -> None:
    rows = rows_of(bridge, 5, "if(id = 2, null, cast(id as string)) payload")
    bridge.save(rows, topic="sunk/option", qos=2)
    found = bridge.load(stream="sunk", topic="sunk/option").collect()
    assert {row.qos for row in found} == {2}
    assert sorted(len(row.payload) for row in found) == [0, 1, 1, 1, 1]


def test_rows_without_a_topic_take_the_option(bridge: Bridge) -> None:
    rows = rows_of(bridge, 4, "if(id < 2, null, 'sunk/own') topic; cast(id as string) payload")
    bridge.save(rows, topic="sunk/else")
    assert published(bridge, "sunk/else") == Counter("01")
    assert published(bridge, "sunk/own") == Counter("23")


def test_what_can_be_no_message_is_refused_before_any_task(bridge: Bridge) -> None:
    with fails("option 'columns'", "there is no 'payload'"):
        bridge.save(rows_of(bridge, 3, "'sunk/bad' topic", tasks=1))
    options = sink_options({"server": bridge.url})
    for name, kind, said in (
        ("payload", StringType(), "option 'topic': is missing"),
        ("payload", LongType(), "'payload' is bigint; accepted: binary"),
        ("number", LongType(), "'number' means nothing"),
    ):
        with fails(said):
            check_columns(StructType().add(name, kind), options)


@pytest.mark.parametrize("kind", ["writer", "streamWriter"])
def test_a_broker_that_is_away_is_told_by_the_driver_before_any_task(kind: str) -> None:
    given = {"server": "grpc://127.0.0.1:1", "topic": "sunk/away", "retryTimeout": "0"}
    source = DefaultSource(CaseInsensitiveDict(given))
    with pytest.raises(Unavailable, match="option 'server'"):
        getattr(source, kind)(StructType().add("payload", StringType()), overwrite=False)


def test_a_row_that_is_no_message_ends_the_query_and_nothing_is_published(bridge: Bridge) -> None:
    with fails("'sunk/#'", "one without + and #"):
        bridge.save(
            rows_of(bridge, 3, "if(id = 2, 'sunk/#', 'sunk/bad') topic; 'x' payload", tasks=1)
        )
    assert not published(bridge, "sunk/bad")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"topic": "sunk/#"}, "'sunk/#'.*one without [+] and #"),
        ({"topic": ""}, "topic"),
        ({"topic": None}, "a row has no topic, and option 'topic' gives none"),
        ({"topic": "sunk/bad", "qos": 7}, "qos.*accepted: 0, 1, 2"),
    ],
)
def test_each_wrong_row_is_named(stage: BrokerProcess, row: dict[str, Any], said: str) -> None:
    """As a task stages it."""
    server = next(url for url in stage.urls if url.startswith("grpc"))
    options = sink_options({"server": server})
    batch = pa.RecordBatch.from_pylist([row | {"payload": b"x"}])
    part = {"query": "wrong", "batch": 0, "part": 0}
    with pytest.raises(VmqError, match=said):
        client_of(options.connection).stage(part, [*messages_of([batch], options)])


def test_overwrite_is_refused(bridge: Bridge) -> None:
    rows = rows_of(bridge, 3, "'x' payload")
    with fails("option 'mode'", "overwrite is not accepted"):
        writer = rows.write.format("vmq").options(server=bridge.url, topic="sunk/bad")
        writer.mode("overwrite").save()
    assert not published(bridge, "sunk/bad")


def test_tasks_that_fail_after_staging_publish_once(bridge: Bridge, tmp_path: Path) -> None:
    """What their first attempts laid down is not published."""
    from tests.spark.stumbling import StumblingSource

    bridge.spark.dataSource.register(StumblingSource)
    for name in ("batch", "stream"):
        (tmp_path / name).mkdir()
    options = bridge.options({"topic": "sunk/stumble", "marks": tmp_path / "batch"})
    rows = rows_of(bridge, 200, "cast(id as string) payload")
    rows.write.format("stumbling").options(**options).mode("append").save()
    assert len(list((tmp_path / "batch").iterdir())) == 3
    assert published(bridge, "sunk/stumble") == Counter(map(str, range(200)))

    query = (
        bridge.stream("payload binary", topic="sunk/stumble", startingOffsets="earliest")
        .writeStream.format("stumbling")
        .options(**options | {"topic": "sunk/again", "marks": str(tmp_path / "stream")})
        .option("checkpointLocation", str(tmp_path / "check"))
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    assert len(list((tmp_path / "stream").iterdir())) >= 1
    assert published(bridge, "sunk/again") == Counter(map(str, range(200)))


def test_streams_are_published_once_also_when_a_batch_is_repeated(
    bridge: Bridge, tmp_path: Path
) -> None:
    check = tmp_path / "check"
    sent = [("repeated/sink", str(number).encode()) for number in range(300)]
    send(bridge.broker, sent, client_id="source")
    rows = bridge.stream(
        topic="repeated/sink", startingOffsets="earliest", maxOffsetsPerTrigger=100
    )
    out = rows.selectExpr("concat('sunk/stream/', cast(payload as string) % 3) topic", "payload")

    finish(bridge.write(out, check))
    assert published(bridge, "sunk/stream/+") == Counter(map(str, range(300)))

    # As if the driver had died between publishing and noting that it had: the batch is repeated.
    last = max(int(path.name) for path in (check / "commits").iterdir() if path.name.isdigit())
    for path in (check / "commits" / str(last), check / "commits" / f".{last}.crc"):
        path.unlink(missing_ok=True)
    finish(bridge.write(out, check))
    assert (check / "commits" / str(last)).exists()
    assert published(bridge, "sunk/stream/+") == Counter(map(str, range(300)))


def test_complete_mode_writes_the_whole_result_each_time(bridge: Bridge, tmp_path: Path) -> None:
    send(bridge.broker, [("failing/agg", b"1")] * 6)
    counts = (
        bridge.stream(topic="failing/agg", startingOffsets="earliest", maxOffsetsPerTrigger=3)
        .groupBy("topic")
        .count()
        .selectExpr("'sunk/counts' topic", "cast(count as string) payload")
    )
    query = (
        counts.writeStream.format("vmq")
        .options(server=bridge.url, checkpointLocation=str(tmp_path))
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    finish(query)
    assert published(bridge, "sunk/counts") == Counter("36")

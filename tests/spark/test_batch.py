"""`spark.read.format("vmq")`: what lies in a stream, as rows."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.types import LongType, MapType, StringType, StructType
from pyspark_vmq.options import source_options
from pyspark_vmq.schema import projection
from pyspark_vmq.source import Reader

from tests.spark.support import Bridge, fails, send


@pytest.fixture(scope="module")
def filled(bridge: Bridge) -> Bridge:
    """600 messages of six devices in stream batch."""
    for device in range(6):
        send(
            bridge.broker,
            [(f"batch/s{device}/temp", str(number).encode()) for number in range(100)],
            client_id=f"device-{device}",
        )
    return bridge


def test_files_of_the_broker_and_what_it_sends_are_the_same_rows(filled: Bridge) -> None:
    for topic in ("#", "batch/s1/+"):
        here = filled.load(stream="batch", topic=topic)
        sent = filled.load(stream="batch", topic=topic, localReads="false")
        assert sorted(here.collect()) == sorted(sent.collect())
    with fails("option 'localReads'", "'maybe' is not accepted; expected true or false"):
        filled.load(stream="batch", localReads="maybe").count()


def test_register_makes_format_known_to_sql(filled: Bridge) -> None:
    from pyspark_vmq import register

    register(filled.spark)
    filled.spark.sql(
        f"create temporary view seen using vmq options (server '{filled.url}', stream 'batch')"
    )
    try:
        assert filled.spark.sql("select count(distinct topic) from seen").head() == (6,)
    finally:
        filled.spark.sql("drop view seen")


def test_all_columns_have_their_types_and_values(bridge: Bridge) -> None:
    send(bridge.broker, [("columns/a", b"\x00\xff")], client_id="sensor")
    frame = bridge.load(stream="columns")
    assert frame.schema.simpleString() == (
        "struct<topic:string,payload:binary,qos:int,retain:boolean,timestamp:timestamp,client_id:string,"
        "key:binary,headers:array<struct<key:string,value:string>>,stream:string,partition:int,"
        "offset:bigint>"
    )
    (row,) = frame.collect()
    found = (row.topic, bytes(row.payload), row.qos, row.retain)
    assert found == ("columns/a", b"\x00\xff", 1, False)
    found = (row.client_id, bytes(row.key), row.stream, row.offset)
    assert found == ("sensor", b"sensor", "columns", 0)
    assert row.partition in {0, 1}
    age = datetime.now(UTC).replace(tzinfo=None) - row.timestamp
    assert abs(age) < timedelta(days=1)  # whatever zone this machine shows times in


def test_schema_chooses_columns(filled: Bridge) -> None:
    frame = filled.load("offset bigint, payload binary", stream="batch", topic="batch/s1/temp")
    rows = frame.orderBy("offset").collect()
    assert frame.columns == ["offset", "payload"]
    assert [bytes(row.payload) for row in rows] == [str(n).encode() for n in range(100)]


def test_wrong_schema_is_refused(filled: Bridge) -> None:
    strings = MapType(StringType(), StringType())
    for name, kind, said in (
        ("topik", strings, "no column 'topik' of type map"),
        ("payload", StringType(), "column 'payload' is binary, not string"),
    ):
        with fails("option 'schema'", said):
            projection(StructType().add(name, kind))
    # It might have been a typed column: the broker knows.
    with fails("there is no column 'topik'; accepted: topic, payload"):
        filled.load("payload binary, topik string", stream="batch").collect()


def test_order_holds_in_a_partition(filled: Bridge) -> None:
    rows = filled.load(stream="batch", minPartitions=5).select("client_id", "payload", "partition")
    assert rows.rdd.getNumPartitions() >= 5
    seen: dict[str, list[int]] = {}
    for row in rows.collect():
        seen.setdefault(row.client_id, []).append(int(bytes(row.payload)))
    assert seen == {f"device-{device}": list(range(100)) for device in range(6)}


def test_topic_finds_its_stream_and_filters(filled: Bridge) -> None:
    for topic, count in (("batch/+/temp", 600), ("batch/s2/temp", 100), ("batch/s9/temp", 0)):
        assert filled.load(topic=topic).count() == count


def test_offsets_and_times_bound_a_read(filled: Bridge) -> None:
    start, end = {"0": 10, "1": -2}, {"0": 25, "1": 0}
    frame = filled.load(
        stream="batch",
        startingOffsets=json.dumps({"batch": start}),
        endingOffsets=json.dumps({"batch": end}),
    )
    assert [row.offset for row in frame.orderBy("offset").collect()] == list(range(10, 25))
    assert filled.load(stream="batch", startingOffsets="earliest").count() == 600
    assert filled.load(stream="batch", endingOffsets="latest").count() == 600
    assert filled.load(stream="batch", startingTimestamp="2020-01-01T00:00:00Z").count() == 600
    assert filled.load(stream="batch", startingTimestamp="4000000000000").count() == 0
    assert filled.load(stream="batch", endingTimestamp="0").count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "other/+"}, ("'topic'", "no stream keeps all of 'other/+'", "[streams.NAME]")),
        ({"topic": "twice/a"}, ("'topic'", "several streams keep all of 'twice/a'", "'stream'")),
        ({"stream": "nope"}, ("there is no stream 'nope'", "there are: ", "batch")),
        ({"stream": "batch", "startingOffsets": '{"batch":{"7":1}}'}, ("has no partition 7",)),
        ({"stream": "batch", "startingOffsets": '{"plan":{"0":1}}'}, ("stream 'plan'",)),
        (
            {"stream": "batch", "startingOffsets": '{"batch":{"0":99999999}}'},
            ("offset 99999999 is not there", "option 'failOnDataLoss'"),
        ),
        (
            {"stream": "batch", "endingOffsets": '{"batch":{"1":99999999}}'},
            (
                "option 'endingOffsets'",
                "partition 1 of stream 'batch' ends at ",
                "'failOnDataLoss'",
            ),
        ),
    ],
)
def test_what_the_broker_knows_to_be_wrong_is_named(
    filled: Bridge, options: dict[str, str], said: tuple[str, ...]
) -> None:
    """As Spark's planner asks; what is wrong in itself: tests/plugins/pyspark_vmq/test_options.py."""
    given = source_options({"server": filled.url, **options}, "batch")
    with fails(*said):
        Reader(given, projection(StructType().add("offset", LongType()))).partitions()


def test_wrong_options_are_named_by_spark(filled: Bridge) -> None:
    with fails("option 'startingoffset'", "is unknown"):
        filled.load(stream="batch", startingOffset="1").count()


def test_an_end_that_is_not_there_is_moved_on_request(filled: Bridge) -> None:
    beyond = json.dumps({"batch": {"0": 99_999_999}})
    assert filled.load(stream="batch", endingOffsets=beyond, failOnDataLoss="false").count() == 600


def test_lost_offsets_are_passed_over_on_request(filled: Bridge) -> None:
    beyond = json.dumps({"batch": {"0": 99_999_999, "1": -2}})
    rest = filled.load(
        stream="batch", startingOffsets=beyond, failOnDataLoss="false", minPartitions=1
    )
    assert {row.partition for row in rest.collect()} <= {1}

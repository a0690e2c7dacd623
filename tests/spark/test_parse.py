"""`parse`: levels of the topic and fields of the payload as typed columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOOD = '{"value": 1.5, "unit": "C"}'


@pytest.fixture(scope="module")
def messages(spark: SparkSession) -> DataFrame:
    rows = [
        ("plant/north/line/3/temp", GOOD),
        ("plant/north/line/4/temp", "not json"),
        ("plant/south/line/1/temp", '{"value": "warm"}'),
        ("plant/south/line/1/temp/extra", GOOD),
        ("plant/south/line/1/hum", GOOD),
        ("plant//line//temp", '{"unit": null, "other": 1}'),
        ("office/north/line/3/temp", GOOD),
    ]
    found = spark.createDataFrame(rows, "topic string, payload string")
    return found.selectExpr("topic", "cast(payload as binary) payload").cache()


def taken(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.select(*columns).collect()), key=str)


def test_levels_and_fields_become_columns(messages: DataFrame) -> None:
    from pyspark_vmq import parse

    found = parse(messages, "plant/{site}/line/{line}/temp", "value double, unit string")
    assert found.columns == ["topic", "payload", "site", "line", "value", "unit"]
    assert taken(found, "site", "line", "value", "unit") == sorted(
        [
            ("north", "3", 1.5, "C"),
            ("north", "4", None, None),
            ("south", "1", None, None),
            ("", "", None, None),
        ],
        key=str,
    )


@pytest.mark.parametrize(
    ("topic", "count"),
    [
        ("plant/{site}/#", 6),
        ("plant/+/line/+/temp", 4),
        ("{root}/north/line/3/temp", 2),
        ("plant/south/line/1/temp/#", 2),
        ("#", 7),
        ("nothing", 0),
    ],
)
def test_topic_selects(messages: DataFrame, topic: str, count: int) -> None:
    from pyspark_vmq import parse

    assert parse(messages, topic).count() == count


def test_prefix_avoids_clashes(messages: DataFrame) -> None:
    from pyspark_vmq import VmqError, parse

    with pytest.raises(VmqError, match="the columns topic are there already; give prefix="):
        parse(messages, "plant/{topic}/#")
    with pytest.raises(VmqError, match="the columns site are there already"):
        parse(messages, "plant/{site}/#", "site string")
    found = parse(messages, "plant/{topic}/#", "payload string", prefix="my_")
    assert found.columns == ["topic", "payload", "my_topic", "my_payload"]


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("plant/{a}/{a}", "stands twice"),
        ("plant/{a", "level '{a'"),
        ("plant/#/x", "level '#'"),
        ("plant/a+", r"level 'a\+'"),
    ],
)
def test_malformed_topics_are_refused(messages: DataFrame, topic: str, said: str) -> None:
    from pyspark_vmq import VmqError, parse

    with pytest.raises(VmqError, match=said):
        parse(messages, topic)

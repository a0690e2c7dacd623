"""`vmq_spark_stream` with Spark, as docs/testing.md says: a DataFrame, and a streaming one that goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from vmq.testing import SparkStream


def readings(frame: DataFrame) -> set[tuple[str, bytes]]:
    return {(row.topic, bytes(row.payload)) for row in frame.collect()}


@pytest.mark.vmq(filters=["sensors/#"], name="readings", partitions=2)
def test_what_a_test_adds_is_read_by_spark(
    spark: SparkSession, vmq_spark_stream: SparkStream
) -> None:
    vmq_spark_stream.add(("sensors/1", "20.5"), ("sensors/2", b"21"), ("elsewhere", "no"))
    wanted = {("sensors/1", b"20.5"), ("sensors/2", b"21")}
    assert readings(vmq_spark_stream.read(spark)) == wanted
    assert readings(vmq_spark_stream.read(spark, topic="sensors/2")) == {("sensors/2", b"21")}
    rows = vmq_spark_stream.table()
    with duckdb.connect() as database:
        database.register("readings", rows)
        assert database.execute("select count(*) from readings").fetchall() == [(2,)]

    queries = []
    for name, options in (("all_readings", {}), ("new_readings", {"startingOffsets": "latest"})):
        frame = vmq_spark_stream.read_stream(spark, **options)
        queries.append(frame.writeStream.format("memory").queryName(name).start())
    try:
        for each in queries:
            each.processAllAvailable()
        assert readings(spark.table("all_readings")) == wanted
        vmq_spark_stream.add(("sensors/3", "22"))
        for each in queries:
            each.processAllAvailable()
        assert readings(spark.table("all_readings")) == {*wanted, ("sensors/3", b"22")}
        assert readings(spark.table("new_readings")) == {("sensors/3", b"22")}
    finally:
        for each in queries:
            each.stop()

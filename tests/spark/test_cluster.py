"""A stream of a cluster in Spark: the address of any one node will do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster_processes.cluster import LinkedCluster
from tests.cluster_processes.test_replicas import leaders, wait_led
from tests.spark.support import PATIENCE, send, take_all
from tests.vmq.cli.program import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = {
    "VMQ_STREAMS__LOG__FILTERS": '["log/#"]',
    "VMQ_STREAMS__LOG__PARTITIONS": "4",
    "VMQ_STREAMS__LOG__REPLICAS": "1",
    "VMQ_STREAMS__LOG__KEY": "topic",
}
TOPICS = [f"log/{number}" for number in range(20)]


@pytest.fixture
def cluster(spark: SparkSession) -> Iterator[LinkedCluster]:
    with LinkedCluster(("a", "b"), STREAM, ["grpc://127.0.0.1:0"]) as found:
        yield found


def fill(cluster: LinkedCluster, node: str, word: str) -> None:
    send(cluster[node].process, [(topic, f"{word} {topic}".encode()) for topic in TOPICS])


def wait_for(frame: DataFrame, count: int) -> list[tuple[int, int, str]]:
    """What a read finds: what is acknowledged may still be on its way to its owner."""
    for _ in range(PATIENCE):
        rows = frame.selectExpr("partition", "offset", "cast(payload as string) as text").collect()
        if len(rows) >= count:
            break
    assert len(rows) == count
    return sorted((row.partition, row.offset, row.text) for row in rows)


def duckdb_finds(server: str) -> object:
    """What the program for DuckDB that docs/streams.md shows finds."""
    page = (Path(__file__).parents[2] / "docs" / "streams.md").read_text(encoding="utf-8")
    (program,) = (
        each for each in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "duckdb" in each
    )
    names: dict[str, object] = {}
    exec(program.replace("grpc://127.0.0.1:8815", server).replace('"sensors"', '"log"'), names)
    return names["found"]


def test_any_node_leads_to_all_partitions(
    spark: SparkSession, cluster: LinkedCluster, tmp_path: Path
) -> None:
    fill(cluster, "a", "one")
    fill(cluster, "b", "one")
    seen = []
    for name in ("a", "b"):
        reader = spark.read.format("vmq").option("server", cluster[name].flight)
        seen.append(wait_for(reader.option("stream", "log").load(), 2 * len(TOPICS)))
    assert seen[0] == seen[1]
    for name in ("a", "b"):
        assert duckdb_finds(cluster[name].flight) == [(topic, 2) for topic in sorted(TOPICS)]

    # A query that began while two nodes had the partitions goes on when one has them all.
    def go_on() -> int:
        source = spark.readStream.format("vmq").option("server", cluster["a"].flight)
        rows = source.option("stream", "log").option("startingOffsets", "earliest").load()
        take_all(rows, tmp_path / "rows", tmp_path / "checkpoint")
        return spark.read.parquet(str(tmp_path / "rows")).count()

    assert go_on() == 2 * len(TOPICS)
    there = ("--data-dir", str(cluster["b"].data_dir))
    assert run("cluster", "leave", "--timeout", "30", *there).code == 0
    cluster["b"].close()
    fill(cluster, "a", "two")
    reader = spark.read.format("vmq").option("server", cluster["a"].flight)
    wait_for(reader.option("stream", "log").load(), 3 * len(TOPICS))
    assert go_on() == 3 * len(TOPICS)
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert rows.select("partition", "offset").distinct().count() == 3 * len(TOPICS)


def test_a_query_goes_on_while_a_leader_is_killed(spark: SparkSession, tmp_path: Path) -> None:
    """Of a stream with copies: what is acknowledged is in the query's table once, whoever led when it was written."""
    env = {**STREAM, "VMQ_STREAMS__LOG__REPLICAS": "3"}
    with LinkedCluster(("a", "b", "c"), env, ["grpc://127.0.0.1:0"]) as cluster:
        wait_led(*cluster.running)
        fill(cluster, "a", "one")
        source = spark.readStream.format("vmq").option("server", cluster["a"].flight)
        rows = source.option("stream", "log").option("startingOffsets", "earliest").load()
        query = (
            rows.writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )
        try:
            query.processAllAvailable()
            dying = next(str(each) for each in leaders(cluster["a"]) if each != "a")
            cluster[dying].kill()
            fill(cluster, "a", "two")
            query.processAllAvailable()
        finally:
            query.stop()
        found = spark.read.parquet(str(tmp_path / "rows"))
        texts = found.selectExpr("cast(payload as string) as text").collect()
        wanted = [f"{word} {topic}" for word in ("one", "two") for topic in TOPICS]
        assert sorted(row.text for row in texts) == sorted(wanted)

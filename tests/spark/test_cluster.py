"""A stream of a cluster in Spark: the address of any one node will do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster_processes.cluster import LinkedCluster
from tests.cluster_processes.test_replicas import FLIGHT, leaders, shown
from tests.spark.support import PATIENCE, send, take_all
from tests.support.pages import ROOT, ran
from tests.support.until import reach
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
    here = {"grpc://127.0.0.1:8815": server, '"sensors"': '"log"'}
    return ran(ROOT / "docs" / "streams.md", "duckdb", here)["found"]


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


def test_a_query_goes_on_while_partitions_come_and_move_and_a_node_dies(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Of a stream with copies: what is acknowledged is in the query's table once, whoever had it when it was read."""
    words = ("at first", "more partitions", "one has moved", "a leader is dead", "it is removed")
    with LinkedCluster("abcd", urls=FLIGHT) as cluster:

        def vmq(command: str) -> None:
            done = run(*command.split(), "--data-dir", str(cluster["a"].data_dir))
            assert done.code == 0, done.err

        vmq("stream create log -t log/# --partitions 2 --replicas 3 --key topic")
        steps = iter(words)
        fill(cluster, "a", next(steps))
        servers = ",".join(cluster[each].flight for each in "dcba")
        source = spark.readStream.format("vmq").option("server", servers).option("stream", "log")
        query = (
            source.option("startingOffsets", "earliest")
            .load()
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )
        try:
            query.processAllAvailable()
            vmq("stream alter log --partitions 6")
            fill(cluster, "a", next(steps))
            have = shown(cluster["a"])[0]["replicas"]
            assert isinstance(have, list)
            goal = [*({*"abcd"} - {*have}), *have[:2]]
            vmq(f"stream move log --partition 0 --to {' --to '.join(goal)}")
            reach(lambda: shown(cluster["a"])[0]["replicas"] == goal)
            fill(cluster, "a", next(steps))
            query.processAllAvailable()
            dying = next(each for each in "dcb" if each in leaders(cluster["a"]))
            cluster[dying].kill()
            fill(cluster, "a", next(steps))
            vmq(f"cluster remove {dying}")
            fill(cluster, "a", next(steps))
            query.processAllAvailable()
        finally:
            query.stop()
        found = spark.read.parquet(str(tmp_path / "rows"))
        texts = found.selectExpr("cast(payload as string) as text").collect()
        wanted = [f"{word} {topic}" for word in words for topic in TOPICS]
        assert sorted(row.text for row in texts) == sorted(wanted)

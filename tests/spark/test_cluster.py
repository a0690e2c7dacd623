"""A stream of a cluster in Spark: the address of any one node will do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cluster_processes.cluster import LinkedCluster
from tests.spark.support import PATIENCE, send
from tests.vmq.cli.program import run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = {
    "VMQ_STREAMS__LOG__FILTERS": '["log/#"]',
    "VMQ_STREAMS__LOG__PARTITIONS": "4",
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
        query = (
            rows.writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE)
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

"""Rows were lost, and given up by an operator: a query whose checkpoint is among them goes on behind them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.cluster_processes.cluster import LinkedCluster
from tests.cluster_processes.test_replicas import options_of, shown, wait_led, wait_whole
from tests.spark.support import send, take_all
from tests.support.until import reach
from tests.vmq.cli.program import here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = options_of("log", "os", replicas=2) | {"VMQ_STREAMS__LOG__PARTITIONS": "1"}


def fill(cluster: LinkedCluster, count: int) -> None:
    for _ in range(0, count, 20):
        send(cluster["a"].process, [("log/x", bytes(600))] * 20)


def lose(cluster: LinkedCluster, offset: int) -> Any:
    """Has all nodes lose the segment with an offset, and gives it up; returns what is gone."""
    where = [("--data-dir", str(node.data_dir)) for node in cluster.running]
    for node, at in zip(cluster.running, where, strict=True):
        paths = sorted((node.data_dir / "streams" / "log" / "0").glob("*.arrows"))
        path = next(each for each in reversed(paths[:-2]) if int(each.stem) <= offset)
        path.write_bytes(bytes(path.stat().st_size))
        assert here("stream", "verify", "--local", *at).code

    def have_done(*command: str) -> list[bool]:
        return [here("stream", *command, *each).code == 0 for each in where]

    reach(lambda: any(have_done("accept-loss", "log")), "nobody gives it up", rest=1.0)
    reach(lambda: all(have_done("verify", "--local")), "not all have given it up", rest=1.0)
    reach(lambda: bool(shown(cluster["a"])[0]["given_up"]), "no hole is shown", rest=1.0)
    return shown(cluster["a"])[0]["given_up"]


def test_a_query_that_stands_in_a_hole_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    with LinkedCluster(("a", "b"), STREAM, ["grpc://127.0.0.1:0"]) as cluster:
        wait_led(*cluster.running)
        options = {"server": cluster["a"].flight, "stream": "log"}
        source = spark.readStream.format("vmq").options(**options, startingOffsets="earliest")
        rows, checkpoint = tmp_path / "rows", tmp_path / "checkpoint"
        fill(cluster, 140)
        take_all(source.load(), rows, checkpoint)
        place = json.loads((checkpoint / "offsets" / "0").read_text().splitlines()[-1])
        place = place["s"]["log"]["0"]
        fill(cluster, 340)
        wait_whole(*cluster.running)
        ((begin, end),) = lose(cluster, place)
        assert begin < place < end
        query = take_all(source.option("maxOffsetsPerTrigger", 40).load(), rows, checkpoint)
        assert 0 in [each["numInputRows"] for each in query.recentProgress]
        found = [row.offset for row in spark.read.parquet(str(rows)).select("offset").collect()]
        batch = spark.read.format("vmq").options(**options).load().select("offset").collect()
        left = {row.offset for row in batch}
        assert len(left) == len(batch)
        assert left.isdisjoint(range(begin, end))
        assert sorted(found) == sorted(left | {at for at in found if at < place})
        where = ("--data-dir", str(cluster["b"].data_dir))
        told = here("sql", "select count(*) as n from log", "--json", *where)
        assert json.loads(told.out) == {"n": len(left)}, told.err

"""Spark's side, measured: python -m tests.bench.spark [--messages 1000000] [--rounds 3] [--latencies 60]

Reading: rows per second and core-seconds of `spark.read.format("vmq")` against Spark's own Parquet reader on
the same rows, both into the noop sink, in turn, in one session; the best round counts. Core-seconds are of
the JVM, its Python workers and the broker.

Latency: from publishing a message to its appearance in foreachBatch, at trigger 0, against the time
that a micro-batch of the built-in rate source takes in the same session, with the same foreachBatch.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter, time
from typing import TYPE_CHECKING, Any

import psutil

from tests.spark.support import Bridge, executors_environment, stream_environment
from tests.support.broker_process import BrokerProcess
from tests.support.wire import PUBACK, Wire, publish_packet

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

LISTEN = ("tcp://127.0.0.1:0", "grpc://127.0.0.1:0")
WINDOW = 2000
#: Messages that come before those that are measured.
WARM = 10


def fill(broker: BrokerProcess, messages: int, devices: int = 4) -> None:
    """Publishes messages of 100 random bytes at QoS 1."""
    wires = [Wire.connect_tcp(broker.tcp) for _ in range(devices)]
    for number, wire in enumerate(wires):
        wire.connect(f"device-{number}")
    for _ in range(messages // (WINDOW * devices)):
        for number, wire in enumerate(wires):
            wire.send(
                *(
                    publish_packet(f"bulk/{number}", os.urandom(100), qos=1, packet_id=packet_id)
                    for packet_id in range(1, WINDOW + 1)
                )
            )
        for wire in wires:
            for _ in range(WINDOW):
                wire.expect(PUBACK)
    for wire in wires:
        wire.stream.close()


def core_seconds() -> float:
    """CPU of all that this process has started, and of itself."""
    me = psutil.Process()
    spent = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        spent += times.user + times.system + times.children_user + times.children_system
    return spent


def scan(rows: DataFrame) -> tuple[float, float]:
    """Seconds and core-seconds of reading all rows."""
    cores, start = core_seconds(), perf_counter()
    rows.write.format("noop").mode("overwrite").save()
    return perf_counter() - start, core_seconds() - cores


def reading(bridge: Bridge, folder: Path, rounds: int) -> dict[str, Any]:
    """vmq against Parquet, all columns."""
    parquet = str(folder / "parquet")
    bridge.load(stream="bulk").write.parquet(parquet)
    frames: dict[str, Callable[[], DataFrame]] = {
        "vmq": lambda: bridge.load(stream="bulk"),
        "parquet": lambda: bridge.spark.read.parquet(parquet),
    }
    count = frames["parquet"]().count()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in frames}
    for _ in range(rounds + 1):
        for name, frame in frames.items():
            found[name].append(scan(frame()))
    best = {
        name: (min(each[0] for each in runs[1:]), min(each[1] for each in runs[1:]))
        for name, runs in found.items()
    }
    return {
        "rows": count,
        **{
            name: {"rows/s": round(count / wall), "core-seconds": round(cores, 2)}
            for name, (wall, cores) in best.items()
        },
        "rate, vmq to parquet": round(best["parquet"][0] / best["vmq"][0], 2),
        "core-seconds, vmq to parquet": round(best["vmq"][1] / best["parquet"][1], 2),
    }


def latency(bridge: Bridge, folder: Path, count: int) -> dict[str, Any]:
    """Publish to foreachBatch, one message after the other has arrived, against the rate source."""
    arrived = threading.Semaphore(0)
    delays: list[float] = []

    def take(rows: DataFrame, _batch: int) -> None:
        for row in rows.collect():
            delays.append(time() - float(bytes(row.payload)))
            arrived.release()

    query = (
        bridge.stream("payload binary", topic="late/#", startingOffsets="earliest")
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(folder / "late"))
        .start()
    )
    wire = Wire.connect_tcp(bridge.broker.tcp)
    wire.connect("late")
    for _ in range(count + WARM):
        wire.publish("late/x", repr(time()).encode(), qos=1)
        assert arrived.acquire(timeout=60), query.exception()
    wire.stream.close()
    query.stop()

    taken: list[int] = []
    rate = bridge.spark.readStream.format("rate").option("rowsPerSecond", 1000).load()
    query = (
        rate.writeStream.foreachBatch(lambda rows, _batch: taken.append(len(rows.collect())))
        .option("checkpointLocation", str(folder / "rate"))
        .start()
    )
    batches: dict[int, int] = {}
    while len(batches) < min(count, 40):
        threading.Event().wait(1)
        for each in query.recentProgress:
            if each["numInputRows"]:
                batches[each["batchId"]] = each["durationMs"]["triggerExecution"]
    query.stop()
    floor = median(list(batches.values())[3:])
    p50 = median(delays[WARM:]) * 1000
    return {
        "publish to foreachBatch p50, ms": round(p50),
        "micro-batch of the rate source p50, ms": round(floor),
        "ratio": round(p50 / floor, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Spark's side, measured.")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--latencies", type=int, default=60)
    arguments = parser.parse_args()
    from pyspark.sql import SparkSession

    os.environ.update(executors_environment())
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.catalogImplementation", "in-memory")
        .config("spark.sql.streaming.noDataMicroBatches.enabled", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    env = stream_environment({"bulk": 4, "late": 1})
    with (
        tempfile.TemporaryDirectory() as name,
        BrokerProcess.start(LISTEN, env=env, args=("--allow-anonymous",)) as broker,
    ):
        bridge = Bridge(spark, broker)
        fill(broker, arguments.messages)
        found = {
            "load before": os.getloadavg()[0],
            "reading": reading(bridge, Path(name), arguments.rounds),
            "latency": latency(bridge, Path(name), arguments.latencies),
            "load after": os.getloadavg()[0],
        }
        print(json.dumps(found, indent=2))
        spark.stop()


if __name__ == "__main__":
    main()

"""Spark's side, measured: python -m tests.bench.spark [--messages 1000000] [--rounds 6] [--turns 10]

Reading: rows per second and core-seconds of `spark.read.format("vmq")` against Spark's own Parquet reader on
the same rows, all columns, both into the noop sink, in turn, in one session, by the best rounds. Core-seconds
are of the JVM, its Python workers and the broker. `ready` is a source in Python that has its batches in
memory: what Spark takes for rows from Python, and the least that any such source costs.

Latency: see `tests.bench.spark.latency`, which is also a program of its own.

The session has the settings that pyspark_vmq's page names; `--plain` leaves them out.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import psutil

from tests.bench.spark import latency
from tests.bench.spark.ready import Ready
from tests.bench.spark.session import LISTEN, Bar, session
from tests.spark.support import Bridge, stream_environment
from tests.support.broker_process import BrokerProcess
from tests.support.wire import PUBACK, Wire, publish_packet
from vmq import is_compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


WINDOW = 2000


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


def reading(bridge: Bridge, folder: Path, rounds: int) -> list[Bar]:
    """vmq against Parquet, all columns."""
    parquet = str(folder / "parquet")
    bridge.load(stream="bulk").write.parquet(parquet)
    count = bridge.spark.read.parquet(parquet).count()
    bridge.spark.dataSource.register(Ready)
    frames: dict[str, Callable[[], DataFrame]] = {
        "vmq": lambda: bridge.load(stream="bulk"),
        "parquet": lambda: bridge.spark.read.parquet(parquet),
        "ready": lambda: bridge.spark.read.format("ready").option("rows", count).load(),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in frames}
    for _ in range(rounds + 1):
        for name, frame in frames.items():
            found[name].append(scan(frame()))
    print(f"{count:,} rows {'rows/s':>12} {'core-seconds':>14} {'median':>8}")
    best = {}
    for name, runs in found.items():
        wall, cores = (min(each[at] for each in runs[1:]) for at in (0, 1))
        best[name] = wall, cores
        middle = median(each[1] for each in runs[1:])
        print(f"{name:14} {count / wall:12,.0f} {cores:14.2f} {middle:8.2f}", flush=True)
    (wall, cores), (wall_there, cores_there) = best["vmq"], best["parquet"]
    ready = best["ready"]
    return [
        Bar("rate, vmq to parquet", wall_there / wall, 0.9, least=True),
        Bar("core-seconds, vmq to parquet", cores / cores_there, 1.3),
        Bar("rate, ready to parquet", wall_there / ready[0], None),
        Bar("core-seconds, ready to parquet", ready[1] / cores_there, None),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Spark's side, measured.")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--turns", type=int, default=10)
    arguments = parser.parse_args()
    spark = session(plain=arguments.plain)
    env = stream_environment({"bulk": 4, **latency.PARTITIONS})
    with (
        tempfile.TemporaryDirectory() as name,
        BrokerProcess.start(LISTEN, env=env, args=("--allow-anonymous",)) as broker,
    ):
        bridge = Bridge(spark, broker)
        fill(broker, arguments.messages)
        print(
            f"core {'compiled' if is_compiled() else 'INTERPRETED'}; load {os.getloadavg()[0]:.1f}"
        )
        bars = reading(bridge, Path(name), arguments.rounds)
        bars += latency.latency(bridge, Path(name), arguments.turns)
        print(*bars, f"load {os.getloadavg()[0]:.1f}", sep="\n")
        spark.stop()


if __name__ == "__main__":
    main()

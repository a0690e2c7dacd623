"""Spark's side, measured: python -m tests.bench.spark [--messages 1000000] [--rounds 6] [--turns 10]

Reading: rows per second and core-seconds of `spark.read.format("vmq")` against Spark's own Parquet reader on
the same rows, all columns, both into the noop sink, in turn, in one session, planning included; the ratios are
medians of the rounds'. Core-seconds are of the JVM, all its Python processes and the broker. What the first reading
of each took stands beside. `vmq` reads the broker's files, as it does on one machine; `flight` has their rows sent
(`localReads` = false). `ready` is a source in Python that has its batches in memory: what Spark takes for rows from
Python, and the least that any such source costs.

The rows are JSON of about a hundred bytes, of a hundred devices that take turns, as they come in life: a batch has few.

Latency: see `tests.bench.spark.latency`, which is also a program of its own.

The session has the settings that pyspark_vmq's page names; `--plain` leaves them out.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Literal, NamedTuple

from tests.bench.spark import latency
from tests.bench.spark.meter import Meter
from tests.bench.spark.ready import Ready
from tests.bench.spark.session import LISTEN, Bar, session
from tests.spark.support import Bridge, stream_environment
from tests.support.wire import PUBACK, Wire, publish_packet
from vmq import is_compiled
from vmq.testing.process import BrokerProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame


DEVICES = 100
#: Rounds that come before those that are measured: Java compiles what it runs often.
WARM_ROUNDS = 2


def reading_of(device: int, number: int, random: Random) -> bytes:
    """What a sensor sends: some hundred bytes of JSON."""
    return (
        f'{{"device": "sensor-{device:03}", "seq": {number}, "ts": {1_700_000_000_000 + number}, '
        f'"temp": {random.uniform(10, 30):.2f}, "hum": {random.uniform(20, 90):.1f}, "ok": true}}'
    ).encode()


def fill(broker: BrokerProcess, messages: int) -> None:
    """Has many devices publish at QoS 1, each its next message once the one before it is acknowledged."""
    random = Random(1)
    wires = [Wire.connect_tcp(broker.tcp) for _ in range(DEVICES)]
    for device, wire in enumerate(wires):
        wire.connect(f"sensor-{device:03}")
    for number in range(messages // DEVICES):
        for device, wire in enumerate(wires):
            topic = f"bulk/site-{device % 10}/sensor-{device:03}/data"
            payload = reading_of(device, number, random)
            wire.send(publish_packet(topic, payload, qos=1, packet_id=1))
        for wire in wires:
            wire.expect(PUBACK)
    for wire in wires:
        wire.stream.close()


class Scan(NamedTuple):
    """What one reading of all rows took."""

    seconds: float
    cores: float


def scan(meter: Meter, rows: Callable[[], DataFrame]) -> Scan:
    """Plans and reads all rows."""
    cores, start = meter.core_seconds(), perf_counter()
    rows().write.format("noop").mode("overwrite").save()
    return Scan(perf_counter() - start, meter.core_seconds() - cores)


def reading(bridge: Bridge, folder: Path, rounds: int) -> list[Bar]:
    """vmq against Parquet, all columns."""
    parquet = str(folder / "parquet")
    bridge.load(stream="bulk").write.parquet(parquet)
    count = bridge.spark.read.parquet(parquet).count()
    bridge.spark.dataSource.register(Ready)
    frames: dict[str, Callable[[], DataFrame]] = {
        "vmq": lambda: bridge.load(stream="bulk"),
        "flight": lambda: bridge.load(stream="bulk", localReads="false"),
        "parquet": lambda: bridge.spark.read.parquet(parquet),
        "ready": lambda: bridge.spark.read.format("ready").option("rows", count).load(),
    }
    found: dict[str, list[Scan]] = {name: [] for name in frames}
    with Meter() as meter:
        for _ in range(WARM_ROUNDS + rounds):
            for name, frame in frames.items():
                found[name].append(scan(meter, frame))
    print(f"{count:,} rows {'rows/s':>12} {'core-seconds':>14} {'first: s':>9} {'core-s':>7}")
    for name, (first, *_) in found.items():
        found[name] = found[name][WARM_ROUNDS:]
        seconds = median(each.seconds for each in found[name])
        cores = median(each.cores for each in found[name])
        print(
            f"{name:14} {count / seconds:12,.0f} {cores:14.2f} {first.seconds:9.2f} {first.cores:7.2f}",
            flush=True,
        )
    vmq, flight, there, ready = found.values()
    return [
        Bar("rate, vmq to parquet", 1 / middle(vmq, there, "seconds"), 0.9, least=True),
        Bar("core-seconds, vmq to parquet", middle(vmq, there, "cores"), 1.3),
        Bar("rate, flight to parquet", 1 / middle(flight, there, "seconds"), None),
        Bar("core-seconds, flight to parquet", middle(flight, there, "cores"), None),
        Bar("core-seconds, vmq to flight", middle(vmq, flight, "cores"), None),
        Bar("rate, ready to parquet", 1 / middle(ready, there, "seconds"), None),
        Bar("core-seconds, ready to parquet", middle(ready, there, "cores"), None),
    ]


def middle(these: list[Scan], those: list[Scan], what: Literal["seconds", "cores"]) -> float:
    """The median of the ratios within the rounds: neighbours in time share the machine's mood."""
    at = Scan._fields.index(what)
    return median(a[at] / b[at] for a, b in zip(these, those, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description="Spark's side, measured.")
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--turns", type=int, choices=range(2, 101), default=10, metavar="2..100")
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

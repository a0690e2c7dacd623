"""How fast a message is in Spark: python -m tests.bench.spark.latency [--turns 10] [--plain]

The time from publishing a message to its appearance in foreachBatch, at trigger 0, against the time that a
micro-batch of the built-in rate source takes in the same session, with the same foreachBatch and as many rows.
Both queries live for the whole run and take turns of a few seconds, so that what else the machine does hits both:
while one has its turn the other stands still. A pair is a turn of both; the first ones warm up.

    in turn     the next message is published as soon as the one before has come: Spark is still at closing that
                batch, so each waits for one whole micro-batch, as long as the rate source's are
    idle        the query waits for news: that is what a single message finds
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
from pathlib import Path
from random import Random
from statistics import median, quantiles
from time import time
from typing import TYPE_CHECKING

from tests.bench.spark.session import LISTEN, Bar, session
from tests.spark.support import Bridge, stream_environment
from tests.support.wire import Wire
from vmq.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BAR = 1.3
#: Messages, and batches of the rate source, of one turn. It makes a batch a second.
MESSAGES = 6
BATCHES = 3
#: Pairs that are not counted.
WARM = 3
#: Messages to the idle query, and the seconds between them: more than a batch takes.
IDLE = 15
LONGEST_PAUSE = 0.6
PATIENCE = 60
PARTITIONS = {"late": 1}


class Late:
    """A query over vmq; each message carries the time of its publishing."""

    def __init__(self, bridge: Bridge, folder: Path) -> None:
        self.arrived = threading.Semaphore(0)
        self.delays: list[float] = []
        self.query = (
            bridge.stream("payload binary", topic="late/#", startingOffsets="earliest")
            .writeStream.foreachBatch(self.take)
            .option("checkpointLocation", str(folder))
            .start()
        )
        self.wire = Wire.connect_tcp(bridge.broker.tcp)
        self.wire.connect("late")

    def take(self, rows: DataFrame, _batch: int) -> None:
        for row in rows.collect():
            self.delays.append((time() - float(bytes(row.payload))) * 1000)
            self.arrived.release()

    def turn(self, count: int, pauses: Random | None = None) -> list[float]:
        """Milliseconds from publish to foreachBatch; without pauses, of messages that find the query busy."""
        self.delays.clear()
        for _ in range(count):
            if pauses is not None:
                threading.Event().wait(pauses.uniform(LONGEST_PAUSE / 2, LONGEST_PAUSE))
            self.wire.publish("late/x", repr(time()).encode(), qos=1)
            assert self.arrived.acquire(timeout=PATIENCE), self.query.exception()
        return self.delays[pauses is None :]

    def stop(self) -> None:
        self.wire.stream.close()
        self.query.stop()


class Floor:
    """A query over the rate source, which is held in a batch between its turns."""

    def __init__(self, bridge: Bridge, folder: Path) -> None:
        self.until = 0
        self.held = threading.Event()
        self.go = threading.Event()
        rate = bridge.spark.readStream.format("rate").option("rowsPerSecond", 1).load()
        self.query = (
            rate.writeStream.foreachBatch(self.take)
            .option("checkpointLocation", str(folder))
            .start()
        )

    def take(self, rows: DataFrame, batch: int) -> None:
        rows.collect()
        if batch >= self.until:
            self.held.set()
            self.go.wait()
            self.go.clear()

    def turn(self, count: int) -> list[int]:
        """Milliseconds of the micro-batches between two in which it is held."""
        assert self.held.wait(PATIENCE), self.query.exception()
        first = self.until + 1
        self.until = first + count
        self.held.clear()
        self.go.set()
        assert self.held.wait(PATIENCE), self.query.exception()
        took = {
            each["batchId"]: each["durationMs"]["triggerExecution"]
            for each in self.query.recentProgress
            if each["numInputRows"]
        }
        return [took[batch] for batch in range(first, self.until)]

    def stop(self) -> None:
        self.until += 1 << 30
        self.go.set()
        self.query.stop()


def latency(bridge: Bridge, folder: Path, turns: int) -> list[Bar]:
    """Both in turn, many times over, and an idle query in the end."""
    rate, late = Floor(bridge, folder / "rate"), Late(bridge, folder / "late")
    mine: list[float] = []
    theirs: list[int] = []
    ratios: list[float] = []
    for number in range(WARM + turns):
        delays, batches = late.turn(MESSAGES), rate.turn(BATCHES)
        ratio = median(delays) / median(batches)
        if number >= WARM:
            mine += delays
            theirs += batches
            ratios.append(ratio)
        print(
            f"publish to foreachBatch p50 {median(delays):4.0f} ms, a micro-batch of rate {median(batches):4.0f} ms: "
            f"{ratio:.2f}{'' if number >= WARM else ' (not counted)'}; load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
    idle = late.turn(IDLE, Random(1))
    late.stop()
    rate.stop()
    low, _, high = quantiles(ratios, n=4)
    print(
        f"of all messages p50 {median(mine):.0f} ms, of all batches {median(theirs):.0f} ms, "
        f"of an idle query p50 {median(idle):.0f} ms; load {os.getloadavg()[0]:.1f}"
    )
    return [
        Bar("latency, vmq to a micro-batch of rate", median(mine) / median(theirs), BAR),
        Bar("... of the middle pair", median(ratios), BAR),
        Bar("... of the pair at the lower quarter", low, None),
        Bar("... of the pair at the upper quarter", high, None),
        Bar("... of an idle query", median(idle) / median(theirs), None),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="From publish to foreachBatch.")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--plain", action="store_true", help="without pyspark_vmq's settings")
    arguments = parser.parse_args()
    spark = session(plain=arguments.plain)
    with (
        tempfile.TemporaryDirectory() as name,
        BrokerProcess.start(
            LISTEN, env=stream_environment(PARTITIONS), args=("--allow-anonymous",)
        ) as broker,
    ):
        print(*latency(Bridge(spark, broker), Path(name), arguments.turns), sep="\n")
        spark.stop()


if __name__ == "__main__":
    main()

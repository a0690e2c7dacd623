"""One topic of many by Spark, filtered by the reader or by Spark: python -m tests.bench.spark.filtered [--rows N]

A thousand topics take turns. Core-seconds of the JVM, Spark's Python processes and the broker for all columns of one
topic, into the noop sink: with the option `topic`, which the readers ask of each row before they make anything of it,
and with `where` of the DataFrame, which Spark asks of all rows. What Spark takes for a query of a stream without rows
is taken off both; the ratio is the median of the rounds'.
"""

from __future__ import annotations

import argparse
import os
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa

from tests.bench.putting import put
from tests.bench.spark.meter import Meter
from tests.bench.spark.session import LISTEN, Bar, session
from tests.spark.support import Bridge, stream_environment
from vmq.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPICS = 1000
#: Rows of one put.
PUT = 100_000
#: Rounds that come before those that are measured.
WARM_ROUNDS = 1
WANTED = "bulk/d007"


def fill(url: str, rows: int) -> None:
    """JSON of about a hundred bytes."""
    table = pa.record_batch(
        {
            "topic": [f"bulk/d{number % TOPICS:03}" for number in range(PUT)],
            "payload": [
                b'{"seq": %d, "ts": %d, "temp": %d.25, "hum": 40.5, "unit": "C", "ok": true, "n": %d}'
                % (number, 1_700_000_000_000 + number, number % 40, number * 7919 % 104_729)
                for number in range(PUT)
            ],
        }
    )
    put(url, "bulk", table, rows)


def cost(meter: Meter, rows: DataFrame) -> float:
    """Core-seconds of a query."""
    before = meter.core_seconds()
    rows.write.format("noop").mode("overwrite").save()
    return meter.core_seconds() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000_000, help="a multiple of 100,000")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    spark = session()
    env = stream_environment({"bulk": 4, "empty": 4})
    with (
        BrokerProcess.start(LISTEN, env=env, args=("--allow-anonymous",)) as broker,
        Meter() as meter,
    ):
        bridge = Bridge(spark, broker)
        fill(bridge.url, options.rows)
        assert bridge.load(stream="bulk", topic=WANTED).count() == options.rows // TOPICS
        ratios = []
        for number in range(WARM_ROUNDS + options.rounds):
            least = cost(meter, bridge.load(stream="empty"))
            pushed = cost(meter, bridge.load(stream="bulk", topic=WANTED))
            all_rows = cost(meter, bridge.load(stream="bulk").where(f"topic = '{WANTED}'"))
            print(f"nothing {least:6.2f} s   topic {pushed:6.2f} s   where {all_rows:6.2f} s")
            if number >= WARM_ROUNDS:
                ratios.append((all_rows - least) / max(0.01, pushed - least))
        print(Bar(f"{options.rows:,} rows, where to topic", median(ratios), 20, least=True))
        print(f"load {os.getloadavg()[0]:.1f}")
        spark.stop()


if __name__ == "__main__":
    main()

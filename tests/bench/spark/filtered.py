"""One topic of many by Spark, filtered by the reader or by Spark: python -m tests.bench.spark.filtered [--rows N]

A thousand topics take turns. Core-seconds of the JVM, Spark's Python processes and the broker, with all its processes,
for all columns of one topic, into the noop sink: with the option `topic`, which goes to the readers, and with `where`
of the DataFrame, which Spark asks of all rows. What Spark takes for a query of a stream without rows (planning, tasks,
a Python process) is taken off both; the ratio is the median of the rounds'.

Segments are sealed at 128 MiB of 50 million rows, as by default, and earlier in proportion with fewer: so the share
of rows that lie in the segments that still grow is the same. The queries begin when the rows of all others lie beside
them by topic, which the broker does in the background; `--unordered` leaves that out.

At the end one of PySpark's workers may say BrokenPipeError (`daemon.py`, in `worker`): it had an answer left for the
JVM that has just stopped. The figures stand before that.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import flight

from tests.bench.spark.meter import Meter
from tests.spark.sessions import local_session
from tests.spark.support import Bridge, executors_environment, stream_environment
from tests.support.until import reach
from vmq.testing.process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What pyspark_vmq's page advises.
FLAGS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
ADVISED = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.driver.extraJavaOptions": FLAGS,
}
LISTEN = ("tcp://127.0.0.1:0", "grpc://127.0.0.1:0")
#: How much less of a processor the option is to take.
BAR = 20
TOPICS = 1000
#: Rows of one put.
PUT = 20_000
#: Rows with segments of the default size.
FULL_ROWS = 50_000_000
FULL_SEGMENT = 134_217_728
#: Seconds that ordering the rows may take.
LONGEST = 600
#: Rounds that come before those that are measured.
WARM_ROUNDS = 1
WANTED = "bulk/d007"
SCHEMA = pa.schema([("topic", pa.string()), ("payload", pa.binary())])


def fill(url: str, rows: int) -> None:
    """JSON of about a hundred bytes, of which each is another."""
    topics = [f"bulk/d{number % TOPICS:03}" for number in range(PUT)]
    with flight.connect(url) as client:
        writer, answers = client.do_put(flight.FlightDescriptor.for_path("bulk"), SCHEMA)
        for first in range(0, rows, PUT):
            payloads = [
                b'{"seq": %d, "ts": %d, "temp": %d.25, "hum": 40.5, "unit": "C", "ok": true, "n": %d}'
                % (number, 1_700_000_000_000 + number, number % 40, number * 7919 % 104_729)
                for number in range(first, first + PUT)
            ]
            writer.write_batch(pa.record_batch([topics, payloads], schema=SCHEMA))
            answers.read()
        writer.close()


def is_ordered(folder: Path) -> bool:
    """Whether the rows of all sealed segments lie beside them by topic, and nothing is at work any more."""
    partitions = list(folder.glob("[0-9]*"))
    return all(
        len(list(each.glob("*.ordered"))) >= len(list(each.glob("*.arrows"))) - 1
        and not any(each.glob("*.tmp"))
        for each in partitions
    )


def cost(meter: Meter, rows: DataFrame) -> float:
    before = meter.core_seconds()
    rows.write.format("noop").mode("overwrite").save()
    return meter.core_seconds() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000_000, help="a multiple of 20,000")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--unordered", action="store_true")
    options = parser.parse_args()
    os.environ.update(executors_environment())
    spark = local_session("local[2]", ADVISED)
    env = stream_environment({"bulk": 4, "empty": 4})
    env["VMQ_STREAMS__BULK__SEGMENT_BYTES"] = str(FULL_SEGMENT * options.rows // FULL_ROWS)
    env["VMQ_STREAMS__BULK__TOPIC_ORDER"] = str(not options.unordered).lower()
    with (
        BrokerProcess.start(LISTEN, env=env, args=("--allow-anonymous",)) as broker,
        Meter() as meter,
    ):
        bridge = Bridge(spark, broker)
        fill(bridge.url, options.rows)
        folder = broker.data_dir / "streams" / "bulk"
        if not options.unordered:
            reach(lambda: is_ordered(folder), "rows were not ordered", LONGEST)
        for suffix in ("arrows", "ordered"):
            sizes = [each.stat().st_size for each in folder.glob(f"*/*.{suffix}")]
            print(f"{len(sizes)} files .{suffix}: {sum(sizes) / options.rows:.1f} bytes a row")
        assert bridge.load(stream="bulk", topic=WANTED).count() == options.rows // TOPICS
        ratios = []
        for number in range(WARM_ROUNDS + options.rounds):
            least = cost(meter, bridge.load(stream="empty"))
            pushed = cost(meter, bridge.load(stream="bulk", topic=WANTED))
            all_rows = cost(meter, bridge.load(stream="bulk").where(f"topic = '{WANTED}'"))
            print(f"nothing {least:6.2f} s   topic {pushed:6.2f} s   where {all_rows:6.2f} s")
            if number >= WARM_ROUNDS:
                ratios.append((all_rows - least) / max(0.01, pushed - least))
        ratio = median(ratios)
        met = "met" if ratio >= BAR else "MISSED"
        print(f"{options.rows:,} rows, where to topic: {ratio:.2f}, at least {BAR}: {met}")
        print(f"load {os.getloadavg()[0]:.1f}")
        spark.stop()


if __name__ == "__main__":
    main()

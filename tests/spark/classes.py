"""Has Java write the classes that Spark loads into an archive, once: `python -m tests.spark.classes`

A start of Spark with it takes half the CPU. Java looks itself whether the archive is that of what it runs.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql.functions import window

from tests.spark.sessions import CLASSES, QUICK_JAVA, local_session
from tests.spark.support import Bridge, executors_environment, finish, send, stream_environment
from vmq.testing.process import BrokerProcess


def use(bridge: Bridge, folder: Path) -> None:
    """A little of everything that tests do."""
    send(bridge.broker, [(f"made/{at % 3}", b'{"value": %d}' % at) for at in range(30)])
    rows = bridge.stream(stream="made", startingOffsets="earliest")
    bridge.collect(rows, folder / "rows", folder / "landing")
    found = bridge.spark.read.parquet(str(folder / "rows"))
    found.groupBy("topic").count().orderBy("topic").collect()
    parsed = rows.selectExpr("timestamp", "from_json(string(payload), 'value int').value value")
    marked = parsed.withWatermark("timestamp", "1 minute").groupBy(window("timestamp", "1 minute"))
    counts = marked.avg("value").selectExpr("'made/x' topic", "string(window) payload")
    finish(bridge.write(counts, folder / "doing"))
    bridge.load(stream="made", minPartitions=3).selectExpr("max(offset)").collect()


def main() -> None:
    work = CLASSES.with_suffix(".tmp")
    os.environ.update(executors_environment())
    os.environ["SPARK_SUBMIT_OPTS"] = f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={work} -Xlog:disable"
    with (
        tempfile.TemporaryDirectory() as folder,
        BrokerProcess.start(
            ("tcp://127.0.0.1:0", "grpc://127.0.0.1:0"),
            env=stream_environment({"made": 1}),
            args=("--allow-anonymous",),
        ) as broker,
    ):
        spark = local_session("local[2,4]", {"spark.driver.memory": "1g"})
        use(Bridge(spark, broker), Path(folder))
        gateway: Any = spark.sparkContext._gateway
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
    if work.is_file():  # else this Java writes none, and Spark starts without
        work.replace(CLASSES)


if __name__ == "__main__":
    main()

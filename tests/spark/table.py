"""A table that a Spark query fills from a stream of a cluster, as long as somebody wants: each row of the log once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.sessions import QUICK_JAVA, local_session
from tests.spark.support import executors_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class Table:
    """Parquet files, and the query that writes them."""

    def __init__(self, spark: SparkSession, query: StreamingQuery, folder: Path) -> None:
        self._spark = spark
        self._query = query
        self._folder = folder

    def check(self, partitions: list[list[bytes]]) -> int:
        """The table has the payloads of each partition once, in the order of offsets; returns how many rows it has.

        Raises:
            AssertionError: it has others.
        """
        self._query.processAllAvailable()
        rows = self._spark.read.parquet(str(self._folder / "rows"))
        found = rows.select("partition", "offset", "payload").collect()
        for number, wanted in enumerate(partitions):
            own = sorted(
                (row.offset, bytes(row.payload)) for row in found if row.partition == number
            )
            assert [payload for _, payload in own] == wanted, f"partition {number} has other rows"
        return len(found)


@contextmanager
def table_of(server: str, stream: str, folder: Path) -> Iterator[Table]:
    """A table of all that a stream has and gets; `server` is a node that stays."""
    os.environ.update(executors_environment() | QUICK_JAVA)
    spark = local_session("local[1,4]", {"spark.driver.memory": "1g"})
    source = spark.readStream.format("vmq").option("server", server).option("stream", stream)
    query = (
        source.option("startingOffsets", "earliest")
        .load()
        .writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="500 milliseconds")
        .start()
    )
    try:
        yield Table(spark, query, folder)
    finally:
        query.stop()
        spark.stop()

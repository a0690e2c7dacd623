"""A Spark application of its own process, to be killed: python -m tests.spark.driver SERVER FOLDER LIMIT

Two queries read the stream `once` and write it to Parquet and to the topics done/DEVICE. When one
fails the application ends, to be started again. Once the file FOLDER/finish is there, they take what is
left; then the application prints, as JSON, what Parquet holds, and what the stream `done` keeps of the topics.
How far it has come up stands on lines of its own before ("reached: STAGE"), and why it ends ("failed: REASON").
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f
from pyspark_vmq import parse
from vmq_spark.progress import reason

from tests.spark.sessions import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def ended(query: StreamingQuery) -> bool:
    """Waits for a second whether a query ends, by a failure or without."""
    try:
        return bool(query.awaitTermination(1))
    except StreamingQueryException:
        return True


def reached(stage: str) -> None:
    """Tells whoever started this how far it has come up."""
    print(f"reached: {stage}", flush=True)


class QueryEndedError(Exception):
    """A query has ended by itself, and does not say why."""


class Application:
    def __init__(self, server: str, folder: Path, limit: int) -> None:
        reached("python")
        # What a JVM that is killed leaves behind is in the folder.
        java = f"-Djava.io.tmpdir={folder}"
        self.spark = local_session("local[2,4]", {"spark.driver.extraJavaOptions": java})
        reached("session")
        self.server = server
        self.folder = folder
        self.limit = limit

    def writers(self) -> list[DataStreamWriter]:
        stream = (
            self.spark.readStream.format("vmq")
            .option("server", self.server)
            .option("topic", "once/#")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", self.limit)
            .load()
        )
        rows = parse(stream, "once/{device}", "number bigint")
        landed = rows.select("partition", "offset", "device", "number").writeStream
        done = stream.select(
            f.regexp_replace("topic", "^once/", "done/").alias("topic"), "payload"
        ).writeStream
        return [
            landed.format("parquet")
            .option("path", str(self.folder / "rows"))
            .option("checkpointLocation", str(self.folder / "landing")),
            done.format("vmq")
            .option("server", self.server)
            .option("qos", 2)
            .option("checkpointLocation", str(self.folder / "doing")),
        ]

    def run(self) -> None:
        """Runs the queries until it is time to finish; ends with the first that fails for good.

        A driver that starts anew is what heals a JVM that has gone wrong. Two first queries that are planned
        at the same moment can do that: Spark 4.3 then cannot serialize a task any more ("Illegal size 5
        of collection, expected 6"). So the second one waits for the first.
        """
        queries: list[StreamingQuery] = []
        for number, writer in enumerate(self.writers(), 1):
            queries.append(writer.start())
            reached(f"query {number}")
            while queries[-1].isActive and not queries[-1].recentProgress:
                ended(queries[-1])
            if queries[-1].isActive:
                reached(f"batch {number}")
        while not (self.folder / "finish").exists():
            for query in queries:
                if ended(query):
                    error = query.exception()
                    raise error if error is not None else QueryEndedError(query.status["message"])
        for query in queries:
            query.stop()
        for writer in self.writers():
            writer.trigger(availableNow=True).start().awaitTermination()

    def report(self) -> dict[str, Any]:
        """What the rows in Parquet amount to, by device, and those of the stream that keeps what was published.

        They are counted here, row by row: Spark's collect_list takes time with the square of a
        device's rows, and the count shall not rest on what is under test.
        """
        rows = self.spark.read.parquet(str(self.folder / "rows"))
        done = self.spark.read.format("vmq").option("server", self.server).option("topic", "done/#")
        published = parse(done.load(), "done/{device}", "number bigint")
        return {"rows": counted(rows), "published": counted(published)}


def counted(rows: DataFrame) -> dict[str, Any]:
    """A summary for each device."""
    found: dict[str, Landed] = {}
    table = rows.select(*COLUMNS).toArrow()
    for batch in table.sort_by([("partition", "ascending"), ("offset", "ascending")]).to_batches():
        columns = [batch.column(name).to_pylist() for name in COLUMNS]
        for device, *row in zip(*columns, strict=True):
            found.setdefault(device, Landed()).add(*row)
    return {device: landed.summary() for device, landed in found.items()}


COLUMNS = ("device", "partition", "offset", "number")


class Landed:
    """The rows of one device, in the stream's order."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.places: set[tuple[int, int]] = set()

    def add(self, partition: int, offset: int, number: int) -> None:
        self.numbers.append(number)
        self.places.add((partition, offset))

    def summary(self) -> dict[str, Any]:
        return {
            "count": len(self.numbers),
            "places": len(self.places),
            "numbers": len(set(self.numbers)),
            "sum": sum(self.numbers),
            "ordered": is_ordered(self.numbers),
        }


def is_ordered(numbers: list[int]) -> bool:
    """Whether the first appearances of numbers ascend; what is sent twice may come later again."""
    highest = -1
    seen = set()
    for number in numbers:
        if number in seen:
            continue
        if number < highest:
            return False
        highest = number
        seen.add(number)
    return True


def main(kind: type[Application], server: str, folder: str, limit: str) -> None:
    """Runs an application to its end, and prints what it reports."""
    try:
        application = kind(server, Path(folder), int(limit))
        application.run()
    except Exception as problem:
        print(f"failed: {reason(problem)}", flush=True)
        raise
    print(json.dumps(application.report()), flush=True)


if __name__ == "__main__":
    main(Application, *sys.argv[1:])

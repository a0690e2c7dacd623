"""What two queries of Spark make of a stream of a cluster: python -m tests.spark.table SERVERS FOLDER LIMIT

    stream `log` -> Spark -> Parquet
                          -> vmq sink -> stream `done`

The sink asks the first of the servers only. `Tables` has it run as a process that is killed and started anew.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from vmq_spark.checkpoints import drop_unfinished

from tests.spark.driver import Application, main
from tests.spark.driver_process import DriverProcess

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

#: Seconds for the queries to take what is left.
PATIENCE = 300.0


class Table(Application):
    def writers(self) -> list[DataStreamWriter]:
        source = self.spark.readStream.format("vmq").option("server", self.server)
        source = source.option("stream", "log").option("startingOffsets", "earliest")
        rows = source.option("maxOffsetsPerTrigger", self.limit).load()
        done = rows.selectExpr("regexp_replace(topic, '^log/', 'done/') topic", "payload")
        return [
            rows.select("partition", "offset", "payload")
            .writeStream.format("parquet")
            .option("path", str(self.folder / "rows"))
            .option("checkpointLocation", str(self.folder / "landing")),
            done.writeStream.format("vmq")
            .option("server", self.server.split(",")[0])
            .option("checkpointLocation", str(self.folder / "doing")),
        ]

    def report(self) -> dict[str, Any]:
        """Spark says which of the files count: those of batches that were cut off do not."""
        rows = self.spark.read.parquet(str(self.folder / "rows")).toArrow()
        pq.write_table(rows, self.folder / "table.parquet")
        return {"rows": rows.num_rows}


class Tables:
    """The process, one life after the other.

    Args:
        servers: the nodes' addresses, with commas.
        folder: of tables and checkpoints.
    """

    def __init__(self, servers: str, folder: Path) -> None:
        self.servers = servers
        self.folder = folder
        self.kills = 0
        #: Why it ended by itself.
        self.failures: Counter[str] = Counter()
        self._start()

    def _start(self) -> None:
        drop_unfinished(self.folder)
        arguments = (self.servers, str(self.folder), "100000")
        log = self.folder / "log"
        self._process = DriverProcess(arguments, self.folder, log, "tests.spark.table")

    def keep_up(self) -> None:
        """Starts it anew if it has ended by itself."""
        if not self._process.is_running():
            self.failures[self._process.failure or "nothing tells why"] += 1
            self._process.kill()
            self._start()

    def kill(self) -> None:
        """By SIGKILL, and starts it anew."""
        self.kills += 1
        self._process.kill()
        self._start()

    def finish(self) -> list[tuple[int, int, bytes]]:
        """All rows of the table, once the queries have taken all there is: partition, offset and payload."""
        (self.folder / "finish").touch()
        until = monotonic() + PATIENCE
        while True:
            self._process.finish(max(1.0, until - monotonic()))
            if self._process.process.returncode == 0:
                break
            self.keep_up()
        columns = pq.read_table(self.folder / "table.parquet").to_pydict()
        return sorted(zip(*columns.values(), strict=True))

    def close(self) -> None:
        self._process.kill()


if __name__ == "__main__":
    main(Table, *sys.argv[1:])

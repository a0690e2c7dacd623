"""What a task does: fetch its ranges, batch after batch, across restarts of the broker."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from pyspark_vmq.client import Client, client_of
from pyspark_vmq.errors import DataLossError
from pyspark_vmq.options import SourceOptions
from pyspark_vmq.planning import Range

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("pyspark_vmq")


@dataclass
class Task(InputPartition):
    """The ranges that one task of Spark reads."""

    ranges: Sequence[Range]

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__(None)
        self.ranges = ranges


def read_task(task: Task, options: SourceOptions, columns: list[str]) -> "Iterator[pa.RecordBatch]":
    """The messages of a task, in the order of its ranges."""
    client = client_of(options.connection)
    for each in task.ranges:
        yield from read_range(client, each, options, columns)


def read_range(
    client: Client, wanted: Range, options: SourceOptions, columns: list[str]
) -> "Iterator[pa.RecordBatch]":
    """The messages of a range; a connection that breaks is taken up behind the last one."""
    from pyarrow import flight

    start = wanted.start
    # Without the offsets nobody would know where to go on.
    asked = columns if "offset" in columns else [*columns, "offset"]
    while start < wanted.end:
        ticket: dict[str, Any] = {
            "stream": wanted.stream,
            "partition": wanted.partition,
            "start": start,
            "end": wanted.end,
            "columns": asked,
        }
        if options.topic:
            ticket["topic"] = options.topic
        try:
            for batch in client.read(ticket):
                yield batch.select(columns)
                start = batch.column("offset")[-1].as_py() + 1
        except DataLossError:
            if options.fail_on_data_loss:
                raise
            first = client.offsets(wanted.stream, "earliest").get(wanted.partition, wanted.end)
            if first <= start:
                raise
            log.warning(
                "stream '%s', partition %d: offsets %d to %d are gone; going on behind them",
                wanted.stream,
                wanted.partition,
                start,
                min(first, wanted.end),
            )
            start = first
        except flight.FlightUnavailableError:
            # Waits for the broker as long as the options say, and raises when it stays away.
            client.offsets(wanted.stream, "latest")
        else:
            return

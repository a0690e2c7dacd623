"""What a task does: fetch its ranges, batch after batch, across restarts of the broker."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition

from pyspark_vmq.client import Client, Patience, client_of
from pyspark_vmq.errors import DataLossError, RecreatedError, Unauthenticated, Unavailable
from pyspark_vmq.local import Files
from pyspark_vmq.options import SourceOptions
from pyspark_vmq.planning import Range
from pyspark_vmq.positions import CATCH_UP
from pyspark_vmq.process import prepare
from pyspark_vmq.unpacking import BULK, Unpacker, arrow_schema

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


def read_task(
    task: InputPartition, options: SourceOptions, columns: Mapping[str, bool | str]
) -> "Iterator[pa.RecordBatch]":
    """The messages of a task, in the order of its ranges.

    Where there is nothing to read Spark makes up a task of its own.
    """
    if not isinstance(task, Task):
        return
    client = client_of(options.connection)
    prepare()
    for each in task.ranges:
        yield from read_range(client, each, options, columns)


def ticket_of(
    wanted: Range, options: SourceOptions, columns: Mapping[str, bool | str], *, packed: bool
) -> dict[str, Any]:
    """What the broker is asked for, but for where it begins."""
    ticket: dict[str, Any] = {
        "stream": wanted.stream,
        "partition": wanted.partition,
        "end": wanted.end,
        "columns": list(columns),
        "packed": packed and not options.where,
    }
    if wanted.stream_id:
        ticket["stream_id"] = wanted.stream_id
    if options.where:
        ticket["where"] = json.loads(options.where)
    if options.topic:
        ticket["filter"] = options.topic
    return ticket


def read_range(
    client: Client, wanted: Range, options: SourceOptions, columns: Mapping[str, bool | str]
) -> "Iterator[pa.RecordBatch]":
    """The messages of a range; a read that breaks off is taken up where it was."""
    import pyarrow as pa

    start = wanted.start
    typed = any(isinstance(each, str) for each in columns.values())  # those the broker makes
    ticket = ticket_of(wanted, options, columns, packed=BULK in columns and not typed)
    schema = arrow_schema(columns)
    unpacker = Unpacker(wanted, schema)
    patience: Patience | None = None
    tried = start
    waited: int | None = None
    files = Files(client, ticket, Unpacker(wanted, schema, options.topic))
    while start < wanted.end:
        try:
            if options.local_reads and not typed and not options.where:
                for rows, following in files.read(start):
                    start = following
                    if rows is not None and rows.num_rows:
                        yield rows
            if start == wanted.end:
                return
            for batch, told in client.read({**ticket, "start": start}):
                if ticket["packed"]:
                    yield unpacker.unpacked(batch, told)
                elif batch.num_rows:
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
                start = told["next"]
        except DataLossError as error:
            if waited != start and not isinstance(error, RecreatedError):
                waited = start
                if has_caught_up(client, wanted, start):
                    continue
            if options.fail_on_data_loss:
                raise type(error)(str(error) + DataLossError.ADVICE) from None
            if isinstance(error, RecreatedError):
                log.warning("%s; going on with what is there now", error)
                return  # the next batch begins where the stream does that is there now
            first = client.earliest(wanted.stream).get(wanted.partition, wanted.end)
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
        except (Unavailable, Unauthenticated) as error:
            # Waits for the broker as long as the options say, and raises when it stays away. One that answers, but
            # lets nobody read, is not asked at full speed, nor for ever.
            if start > tried or patience is None:
                patience, tried = Patience(options.connection.retry_timeout), start
            patience.wait(error)
            client.latest(wanted.stream)
        else:
            return


def has_caught_up(client: Client, wanted: Range, start: int) -> bool:
    """Whether what was not there is there by now: a copy may be behind the one that told the end of the range."""
    if client.earliest(wanted.stream).get(wanted.partition, wanted.end) > start:
        return False
    ends = client.wait(wanted.stream, {wanted.partition: wanted.end - 1}, CATCH_UP)
    return ends.get(wanted.partition, 0) >= wanted.end

"""Rows, partitions and what a list knows of them: the naive twin of the log."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from vmq.config.streams import StreamOptions
from vmq.disk.room import DiskRoom
from vmq.streams.catalog import Catalog
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.partition import Partition
from vmq.streams.log.schema import STORED
from vmq.streams.replica.partition import ReplicaPartition

Row = dict[str, Any]


#: Makes a catalog of declared streams.
Opener = Callable[..., Catalog]


class Clock:
    """A clock that the test moves, in seconds."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class ShortRoom(DiskRoom):
    """A disk that is short of room until the test says that it is not."""

    def __init__(self) -> None:
        super().__init__()
        self.is_short = True

    def lack(self, folder: Path, size: int = 0, share: int = 1) -> str:
        return "the disk is short" if self.is_short else ""


def options(**changes: Any) -> StreamOptions:
    return StreamOptions(**{"filters": ["#"], "compression": "none", **changes})


def row(number: int, topic: str = "a/b", payload: bytes | None = None, time: int = 0) -> Row:
    return {
        "topic": topic,
        "payload": b"payload-%d" % number if payload is None else payload,
        "qos": number % 3,
        "retain": number % 2 == 0,
        "timestamp": time or 1_700_000_000_000_000 + number,
        "client_id": f"client-{number % 5}",
        "key": b"key",
        "headers": [{"key": "n", "value": str(number)}] if number % 3 == 0 else [],
    }


def rows_from(first: int, count: int) -> list[Row]:
    return [row(number) for number in range(first, first + count)]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=STORED)


def put(
    partition: Partition,
    rows: list[Row],
    publish: bool = True,
    receipts: Sequence[tuple[int, str]] = (),
) -> None:
    partition.append(batch_of(rows), max(each["timestamp"] for each in rows), receipts)
    if publish:
        partition.publish()


#: Partitions that the test has opened: those that it leaves open are closed when it ends.
OPENED: list[Partition | ReplicaPartition] = []


def make(folder: Path, clock: Clock | None = None, **changes: Any) -> Partition:
    OPENED.append(made := Partition(folder, "s", 0, options(**changes), clock or Clock()))
    return made


def make_with(rows: int, folder: Path, clock: Clock | None = None, **changes: Any) -> Partition:
    """A partition with so many rows."""
    made = make(folder, clock, **changes)
    put(made, rows_from(0, rows))
    return made


def plain(batch: pa.RecordBatch) -> list[Row]:
    """The stored columns as `row` makes them."""
    batch = batch.select([name for name in STORED.names if name in batch.schema.names])
    if "timestamp" in batch.schema.names:
        at = batch.schema.get_field_index("timestamp")
        batch = batch.set_column(at, "timestamp", batch.column(at).cast(pa.int64()))
    return list(batch.to_pylist())


def seal(partition: Partition, batches: int, rows: int = 1) -> None:
    """So many batches of so many rows, which go on, in a segment that ends with them."""
    for _ in range(batches):
        put(partition, rows_from(partition.end, rows))
    partition.roll()


def read_all(partition: Partition, start: int | None = None, end: int | None = None) -> list[Row]:
    first = partition.earliest if start is None else start
    return [each for chunk in LogReader(partition).read(first, end) for each in plain(chunk.rows)]


def payloads(partition: Partition, start: int | None = None) -> list[bytes]:
    return [each["payload"] for each in read_all(partition, start)]

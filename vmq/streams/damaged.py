"""A partition that holds something else than what was written: it gives nothing, takes nothing new, and stays as it is.

The other partitions and streams are served. It is so until the broker has been stopped and `vmq stream repair` has run.
What other nodes of a cluster had acknowledged before they heard of it waits beside it (`vmq.streams.parking`).
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

import pyarrow as pa

from vmq.config.streams import StreamOptions
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.index import Index
from vmq.streams.log.partition import Partition
from vmq.streams.log.segment import SUFFIX, Active, Header, Sealed, giver_of, index_path
from vmq.streams.parking import Parking, take_in

#: What the operator is told to do.
ADVICE: Final = "stop the broker and run 'vmq stream repair'"

log = logging.getLogger("vmq.streams")

P = TypeVar("P", bound=Partition)

#: Partitions that are opened at the same time.
_OPENERS: Final = 16


def open_partitions(
    make: Callable[[Path, str, int, StreamOptions, Callable[[], float]], P],
    stream: Path,
    numbers: Iterable[int],
    options: StreamOptions,
    clock: Callable[[], float],
) -> list[P]:
    """Opens partitions of a stream, by its folder, many at a time: each waits for the disk a moment.

    Raises:
        OSError: the disk; none is open then.
    """
    with ThreadPoolExecutor(_OPENERS) as threads:
        opening = [
            threads.submit(make, stream / str(number), stream.name, number, options, clock)
            for number in numbers
        ]
    if failed := [each for each in opening if each.exception() is not None]:
        for whole in set(opening).difference(failed):
            whole.result().close()
    return [each.result() for each in failed or opening]


def open_partition(
    folder: Path, stream: str, number: int, options: StreamOptions, clock: Callable[[], float]
) -> Partition:
    """Opens a partition, as a damaged one if it is; one that was mended takes the rows that waited for that.

    Raises:
        OSError: the disk.
    """
    try:
        return open_whole(folder, stream, number, options, clock)
    except DamagedError as damage:
        log.error(
            "partition %d of stream %r is damaged and refused: %s; %s",
            number,
            stream,
            damage,
            ADVICE,
        )
        return DamagedPartition(folder, stream, number, options, damage, clock)


def open_whole(
    folder: Path,
    stream: str,
    number: int,
    options: StreamOptions,
    clock: Callable[[], float] = time.time,
) -> Partition:
    """Opens a partition with the rows that waited for it to be mended.

    Raises:
        DamagedError: it, or what waits, is not what was written.
        OSError: the disk.
    """
    partition = Partition(folder, stream, number, options, clock)
    try:
        if count := take_in(partition):
            log.info("%s: %d messages that waited for it to be mended are in it", folder, count)
    except BaseException:
        partition.close()
        raise
    return partition


class DamagedPartition(Partition):
    """Stands for a partition that cannot be opened; `damage` says why.

    It ends where the damage begins. Whatever would read raises `damage`; what is appended, because it must not be
    lost, waits beside it.
    """

    def __init__(
        self,
        folder: Path,
        stream: str,
        number: int,
        options: StreamOptions,
        damage: DamagedError,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self.stream = stream
        self.number = number
        self.damage = damage
        self.clock = clock
        self.header = Header(stream, number)
        self.set_options(options)
        self.on_publish = lambda: None
        self.changed = threading.Lock()
        self.sealed: tuple[Sealed, ...] = ()
        self.unmerged: list[Sealed] = []
        self.gone = False
        self.closed = False
        self.giver = giver_of(folder)
        self.flaws = {}
        self.visible = 0
        segments = sorted(folder.glob("*" + SUFFIX))
        self.end = damage.offset
        first = int(segments[0].stem) if segments else damage.offset
        self.active = _Nothing(damage.path, Index(min(first, damage.offset), 0), 0.0)
        self.shown = self.active.index.mark()
        self.parking = Parking(folder, stream, number, options, clock)

    @property
    def size(self) -> int:
        """Bytes of the segments, damaged or not."""
        return sum(each.stat().st_size for each in self.folder.glob("*" + SUFFIX))

    def is_due(self, _size: int = 0) -> bool:
        """Whether a segment is to be sealed: none is."""
        return False

    def append(
        self, batch: pa.RecordBatch, newest: int, receipts: Sequence[tuple[int, str]] = ()
    ) -> None:
        """Has rows wait that must not be lost; whoever may be refused is (`vmq.streams.appender`).

        Raises:
            OSError: the disk.
        """
        self.parking.log().append(batch, newest, receipts)

    def last_receipt(self) -> str:
        """Of none of its messages is it known that it is there."""
        return ""

    def begin_at(self, base: int, giver: str | None = None) -> None:
        """It begins and ends where it does."""

    def sync(self) -> None:
        """Waits until what waits is on disk."""
        if self.parking.is_used:
            self.parking.log().sync()

    def sync_behind(self) -> None:
        """Waits until what waits is on disk, where the stream's acks do not ask for it."""
        if self.parking.is_used:
            self.parking.log().sync_behind()

    def publish(self) -> None:
        """What waits is there for good."""
        if self.parking.is_used:
            self.parking.log().publish()

    def rollback(self) -> None:
        """Undoes what was appended and is not there for good."""
        if self.parking.is_used:
            self.parking.log().rollback()

    def retain(self) -> list[Sealed]:
        """Deletes nothing by age or size; all if the stream is deleted."""
        if self.gone:
            for each in self.folder.glob("*" + SUFFIX):
                each.unlink(missing_ok=True)
                index_path(each).unlink(missing_ok=True)
        return []

    def close(self) -> None:
        """Closes what waits; nothing else is open."""
        self.closed = True
        self.parking.close()


class _Nothing(Active):
    """The segment of a partition that is not written to."""

    def __init__(self, path: Path, index: Index, began: float) -> None:
        self.path = path
        self.index = index
        self.began = began
        self.synced = 0

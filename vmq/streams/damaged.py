"""A partition that holds something else than what was written: it takes nothing and gives nothing, and stays as it is.

The other partitions and streams are served. It is so until the broker has been stopped and `vmq stream repair` has run.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from vmq.config_streams import StreamOptions
from vmq.streams.appender import Appender
from vmq.streams.commits import Commits
from vmq.streams.errors import DamagedError
from vmq.streams.gathering import Headers
from vmq.streams.index import Index
from vmq.streams.partition import Active, Partition, Sealed
from vmq.streams.segment import SUFFIX, Header, index_path

#: What the operator is told to do.
ADVICE: Final = "stop the broker and run 'vmq stream repair'"

log = logging.getLogger("vmq.streams")


def open_partition(
    folder: Path, stream: str, number: int, options: StreamOptions, clock: Callable[[], float]
) -> Partition:
    """Opens a partition, as a damaged one if it is.

    Raises:
        OSError: the disk.
    """
    try:
        return Partition(folder, stream, number, options, clock)
    except DamagedError as damage:
        log.error(
            "partition %d of stream %r is damaged and refused: %s; %s",
            number,
            stream,
            damage,
            ADVICE,
        )
        return DamagedPartition(folder, stream, number, options, damage, clock)


class DamagedPartition(Partition):
    """Stands for a partition that cannot be opened; `damage` says why.

    It ends where the damage begins. Whatever would read or write raises `damage`.
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
        self.is_copy = False
        self.flaws = {}
        self.visible = 0
        segments = sorted(folder.glob("*" + SUFFIX))
        self.end = damage.offset
        first = int(segments[0].stem) if segments else damage.offset
        self.active = _Nothing(damage.path, Index(min(first, damage.offset), 0), 0.0)
        self.shown = self.active.index.mark()

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
        """Takes no rows.

        Raises:
            DamagedError: always.
        """
        assert self.damage is not None
        raise self.damage

    def last_receipt(self) -> str:
        """Of none of its messages is it known that it is there."""
        return ""

    def rollback(self) -> None:
        """Nothing was written."""

    def sync_behind(self) -> None:
        """Nothing was written."""

    def retain(self) -> list[Sealed]:
        """Deletes nothing by age or size; all if the stream is deleted."""
        if self.gone:
            for each in self.folder.glob("*" + SUFFIX):
                each.unlink(missing_ok=True)
                index_path(each).unlink(missing_ok=True)
        return []

    def close(self) -> None:
        """There is nothing open."""
        self.closed = True


class _Nothing(Active):
    """The segment of a partition that is not written to."""

    def __init__(self, path: Path, index: Index, began: float) -> None:
        self.path = path
        self.index = index
        self.began = began
        self.synced = 0


class PartialAppender(Appender):
    """The write side of a stream of which partitions are damaged: it refuses what belongs to these."""

    def refuses(self, topic: bytes, client_id: str) -> bool:
        """Whether a message belongs to a partition that is damaged."""
        return self.place_of(topic, client_id).damage is not None

    def append(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        retain: bool,
        client_id: str,
        time: int,
        headers: Headers | None = None,
    ) -> int:
        """Takes one message, if its partition is whole."""
        if self.refuses(topic, client_id):
            return self.refuse(qos, 1)
        return super().append(topic, payload, qos, retain, client_id, time, headers)

    def has_room(self, topic: bytes, payload: bytes, client_id: str) -> bool:
        """Whether the next message is taken, if it is this one."""
        return not self.refuses(topic, client_id) and super().has_room(topic, payload, client_id)

    def append_run(
        self,
        topic: bytes,
        payloads: list[bytes],
        qos: int,
        retain: bool,
        client_id: str,
        time: int,
    ) -> int:
        """Takes many messages, if their partition is whole."""
        if self.refuses(topic, client_id):
            return self.refuse(qos, len(payloads))
        return super().append_run(topic, payloads, qos, retain, client_id, time)


def appender_of(options: StreamOptions, partitions: list[Partition], commits: Commits) -> Appender:
    """The write side of a stream."""
    kind = PartialAppender if any(each.damage for each in partitions) else Appender
    return kind(options, partitions, commits)

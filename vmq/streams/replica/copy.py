"""A replica's partition as its log knows it."""

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Protocol

from vmq.config.streams import StreamOptions
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.index import Index
from vmq.streams.log.segment import Header, Sealed
from vmq.streams.replica.segment import LooseSegment


class PartitionCopy(Protocol):
    """`vmq.streams.replica.partition.ReplicaPartition`, which is shown what is committed."""

    folder: Path
    header: Header
    options: StreamOptions
    write_options: Any
    segment_age: float
    clock: Callable[[], float]
    changed: Lock
    flaws: dict[Path, DamagedError]
    is_doubtful: bool
    sealed: tuple[Sealed, ...]
    end: int
    on_write: Callable[[], None]

    @property
    def size(self) -> int: ...
    def swap(self, path: Path, work: Path, index: Index) -> Sealed: ...
    def check_room(self, size: int) -> None: ...
    def note(self, damage: DamagedError) -> None: ...
    def show(
        self, sealed: tuple[Sealed, ...], growing: LooseSegment | None, visible: int, end: int
    ) -> None: ...

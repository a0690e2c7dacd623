"""The partitions of a data folder that no broker uses, as readers know partitions; nothing is changed, nothing cut."""

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from vmq.streams.log import checkpoint
from vmq.streams.log.errors import DamagedError, MissingError
from vmq.streams.log.frame import END
from vmq.streams.log.index import Index, load
from vmq.streams.log.partition import CHECKPOINT
from vmq.streams.log.recovery import examine, is_torn
from vmq.streams.log.segment import Header, Sealed, SegmentFlawError, index_path, walk
from vmq.streams.stored import StoredPartition


@dataclass(frozen=True)
class LastSegment:
    """The segment that was written to last."""

    path: Path
    index: Index


class RestingLog:
    """One partition that nobody writes to: a `Log` for cursors.

    Raises:
        DamagedError: a segment is not what was written.
        OSError: the disk.
    """

    #: What the broker has archived nobody fetches here.
    archive = None

    def __init__(self, stored: StoredPartition) -> None:
        self.stream = stored.stream
        self.number = stored.number
        self.header = stored.header
        self.changed = threading.Lock()
        self.closed = False
        noted = checkpoint.read(stored.folder / CHECKPOINT)
        paths = stored.segments()
        self.sealed = [_sealed(path, self.header) for path in paths[:-1]]
        if paths:
            index = _examine_last(paths[-1], self.header, noted)
            self.active = LastSegment(paths[-1], index)
        else:
            base = 0 if noted is None else noted.next_offset
            self.active = LastSegment(stored.folder, Index(base, 0))
        self.visible = self.active.index.size
        self.end = self.active.index.end
        self.damage = self._missing()

    def _missing(self) -> DamagedError | None:
        """What is wrong if a segment is not there."""
        paths = [*(each.path for each in self.sealed[1:]), self.active.path]
        for each, path in zip(self.sealed, paths, strict=False):
            if each.end != int(path.stem):
                return MissingError(path, each.end)
        return None

    def note(self, damage: DamagedError) -> None:
        """Who reads it tells what he meets."""

    @property
    def kept(self) -> int:
        """The first offset that is there."""
        return self.earliest

    @property
    def earliest(self) -> int:
        """The first offset that is there."""
        return self.sealed[0].base if self.sealed else self.active.index.base


def _sealed(path: Path, header: Header) -> Sealed:
    """A sealed segment, by its saved index if that is good."""
    base = int(path.stem)
    with path.open("rb") as file:
        found = os.fstat(file.fileno())
        index = load(index_path(path), base, found.st_size - len(END)) or examine(
            file.fileno(), path, base, header
        )
    return Sealed(
        path, base, index.end, found.st_size, index.time, found.st_ino, index.merged, index.rows
    )


def _examine_last(
    path: Path, header: Header, noted: checkpoint.PartitionCheckpoint | None
) -> Index:
    """The index of the segment that was written to last, up to where a torn tail would be cut."""
    base = int(path.stem)
    trusted = None if noted is None else noted.trusted(base)
    with path.open("rb") as file:
        fd = file.fileno()
        size = os.fstat(fd).st_size
        start = header.size_in(fd)
        if start is None:
            if trusted or (trusted is None and size > len(header.raw)):
                raise DamagedError(path, 0, base, "it does not begin with this stream's schema")
            return Index(base, size)
        index = Index(base, start)
        try:
            for _, frame in walk(fd, start, size, base):
                index.add(frame.offset, frame.span, frame.rows, frame.size, frame.time)
        except SegmentFlawError as flaw:
            if not is_torn(fd, flaw, size, trusted):
                raise flaw.damage(path) from None
    return index

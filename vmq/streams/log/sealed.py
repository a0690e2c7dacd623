"""Segments that are complete, and which of them retention takes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from vmq.config.streams import StreamOptions
from vmq.streams.log.index import Index


class Sealed(NamedTuple):
    """A segment that is complete. `inode` tells it from a merged copy that takes its place."""

    path: Path
    base: int
    end: int
    size: int
    time: int
    inode: int
    merged: bool


def sealed_of(path: Path, index: Index) -> Sealed:
    """What is to be known of a sealed segment."""
    found = path.stat()
    return Sealed(
        path, index.base, index.end, found.st_size, index.time, found.st_ino, index.merged
    )


def expired(
    sealed: Sequence[Sealed], size: int, options: StreamOptions, now: float
) -> Iterator[tuple[Sealed, bool]]:
    """The oldest segments that are too old or too many; True: there is no room for them.

    Args:
        sealed: those of a partition, the oldest first.
        size: bytes of all its segments.
        options: of its stream.
        now: seconds since 1970.
    """
    oldest = -1
    if options.retention_age_seconds is not None:
        oldest = int((now - options.retention_age_seconds) * 1_000_000)
    room = options.retention_bytes // options.partitions if options.retention_bytes else None
    for each in sealed:
        is_too_much = room is not None and size > room
        if not is_too_much and each.time >= oldest:
            return
        yield each, is_too_much
        size -= each.size

"""Indexes of segments, as they lie on disk: a start reads one instead of thousands of frames.

    magic, CRC-32C of what follows
    a `SegmentIndex` in MessagePack

An index has nothing that its segment has not: one that is missing, damaged, or of another segment costs time alone.
"""

from collections.abc import Collection
from pathlib import Path
from struct import Struct
from typing import Final

import msgspec
from crc32c import crc32c

_HEAD: Final = Struct("<8sI")
_MAGIC: Final = b"VMQJIDX2"


class IndexedJobs(msgspec.Struct, array_like=True, frozen=True):
    """Jobs of one lane that were queued when they were added, in the order of adding, as pages have them."""

    queue: bytes
    priority: int
    count: int
    #: When the time of the first of them ends, in nanoseconds since 1970.
    ends: int
    ids: bytes
    #: Type and bytes of each column.
    columns: list[tuple[str, bytes]]
    #: Which nodes may have them, if others may.
    shared: bytes


class SegmentIndex(msgspec.Struct, array_like=True, frozen=True):
    """What a start wants to know of a segment."""

    #: Bytes of the segment, and the head of its last frame.
    size: int
    last_head: bytes
    #: Where its frames begin; all events.
    frames: bytes
    words: bytes
    jobs: list[IndexedJobs]
    #: The other events: their number, and they in the form of a frame.
    count: int
    events: bytes


_DECODER: Final = msgspec.msgpack.Decoder(SegmentIndex)


def index_path(segment: Path) -> Path:
    """Where the index of a segment is."""
    return segment.with_suffix(".index")


def drop_indexes(folder: Path, segments: Collection[int]) -> None:
    """Removes what a broker left that was killed: indexes half written, and those of segments that are gone."""
    for path in [*folder.glob("*.new"), *folder.glob("*.index")]:
        if path.stem.isdigit() and (path.suffix == ".new" or int(path.stem) not in segments):
            path.unlink()


def write_index(segment: Path, index: SegmentIndex) -> None:
    """Writes an index, whole or not at all.

    Raises:
        OSError: the disk.
    """
    data = msgspec.msgpack.encode(index)
    path = index_path(segment)
    new = path.with_suffix(".new")
    new.touch(0o600)
    new.write_bytes(_HEAD.pack(_MAGIC, crc32c(data)) + data)
    new.replace(path)


def read_index(segment: Path, size: int) -> SegmentIndex | None:
    """The index of a segment of so many bytes; None: there is none that is whole and its own."""
    try:
        data = index_path(segment).read_bytes()
        if len(data) < _HEAD.size:
            return None
        rest = memoryview(data)[_HEAD.size :]
        if _HEAD.unpack_from(data) != (_MAGIC, crc32c(rest)):
            return None
        found = _DECODER.decode(rest)
        if found.size != size:
            return None
        last = int.from_bytes(found.frames[-4:], "little")
        with segment.open("rb") as file:
            file.seek(last)
            return found if file.read(len(found.last_head)) == found.last_head else None
    except (OSError, msgspec.MsgspecError):
        return None

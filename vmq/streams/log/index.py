"""A sparse index of one segment: offset and time to file position, an entry for every 64 KiB or so.

It is in memory while a segment grows and is saved beside it when the segment is sealed. Nothing in
it is not also in the segment: an index that is missing, torn or of another file is made again.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import Final, NamedTuple

import crc32c

#: Bytes of the segment between two entries.
SPACING: Final = 65_536

_MAGIC: Final = b"vmqx"
_VERSION: Final = 2
_HEAD: Final = struct.Struct("<4sHHqqqqqqqq")  # and entries, and a CRC-32C of all that
_NO_TIME: Final = -1


class IndexEnd(NamedTuple):
    """The end of an index at some moment."""

    size: int
    end: int
    time: int
    frames: int
    rows: int
    entries: int
    receipt: str


class Index:
    """Where the batches of one segment begin.

    `size` is the length of the segment's file that the index covers, `end` the offset behind it and
    `time` the highest timestamp in it (-1: none), `first_time` that of its first batch. `rows` are fewer than
    offsets where batches of a group's own stand among them, or what was compacted.
    Entry i says: the batch of `offsets[i]` begins at
    `positions[i]`, and the highest timestamp before it is `times[i]`.
    """

    def __init__(self, base: int, size: int) -> None:
        self.base = base
        self.end = base
        self.size = size
        self.time = _NO_TIME
        self.first_time = _NO_TIME
        self.frames = self.rows = 0
        #: The last one that a batch names, as far as batches were looked at; it is not saved.
        self.receipt = ""
        #: The small batches of the segment have been merged.
        self.merged = False
        self.offsets = array("q")
        self.positions = array("q")
        self.times = array("q")

    def add(
        self, offset: int, span: int, rows: int, size: int, time: int, receipt: str = ""
    ) -> None:
        """Notes a batch of `span` offsets and `size` bytes that begins where the index ended."""
        if not self.positions or self.size - self.positions[-1] >= SPACING:
            # Readers in other threads count `offsets`: those come last.
            self.positions.append(self.size)
            self.times.append(self.time)
            self.offsets.append(offset)
        if not self.frames:
            self.first_time = time
        self.frames += 1
        self.rows += rows
        self.size += size
        self.end = offset + span
        self.time = max(self.time, time)
        self.receipt = receipt or self.receipt

    def mark(self) -> IndexEnd:
        """Where the index ends now, for `reset`."""
        numbers = self.size, self.end, self.time, self.frames, self.rows
        return IndexEnd(*numbers, len(self.offsets), self.receipt)

    def reset(self, mark: IndexEnd) -> None:
        """Forgets the batches noted since a mark."""
        self.size, self.end, self.time, self.frames, self.rows, entries, self.receipt = mark
        if not self.frames:
            self.first_time = _NO_TIME
        del self.offsets[entries:], self.times[entries:], self.positions[entries:]

    def find(self, offset: int) -> tuple[int, int] | None:
        """Where to begin reading for an offset: a position and its offset; None if there is no batch."""
        found = bisect_right(self.offsets, offset) - 1
        return (self.positions[found], self.offsets[found]) if found >= 0 else None

    def find_time(self, time: int) -> tuple[int, int] | None:
        """Where to begin looking for the first batch with a timestamp of `time` or later."""
        found = max(0, bisect_left(self.times, time, hi=len(self.offsets)) - 1)
        return (self.positions[found], self.offsets[found]) if self.offsets else None

    def save(self, path: Path) -> None:
        """Writes the index to a file, in one step."""
        parts = [self.positions, self.times, self.offsets]
        if sys.byteorder == "big":
            parts = [array("q", part) for part in parts]
            for part in parts:
                part.byteswap()
        count, flags = len(self.offsets), int(self.merged)
        times = (self.first_time, self.time)
        numbers = (self.base, self.end, self.size, *times, self.frames, self.rows, count)
        raw = _HEAD.pack(_MAGIC, _VERSION, flags, *numbers) + b"".join(map(bytes, parts))
        work = path.with_name(path.name + ".tmp")
        work.write_bytes(raw + crc32c.crc32c(raw).to_bytes(4, "little"))
        work.replace(path)


def load(path: Path, base: int, size: int) -> Index | None:
    """The saved index of a segment; None if there is none, or it is not of this very file."""
    try:
        raw = path.read_bytes()
    except OSError:
        return None
    body, crc = raw[:-4], raw[-4:]
    if crc32c.crc32c(body).to_bytes(4, "little") != crc or len(body) < _HEAD.size:
        return None
    magic, version, flags, own_base, end, own_size, first_time, time, frames, rows, count = (
        _HEAD.unpack_from(body)
    )
    is_own = (magic, version, own_base, own_size) == (_MAGIC, _VERSION, base, size)
    if not is_own or len(body) != _HEAD.size + 24 * count:
        return None
    index = Index(base, size)
    index.end, index.frames, index.merged = end, frames, bool(flags)
    index.first_time, index.time = first_time, time
    index.rows = rows
    for number, part in enumerate((index.positions, index.times, index.offsets)):
        at = _HEAD.size + 8 * count * number
        part.frombytes(body[at : at + 8 * count])
        if sys.byteorder == "big":
            part.byteswap()
    return index

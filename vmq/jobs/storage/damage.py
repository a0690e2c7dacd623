"""Where a log is not what was written: how it goes on behind that."""

import mmap
from typing import Final, NamedTuple

from crc32c import crc32c

from vmq.jobs.storage.frames import HEAD, HEAD_SIZE, MAGIC

_MAGIC: Final = MAGIC.to_bytes(4, "little")
#: Bytes that are looked at while a frame is searched for: bodies may be made to look like frames.
_MOST: Final = 1 << 30
#: Zeros at the end of a file that has its length already, and not its bytes.
_UNWRITTEN: Final = bytes(16)


class FrameExtent(NamedTuple):
    """Where a frame's events end, and where it does, as its head says."""

    middle: int
    end: int


def is_torn(view: mmap.mmap, at: int) -> bool:
    """Whether what stands at the end of a file is a frame whose writing was broken off."""
    size = len(view)
    return (
        size - at < HEAD_SIZE
        or (view[at : at + 4] == _MAGIC and _extent(view, at).end > size)
        or view[-len(_UNWRITTEN) :] == _UNWRITTEN
    )


def next_frame(view: mmap.mmap, at: int) -> int:
    """Where the next frame begins behind a damaged one; the end of the file if there is none.

    What the damaged one says of its length counts if a frame follows there: what lies within it was written by clients.
    """
    size = len(view)
    if size - at >= HEAD_SIZE and view[at : at + 4] == _MAGIC:
        end = _extent(view, at).end
        if end == size or _is_frame(view, end):
            return end
    left = _MOST
    place = view.find(_MAGIC, at + 1)
    while 0 <= place <= size - HEAD_SIZE and left > 0:
        if _is_frame(view, place):
            return place
        found = _extent(view, place)
        # What a damaged length claims beyond the end of the file was not looked at.
        left -= max(found.middle - place, HEAD_SIZE) if found.end <= size else HEAD_SIZE
        place = view.find(_MAGIC, place + 1)
    return size


def _extent(view: mmap.mmap, at: int) -> FrameExtent:
    _, _, _, told, bodies, _ = HEAD.unpack(view[at : at + HEAD_SIZE])
    return FrameExtent(at + HEAD_SIZE + told, at + HEAD_SIZE + told + bodies)


def _is_frame(view: mmap.mmap, at: int) -> bool:
    """Whether a frame begins here, by its events' checksum."""
    size = len(view)
    if not 0 <= at <= size - HEAD_SIZE or view[at : at + 4] != _MAGIC:
        return False
    _, told_crc, _, told, _, count = HEAD.unpack(view[at : at + HEAD_SIZE])
    found = _extent(view, at)
    if found.end > size or count * 8 > told:
        return False
    return bool(crc32c(view[at + HEAD_SIZE : found.middle]) == told_crc)

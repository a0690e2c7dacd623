"""What is whole of a damaged segment: the batches before a flaw, and those behind it that can be found."""

import os
from bisect import bisect_right
from contextlib import suppress
from pathlib import Path

from vmq.streams.log.frame import END, BadFrameError, Frame, parse
from vmq.streams.log.index import Index, load
from vmq.streams.log.segment import (
    WINDOW,
    Header,
    PlacedFrame,
    SegmentFlawError,
    Window,
    index_path,
    walk,
)


def whole_batches(path: Path, header: Header, base: int) -> list[PlacedFrame]:
    """The batches of a segment that are what was written, in order, with gaps where others were.

    Behind a flaw the next one is where the heads of flawed ones say, if a good batch with the right offset is there; or
    where the index says, if there is one. Nothing is searched for: a payload may look like a batch.

    Raises:
        OSError: the disk.
    """
    found: list[PlacedFrame] = []
    with path.open("rb") as file:
        fd = file.fileno()
        size = os.fstat(fd).st_size
        index = load(index_path(path), base, size - len(END))
        start = header.size_in(fd)
        if start is None:
            start = index.positions[0] if index is not None and index.positions else size
        place: tuple[int, int] | None = (start, base)
        while place is not None:
            position, offset = place
            try:
                for placed in walk(fd, position, size, offset):
                    found.append(placed)
                    position += placed.frame.size
                    offset = placed.frame.end
                return found
            except SegmentFlawError:
                place = _behind(fd, size, position, offset, index)
    return found


def _head(fd: int, size: int, position: int) -> Frame | None:
    """What stands at a position, whether it is what was written or not."""
    window = Window(fd, size)
    window.move(position, WINDOW)
    try:
        return parse(window.view, 0)
    except BadFrameError:
        return None


def _behind(
    fd: int, size: int, position: int, offset: int, index: Index | None
) -> tuple[int, int] | None:
    """Where a batch begins behind a flawed one, and its offset."""
    there, expected = position, offset
    while (frame := _head(fd, size, there)) is not None and frame.offset == expected:
        there += frame.size
        expected = frame.end
        with suppress(SegmentFlawError):
            if next(walk(fd, there, size, expected), None) is not None:
                return there, expected
    if index is None:
        return None
    at = bisect_right(index.positions, position)
    return (index.positions[at], index.offsets[at]) if at < len(index.positions) else None

"""Opening segments that an earlier process left: what is whole is kept, a torn tail is cut, damage is refused."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

from vmq.streams.log.errors import DamagedError
from vmq.streams.log.frame import END
from vmq.streams.log.index import Index, load
from vmq.streams.log.segment import Header, SegmentFlawError, index_path, walk

log = logging.getLogger("vmq.streams")


def recover_active(path: Path, base: int, header: Header, trusted: int | None) -> Index:
    """Makes the segment that was written to last one that can be written on; returns its index.

    Args:
        path: the file.
        base: the offset of its first row.
        header: its partition's.
        trusted: up to which byte it must be whole; None = not known: then what is merely short is
            a torn tail, and what is whole but wrong is damage.

    Raises:
        DamagedError: something that was written is not there, or is not what was written.
    """
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        start = header.size_in(fd)
        size = os.fstat(fd).st_size
        if start is None:
            # A segment gets its first batch after its schema is noted as written.
            if trusted or (trusted is None and size > len(header.raw)):
                raise DamagedError(path, 0, base, "it does not begin with this stream's schema")
            os.ftruncate(fd, 0)
            os.pwrite(fd, header.raw, 0)
            return Index(base, len(header.raw))
        index = Index(base, start)
        try:
            for _, frame in walk(fd, start, size, base):
                index.add(
                    frame.offset, frame.span, frame.rows, frame.size, frame.time, frame.receipt
                )
        except SegmentFlawError as flaw:
            if not is_torn(fd, flaw, size, trusted):
                raise flaw.damage(path) from None
        if trusted is not None and index.size < trusted:
            reason = f"the file ends where {trusted - index.size} bytes were written"
            raise DamagedError(path, index.size, index.end, reason)
        # Whatever lies behind: a torn tail, or the mark of the end that a sealing did not come beyond.
        if index.size < size:
            log.warning("%s: cut %d bytes of a torn tail", path, size - index.size)
            os.ftruncate(fd, index.size)
        return index
    finally:
        os.close(fd)


def is_torn(fd: int, flaw: SegmentFlawError, size: int, trusted: int | None) -> bool:
    """Whether a flaw is where a writer was interrupted, rather than in what it had written."""
    if trusted is not None:
        return flaw.position >= trusted
    if flaw.short:
        return True
    # File systems may lengthen a file before they write it: zeros to the end were never a batch.
    at = flaw.position
    while at < size:
        piece = os.pread(fd, 1 << 20, at)
        if piece.strip(b"\0"):
            return False
        at += len(piece)
    return True


def recover_sealed(path: Path, base: int, header: Header) -> Index:
    """The index of a segment that is no longer written to: the saved one, or one made anew.

    Raises:
        DamagedError: there is no good index, and the segment is not whole.
    """
    size = path.stat().st_size
    index = load(index_path(path), base, size - len(END))
    if index is None:
        with path.open("rb") as file:
            index = examine(file.fileno(), path, base, header)
        try:
            index.save(index_path(path))
        except OSError:
            pass  # a full disk: it is made anew next time, too
    return index


def examine(
    fd: int, path: Path, base: int, header: Header, pace: Callable[[int], None] | None = None
) -> Index:
    """Reads a sealed segment from end to end and makes its index.

    `pace` is called behind each batch, with its bytes.

    Raises:
        DamagedError: it is not whole.
    """
    size = os.fstat(fd).st_size
    start = header.size_in(fd)
    if start is None:
        raise DamagedError(path, 0, base, "it does not begin with this stream's schema")
    index = Index(base, start)
    try:
        for _, frame in walk(fd, start, size, base):
            index.add(frame.offset, frame.span, frame.rows, frame.size, frame.time, frame.receipt)
            if pace is not None:
                pace(frame.size)
    except SegmentFlawError as flaw:
        raise flaw.damage(path) from None
    if os.pread(fd, len(END) + 1, index.size) != END:
        raise DamagedError(path, index.size, index.end, "the mark of the stream's end is missing")
    return index

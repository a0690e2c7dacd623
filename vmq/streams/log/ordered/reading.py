"""When rows of few topics are read from what lies beside a segment, instead of from the segment."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vmq.streams.log.columns import Projection
from vmq.streams.log.ordered.file import OrderedFile, OrderedFlawError, Selected, path_of
from vmq.streams.log.segment import BatchSpan, OpenSegment

log = logging.getLogger("vmq.streams")

#: Reading a row of a block costs as much as so many of a segment: zstd, and the order of offsets.
DEARER: Final = 3
#: Bytes of blocks that are read together: those of more topics are read from the segment.
MOST_BYTES: Final = 4 << 20


def beside(
    place: OpenSegment, projection: Projection, start: int, end: int, limit: int | None = None
) -> BatchSpan | None:
    """The rows of the wanted topics of a segment from an offset up to another, or to its own end.

    None: the segment is to be read. A projection asks for more than topics, perhaps: it is still to be applied.

    Args:
        place: the segment.
        projection: what is wanted.
        start: the first offset; the segment has it.
        end: the other one.
        limit: rows that are enough.
    """
    if place.alone:
        return None
    end = min(end, place.index.end)
    path = path_beside(place)
    try:
        with OrderedFile(path) as file:
            wanted = selected(file, _span(place), projection, end - start, limit)
            if wanted is not None:
                return BatchSpan(file.read(wanted, projection.fields, start, end), start, 0, end)
    except FileNotFoundError:
        pass
    except (OrderedFlawError, OSError) as flaw:
        log.warning("%s is damaged (%s): it is deleted, the segment has it all", path, flaw)
        path.unlink(missing_ok=True)
    place.alone = True
    return None


def path_beside(place: OpenSegment) -> Path:
    """Where the ordered rows of an open segment lie, if it has some."""
    file = os.fstat(place.fd)
    return path_of(place.path, file.st_size, file.st_ino)


def _span(place: OpenSegment) -> int:
    """Offsets of a segment."""
    return place.index.end - int(place.path.stem)


def is_sparse(path: Path, span: int, projection: Projection, offsets: int) -> bool:
    """Whether the wanted rows are better read from the ordered ones of a segment that lie at a path.

    `span`, `offsets`: how many offsets the segment has, and how many of them are asked for.
    """
    try:
        with OrderedFile(path) as file:
            return selected(file, span, projection, offsets) is not None
    except (OrderedFlawError, OSError):
        return False


def selected(
    file: OrderedFile, span: int, projection: Projection, offsets: int, limit: int | None = None
) -> Selected | None:
    """The wanted rows of a segment of `span` offsets, if they cost less than reading some of these; see `beside`."""
    if not file.rows:
        return None
    mask = projection.matching(file.topics)
    rows = file.count(mask)
    walk = file.rows * offsets // max(1, span)
    if limit is not None and rows:  # it would be read as far as enough rows are found
        walk = min(walk, limit * file.rows // rows)
    if rows * DEARER > walk:
        return None
    found = file.select(mask)
    if found is None or found.unpacked * DEARER > walk or found.size > MOST_BYTES:
        return None
    return found


def portions(span: BatchSpan, most: int) -> Iterator[BatchSpan]:
    """Rows with their offsets, in parts of so many bytes about; one at least."""
    rows, count = span.rows, span.rows.num_rows
    step = max(1, count if rows.nbytes <= most else count * most // rows.nbytes)
    if not count:
        yield span
    for at in range(0, count, step):
        part = rows.slice(at, step)
        is_last = at + step >= count
        end = span.end if is_last else part.column("offset")[-1].as_py() + 1
        yield BatchSpan(part, span.offset, 0, end)

"""Making one batch of many small ones in a sealed segment, so that it is smaller and quicker to read.

The copy is written beside the segment, with the same rows at the same offsets, and takes its place in
one step. Readers that have the old file open read it to its end.
"""

import os
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from vmq.streams.frame import END, encode
from vmq.streams.index import Index, load
from vmq.streams.partition import Partition, Sealed
from vmq.streams.recovery import examine
from vmq.streams.segment import FlawError, index_path, read_span

#: Batches of this size are left alone.
ENOUGH: Final = 1 << 20


def is_worthwhile(index: Index) -> bool:
    """Whether a segment has so many batches that fewer would do."""
    return not index.merged and index.frames > 1 and index.size < index.frames * ENOUGH


def merge(partition: Partition, sealed: Sealed) -> bool:
    """Merges the small batches of a sealed segment; False if there is nothing to gain.

    Raises:
        DamagedError: the segment is not what was written; it stays as it is.
        OSError: the disk; likewise.
    """
    with sealed.path.open("rb") as file:
        path = index_path(sealed.path)
        index = load(path, sealed.base, sealed.size - len(END)) or examine(
            file.fileno(), sealed.path, sealed.base, partition.header
        )
    if not is_worthwhile(index):
        index.merged = True  # it need not be looked at again
        index.save(path)
        return False
    work = sealed.path.with_name(sealed.path.name + ".tmp")
    try:
        merged = _copy(partition, sealed, index, work)
    except BaseException:
        work.unlink(missing_ok=True)
        raise
    partition.replace(sealed, work, merged)
    return True


def _copy(partition: Partition, sealed: Sealed, index: Index, work: Path) -> Index:
    header, options = partition.header, partition.write_options
    merged = Index(sealed.base, len(header.raw))
    merged.merged = True
    with sealed.path.open("rb") as source, work.open("wb") as file:
        fd = source.fileno()
        position = header.size_in(fd) or 0
        file.write(header.raw)
        while position < index.size:
            try:
                span = read_span(fd, header, position, index.size, merged.end, None)
            except FlawError as flaw:
                raise flaw.damage(sealed.path) from None
            rows = span.rows.replace_schema_metadata(header.schema.metadata)
            newest = pc.max(rows.column("timestamp").cast(pa.int64())).as_py()
            head, body = encode(rows, merged.end, newest, len(header.raw), options)
            file.write(head)
            file.write(body)
            merged.add(merged.end, rows.num_rows, len(head) + len(body), newest)
            position = span.next
        file.write(END)
        file.flush()
        os.fsync(file.fileno())
    assert merged.end == index.end
    return merged

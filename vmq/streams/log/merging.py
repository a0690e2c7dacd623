"""Making large batches of small ones in sealed segments, and one segment of small neighbours, for quicker reading.

Devices that each send seldom make a batch of a few rows every few milliseconds. A segment is sealed early then
(`Partition.is_due`), its batches are merged, and what results is joined with its neighbours, so that neither
batches nor files are many.

The copy is written beside the segments, with the same rows at the same offsets, and takes their place in
one step. Readers that have an old file open read it to its end.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from vmq.streams.log.copying import SegmentCopy, is_compacted, spans_of
from vmq.streams.log.frame import END
from vmq.streams.log.index import Index, load
from vmq.streams.log.partition import Partition
from vmq.streams.log.recovery import examine
from vmq.streams.log.segment import Header, Sealed, index_path

#: Batches of this size are left alone.
ENOUGH: Final = 1 << 20
#: Neighbours that are worth a join.
FEW: Final = 8


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
        partition.leave_merged(sealed)
        return False
    _rewrite(partition, [sealed])
    return True


def join(partition: Partition) -> bool:
    """Makes one segment of small neighbours; False if there are few.

    Raises:
        DamagedError: one is not what was written; all stay as they are.
        OSError: the disk; likewise.
    """
    run = joinable(partition.sealed, partition.options.segment_bytes, partition.segment_age)
    if len(run) < FEW:
        return False
    _rewrite(partition, run)
    return True


def joinable(sealed: Sequence[Sealed], segment_bytes: int, segment_age: float) -> Sequence[Sealed]:
    """The newest merged segments of which none is larger than all behind it together.

    So the sizes of what stays alone at least halve from one to the next, and each row is copied as often as its
    segment doubles: merging in tiers, as log-structured stores have it. The limits of size and age hold for the result.
    """
    size = count = 0
    for each in reversed(sealed):
        # Of one whose rows are all gone no time is known: 0.
        too_old = each.time > 0 and (sealed[-1].time - each.time) / 1e6 > segment_age
        if not each.merged or too_old or size + each.size > segment_bytes:
            break
        if count and each.size > size:
            break
        size += each.size
        count += 1
    return sealed[len(sealed) - count :]


def _rewrite(partition: Partition, run: Sequence[Sealed]) -> None:
    """Puts one segment of large batches in the place of a run of neighbours."""
    work = run[0].path.with_name(run[0].path.name + ".tmp")
    try:
        merged = _copy(partition, run, work)
    except BaseException:
        work.unlink(missing_ok=True)
        raise
    partition.replace(run, work, merged)


def _copy(partition: Partition, run: Sequence[Sealed], work: Path) -> Index:
    header = partition.header
    if is_compacted(header, run):
        header = header.compacted
    receipt = last_receipt(partition.header, run)
    with work.open("wb") as file:
        options, time = partition.write_options, max(each.time for each in run)
        copy = SegmentCopy(file, header, run[0].base, options, receipt, time=time)
        for span in spans_of(partition.header, run):
            if copy.add(span.rows, span.offset, span.end):
                copy.flush()
        copy.flush()
        merged = copy.finish()
        file.flush()
        os.fsync(file.fileno())
    assert merged.end == run[-1].end
    return merged


def last_receipt(header: Header, run: Sequence[Sealed]) -> str:
    """What the batches of a run name last: the copy takes their place in one step, and is never there in part."""
    for sealed in reversed(run):
        with sealed.path.open("rb") as source:
            found = examine(source.fileno(), sealed.path, sealed.base, header).receipt
        if found:
            return found
    return ""

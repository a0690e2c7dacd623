"""Rows of a partition that another node gives: they keep their offsets, and what was compacted away stays away.

What has gaps is written as sealed segments of compacted form; the active one has none.
"""

import os
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from vmq.streams.log.copying import SegmentCopy
from vmq.streams.log.partition import Partition
from vmq.streams.log.schema import COMPACTED

_NOTHING: Final = pa.RecordBatch.from_pylist([], schema=COMPACTED)


def takes_from(partition: Partition, giver: str | None) -> bool:
    """Whether rows go behind what is here: those of the node that gives this copy, and any of this node's own (None).

    Its own are acknowledged, and a copy may begin anew, or end nowhere: it goes before them.

    Raises:
        OSError: the disk; call it again before anything else is written.
    """
    if giver is None and partition.giver is not None:
        partition.begin_at(partition.active.index.end)
    return giver in (None, partition.giver)


def has_copy(partition: Partition, giver: str, end: int, *, counts: bool) -> bool:
    """Whether the copy that a node gives is here, whole up to an offset; it is the partition then if it `counts`."""
    is_here = partition.giver == giver and partition.active.index.end == end
    if is_here and counts:
        partition.accept_copy()
    return is_here


def append_given(partition: Partition, rows: pa.RecordBatch, newest: int, end: int) -> None:
    """Appends rows whose offsets reach up to an end; what came before, and comes again, is passed over.

    As `Partition.append`: in the writer's thread, and with the same exceptions.
    """
    have = partition.active.index.end
    if end <= have:
        return
    if rows.schema.names != COMPACTED.names:
        begin = end - rows.num_rows
        if begin > have:
            _append_compacted(partition, _NOTHING, begin)
        partition.append(rows.slice(max(0, have - begin)), newest)
    else:
        _append_compacted(
            partition, rows.filter(pc.greater_equal(rows.column("offset"), have)), end
        )


def _append_compacted(partition: Partition, rows: pa.RecordBatch, end: int) -> None:
    """Writes rows that bring their offsets as a segment of their own."""
    if partition.active.index.frames:
        partition.roll()
    before = partition.active
    work = before.path.with_name(before.path.name + ".tmp")
    with work.open("wb") as file:
        base, options = before.index.base, partition.write_options
        receipt = before.index.receipt
        copy = SegmentCopy(file, partition.header.compacted, base, options, receipt)
        if rows.num_rows:
            copy.add(rows, base, end)
            copy.flush()
        copy.reach(end)
        index = copy.finish()
        file.flush()
        os.fsync(file.fileno())
    partition.go_on_behind(work, index)

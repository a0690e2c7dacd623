"""What each replica of a partition does by itself with its old segments: merging, and compaction as the group decided.

Neither changes an offset. A segment keeps its first and its last one, and its control batches, so segments stay the
units in which replicas fetch what they lack from each other. What is compacted, up to which offset, stands in the
group's log; so all replicas have the same rows left in the end, whoever comes to it when.

It runs in the thread that tidies streams; the thread of the groups lets each copy in (`ReplicaLog.take_copy`).
"""

import logging
import os
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

from vmq.streams.log.copying import SegmentCopy
from vmq.streams.log.frame import END, BadFrameError, Frame
from vmq.streams.log.index import Index, load
from vmq.streams.log.merging import is_worthwhile, last_receipt
from vmq.streams.log.partition import Partition
from vmq.streams.log.recovery import examine
from vmq.streams.log.segment import (
    Header,
    Sealed,
    SegmentFlawError,
    index_path,
    read_span,
    walk,
)
from vmq.streams.replica.batches import batch_of, tell, united
from vmq.streams.replica.log import ReplicaLog
from vmq.streams.replica.partition import ReplicaPartition
from vmq.streams.tidying.compaction import CompactionNote, NewestRows, is_due, read_note, rounds
from vmq_cluster.raft.messages import ROWS, Batch

log = logging.getLogger("vmq.streams")


def due(partition: ReplicaPartition, decided: CompactionNote, before: int) -> CompactionNote:
    """How far a leader is to have the partition compacted; as was decided, while that is not done or not worth it.

    `before`: tombstones go that are older.
    """
    kept = partition.log
    if kept is None or not partition.options.compact:
        return decided
    done = read_note(partition.folder)
    final = final_of(kept)
    if not final or done.end < decided.end or not is_due(final, decided):
        return decided
    return CompactionNote(final[-1].end, max(before, decided.before))


def final_of(kept: ReplicaLog) -> list[Sealed]:
    """The segments that nobody will ever write on: also where they end is committed."""
    return [each for each in list(kept.old) if each.end < kept.committed]


def tidy_replica(partition: Partition, is_stopping: Callable[[], bool]) -> None:
    """Does so, for whoever tidies all partitions."""
    if isinstance(partition, ReplicaPartition):
        tidy(partition, is_stopping)


def tidy(partition: ReplicaPartition, is_stopping: Callable[[], bool]) -> None:
    """Compacts and merges what there is.

    Raises:
        DamagedError: a segment is not what was written; it stays as it is.
        OSError: the disk; likewise.
    """
    kept = partition.log
    if kept is None or kept.damage:
        return
    try:
        _compact(partition, kept, is_stopping)
        for sealed in final_of(kept):
            if is_stopping() or partition.closed:
                return
            if not sealed.merged:
                _merge(partition, kept, sealed)
    except (CancelledError, FileNotFoundError):
        pass  # the group is closed, or lets go of it, just now


def _compact(
    partition: ReplicaPartition, kept: ReplicaLog, is_stopping: Callable[[], bool]
) -> None:
    if not partition.options.compact:
        return
    wanted, changes = partition.decided, kept.changes
    note = read_note(partition.folder)
    final = final_of(kept)
    if wanted.end <= note.end:
        return
    if not final or final[-1].end < wanted.end:
        return  # what lies before it is still on its way to be final here

    def rewrite(sealed: Sealed, newest: NewestRows) -> bool:
        if is_stopping() or partition.closed or kept.changes != changes:
            return False
        left = _Left(newest, wanted.before)
        return _rewrite(partition, kept, sealed, left) or left.count == 0

    def segments() -> list[Sealed]:
        return [each for each in final_of(kept) if each.base < wanted.end]

    by = partition.options.compact_by
    done = rounds(partition.header, segments, by, note, wanted, rewrite)
    if done != note:
        partition.call(kept.note_compaction, done, changes)


def _merge(partition: ReplicaPartition, kept: ReplicaLog, sealed: Sealed) -> None:
    path = index_path(sealed.path)
    index = load(path, sealed.base, sealed.size - len(END))
    if index is None:
        with sealed.path.open("rb") as file:
            index = examine(file.fileno(), sealed.path, sealed.base, partition.header)
    if is_worthwhile(index):
        _rewrite(partition, kept, sealed, None)
    else:
        index.merged = True
        partition.call(kept.take_copy, sealed, None, index)


class _Left:
    """Which rows stay, and how many went."""

    def __init__(self, newest: NewestRows, before: int) -> None:
        self._newest = newest
        self._before = before
        self.count = 0

    def of(self, rows: Any, offset: int) -> Any:
        left = self._newest.left(rows, offset, self._before)
        self.count += rows.num_rows - left.num_rows
        return left


def _rewrite(
    partition: ReplicaPartition, kept: ReplicaLog, sealed: Sealed, left: _Left | None
) -> bool:
    """Has a segment replaced by one with large batches, of the rows that are left; whether it was."""
    work = sealed.path.with_name(sealed.path.name + ".copy.tmp")
    try:
        index = copied(partition.header, sealed, partition.write_options, work, left)
        if left is not None and not left.count:
            return False
        return bool(partition.call(kept.take_copy, sealed, work, index))
    finally:
        work.unlink(missing_ok=True)


def copied(header: Header, sealed: Sealed, options: Any, work: Path, left: _Left | None) -> Index:
    """A segment written anew, and synced: control batches as they are, and batches of one term between them as few.

    Raises:
        DamagedError: it is not what was written.
        OSError: the disk.
    """
    receipt = last_receipt(header, [sealed])
    with sealed.path.open("rb") as source, work.open("wb") as file:
        fd = source.fileno()
        own = header.of(fd)
        into = own if left is None else header.compacted
        copy = SegmentCopy(file, into, sealed.base, options, receipt, time=sealed.time)
        run: list[Batch] = []
        try:
            for position, frame, batch in _batches(fd, own, sealed):
                if run and (batch.kind != ROWS or batch.term != run[0].term):
                    copy.flush(_told(run))
                    run = []
                if batch.kind != ROWS:
                    copy.control(frame.raft.decode("ascii"))
                    continue
                limit = position + frame.size
                rows = read_span(fd, own, position, limit, frame.offset, None).rows
                run.append(batch)
                if left is not None:
                    rows = left.of(rows, frame.offset)
                if copy.add(rows, frame.offset, frame.end):
                    copy.flush(_told(run))
                    run = []
        except SegmentFlawError as flaw:
            raise flaw.damage(sealed.path) from None
        copy.flush(_told(run) if run else "")
        index = copy.finish()
        file.flush()
        os.fsync(file.fileno())
    return index


def _batches(fd: int, header: Header, sealed: Sealed) -> Iterator[tuple[int, Frame, Batch]]:
    start = header.size_in(fd) or 0
    for position, frame in walk(fd, start, sealed.size, sealed.base):
        try:
            batch = batch_of(frame, b"")
        except BadFrameError as error:
            raise SegmentFlawError(position, frame.offset, str(error), short=False) from None
        yield position, frame, batch


def _told(run: list[Batch]) -> str:
    """What one batch says in the place of several; nothing, where they are from before there was a group."""
    marks = united(mark for each in run for mark in each.marks)
    term = run[0].term
    return tell(ROWS, term, marks, b"") if term or marks else ""

"""Retention by key: of the rows of a key (a topic, or what decides the partition) the newest stays.

Sealed segments are rewritten without the other rows. Offsets never change: what is left keeps its own, and gaps stay.
A row with an empty payload is a **tombstone**: it says that its key is gone, and goes itself once it is old enough for
every reader to have seen it. Rows without a key stay.

What is left is a function of three things: the rows themselves, the offset up to which they were looked at, and the
time before which tombstones go. So it is the same wherever these are the same, in how many rounds ever
(`CompactionNote`).

The oldest segment is rewritten first. Who is interrupted has lost no key: as long as an old row is there, so is the
tombstone or the row behind it.
"""

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

import crc32c
import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from vmq.streams.log.columns import offsets_of, within
from vmq.streams.log.copying import SegmentCopy, spans_of
from vmq.streams.log.merging import last_receipt
from vmq.streams.log.partition import Partition
from vmq.streams.log.schema import STORED
from vmq.streams.log.segment import Header, Sealed

log = logging.getLogger("vmq.streams")

#: Seconds that a tombstone stays: longer than a reader, or a replica, may be behind.
TOMBSTONES_STAY: Final = 86_400
#: Keys that are known at a time: a hundred bytes or so each.
KEYS: Final = 1 << 18
#: Beside the segments: how far they are compacted.
NOTE: Final = "compacted"


class CompactionNote(msgspec.Struct, array_like=True, frozen=True):
    """Rows before `end` are compacted, and tombstones gone that are older than `before` (microseconds since 1970)."""

    end: int = 0
    before: int = 0


#: Made once, when nobody else does: two threads at once that have msgspec learn a form crash.
_NOTE: Final = msgspec.msgpack.Decoder(CompactionNote)


def read_note(folder: Path) -> CompactionNote:
    """How far a partition is compacted; not at all, where that cannot be read."""
    try:
        raw = (folder / NOTE).read_bytes()
        if int.from_bytes(raw[:4], "big") == crc32c.crc32c(raw[4:]):
            return _NOTE.decode(raw[4:])
    except (OSError, msgspec.MsgspecError):
        pass
    return CompactionNote()


def write_note(folder: Path, note: CompactionNote) -> None:
    """Raises `OSError`."""
    body = msgspec.msgpack.encode(note)
    work = folder / (NOTE + ".tmp")
    work.write_bytes(crc32c.crc32c(body).to_bytes(4, "big") + body)
    work.replace(folder / NOTE)


class NewestRows:
    """The newest row of each key among those that were looked at.

    Args:
        by: what is the key: "topic", or "key", what decides the partition.
    """

    def __init__(self, by: str) -> None:
        self.field = STORED.get_field_index(by)
        self.by = by
        #: Up to where rows were looked at.
        self.end = 0
        self._offsets: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._offsets)

    def look(self, rows: pa.RecordBatch, offset: int, end: int) -> None:
        """Looks at rows behind those before, which begin at an offset, or bring theirs, and reach up to another."""
        keys = rows.column(self.by).cast(pa.binary())
        table = pa.table({"key": keys, "at": offsets_of(rows, offset)})
        newest = table.group_by("key").aggregate([("at", "max")])
        for key, at in zip(newest["key"].to_pylist(), newest["at_max"].to_pylist(), strict=True):
            if key:
                self._offsets[_digest(key)] = at
        self.end = end

    def left(self, rows: pa.RecordBatch, offset: int, before: int) -> pa.RecordBatch:
        """Those of some rows that stay, with their offsets. Tombstones that are older than `before` go."""
        offsets = offsets_of(rows, offset)
        if rows.schema.names[-1] != "offset":
            rows = rows.append_column("offset", offsets)
        keys = rows.column(self.by).cast(pa.binary()).dictionary_encode()
        known = [self._newest(key) for key in keys.dictionary.to_pylist()]
        newest = pc.take(pa.array(known, pa.int64()), keys.indices)
        is_tombstone = pc.equal(pc.binary_length(rows.column("payload")), 0)
        times = rows.column("timestamp").cast(pa.int64())
        is_old = pc.and_(pc.less(times, before), pc.less(offsets, self.end))
        has_key = pc.greater(pc.binary_length(rows.column(self.by).cast(pa.binary())), 0)
        goes = pc.and_(pc.and_(is_tombstone, is_old), has_key)
        goes = pc.or_(pc.less(offsets, newest), goes)
        return rows.filter(pc.invert(goes))

    def _newest(self, key: bytes) -> int:
        return self._offsets.get(_digest(key), -1) if key else -1


def _digest(key: bytes) -> bytes:
    """Topics may be long."""
    return blake2b(key, digest_size=16).digest()


def survey(header: Header, sealed: Sequence[Sealed], by: str, start: int, end: int) -> NewestRows:
    """Looks at rows from an offset up to another, or so many as there is room for.

    Raises:
        DamagedError: a segment is not what was written.
        OSError: the disk.
    """
    found = NewestRows(by)
    found.end = start
    run = [each for each in sealed if start < each.end and each.base < end]
    for span in spans_of(header, run, [found.field]):
        if span.end <= start:
            continue
        rows, first = within(span.rows, span.offset, start, end)
        found.look(rows, first, min(span.end, end))
        if len(found) >= KEYS or found.end >= end:
            break
    return found


def is_due(sealed: Sequence[Sealed], note: CompactionNote) -> bool:
    """Whether what came since the last round is as much as what that left: so rows are not copied again and again."""
    fresh = sum(each.size for each in sealed if each.base >= note.end)
    return fresh > 0 and fresh >= sum(each.size for each in sealed if each.base < note.end)


def rounds(
    header: Header,
    sealed: Callable[[], Iterable[Sealed]],
    by: str,
    note: CompactionNote,
    wanted: CompactionNote,
    rewrite: Callable[[Sealed, NewestRows], bool],
) -> CompactionNote:
    """Compacts what is not yet; returns how far it came.

    Args:
        header: the partition's.
        sealed: its segments as they are now.
        by: what is the key.
        note: how far it is compacted.
        wanted: how far it is to be.
        rewrite: has a segment lose what is not left; False: all ends here for now.

    Raises:
        DamagedError: a segment is not what was written.
        OSError: the disk.
    """
    end = note.end
    while end < wanted.end:
        newest = survey(header, list(sealed()), by, end, wanted.end)
        if newest.end <= end:
            break
        for each in list(sealed()):
            if each.base < newest.end and not rewrite(each, newest):
                return CompactionNote(end, note.before)
        end = newest.end
    return CompactionNote(end, wanted.before if end >= wanted.end else note.before)


def compact(partition: Partition, is_stopping: Callable[[], bool] = lambda: False) -> bool:
    """Compacts the sealed segments of a partition of which there is one copy, if it is time; whether it was.

    Raises:
        DamagedError: a segment is not what was written; it stays as it is, and those behind it.
        OSError: the disk; likewise.
    """
    options = partition.options
    if not options.compact or partition.is_copy or partition.damage is not None:
        return False
    note = read_note(partition.folder)
    if note.end > partition.end:
        note = CompactionNote()  # that was another log
    if not is_due(partition.sealed, note):
        return False
    before = int((partition.clock() - TOMBSTONES_STAY) * 1_000_000)
    wanted = CompactionNote(partition.sealed[-1].end, max(before, note.before))

    def rewrite(sealed: Sealed, newest: NewestRows) -> bool:
        if is_stopping() or partition.gone:
            return False
        _rewrite(partition, sealed, newest, wanted.before)
        return True

    by = options.compact_by
    done = rounds(partition.header, lambda: partition.sealed, by, note, wanted, rewrite)
    if done != note:
        write_note(partition.folder, done)
    return True


def _rewrite(partition: Partition, sealed: Sealed, newest: NewestRows, before: int) -> None:
    """Puts a segment in the place of one that has rows which are not left."""
    header = partition.header
    work = sealed.path.with_name(sealed.path.name + ".tmp")
    receipt = last_receipt(header, [sealed])
    count = 0
    try:
        with work.open("wb") as file:
            options = partition.write_options
            into, time = header.compacted, sealed.time
            copy = SegmentCopy(file, into, sealed.base, options, receipt, time=time)
            for span in spans_of(header, [sealed]):
                count += span.rows.num_rows
                if copy.add(newest.left(span.rows, span.offset, before), span.offset, span.end):
                    copy.flush()
            copy.flush()
            index = copy.finish()
            file.flush()
            os.fsync(file.fileno())
        if copy.rows < count:
            log.info("%s: %d of %d rows are left", sealed.path, copy.rows, count)
            partition.replace([sealed], work, index)
    finally:
        work.unlink(missing_ok=True)

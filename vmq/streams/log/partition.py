"""One partition: a log of segments, written by one thread and read by any.

The last segment is active, the others are sealed and change no more, except that a merged copy may
take one's place. What readers see (`end`, the list of segments) changes only when rows are as durable as the
stream's acks demand: `append` writes, `publish` shows, and `rollback` undoes what was not shown.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa

from vmq.config.streams import StreamOptions
from vmq.config.values import read_archive
from vmq.disk.room import DiskRoom
from vmq.streams.log import checkpoint as checkpoints
from vmq.streams.log.archive import PartitionArchive
from vmq.streams.log.checkpoint import CheckpointFile, PartitionCheckpoint, sync_folder
from vmq.streams.log.errors import DamagedError, MissingError
from vmq.streams.log.frame import END, encode, write_options
from vmq.streams.log.index import Index
from vmq.streams.log.ordered.beside import BytesBeside
from vmq.streams.log.recovery import examine, recover_active, recover_sealed
from vmq.streams.log.segment import (
    COPY,
    SUFFIX,
    Active,
    Header,
    Sealed,
    expired,
    file_name,
    giver_of,
    index_path,
    sealed_of,
)
from vmq.streams.log.small import FewRows, few_or_pieces

log = logging.getLogger("vmq.streams")

#: A segment is sealed when it has this many batches and they are small, so that they are merged soon: a small one costs
#: a reader as much time as a thousand rows of a large one.
MANY: Final = 256
SMALL: Final = 1 << 16

CHECKPOINT: Final = "checkpoint"


class Partition:
    """The log of one partition; opening it recovers it.

    Raises:
        DamagedError: a segment is not what was written.
        OSError: the disk.
    """

    is_replica = False  # a copy that its group writes (`vmq.streams.replica`)
    #: Why nothing can be read or written here (`vmq.streams.damaged`).
    damage: DamagedError | None = None
    room = DiskRoom()  # that of the broker whose partition it is
    passed: Callable[[float | None], float] | None = None  # `PassedTime.now`, for retention
    #: Where segments go that retention takes; None: nowhere.
    archive: PartitionArchive | None = None
    #: Rows that retention has deleted since the start though no archive has them; counted up to an offset.
    unarchived = _counted_to = 0

    def __init__(
        self,
        folder: Path,
        stream: str,
        number: int,
        options: StreamOptions,
        clock: Callable[[], float] = time.time,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.stream = stream
        self.number = number
        self.clock = clock
        self.header = Header(stream, number)
        self.set_options(options)
        #: Called in the writer's thread when there are new rows.
        self.on_publish: Callable[[], None] = lambda: None
        self.changed = threading.Lock()  # guards the segments and the visible end, for moments only
        self.sealed: tuple[Sealed, ...] = ()
        #: Segments whose small batches wait to be merged.
        self.unmerged: list[Sealed] = []
        #: The stream is being deleted: nothing more is written, and every sealed segment may go.
        self.gone = False
        self.closed = False
        #: The node that gives this copy, which counts for nothing yet; None: it is the partition.
        self.giver = giver_of(folder)
        #: Segments in which damage was found since the start.
        self.flaws: dict[Path, DamagedError] = {}
        #: Readers see offsets below `end`, and bytes of the active segment below `visible`.
        self.end = 0
        self.visible = 0
        self.active = self._recover()
        self.shown = self.active.index.mark()
        self.publish()
        with self.active.file as fd:
            is_compacted = self.header.of(fd).is_compacted
        if is_compacted:
            self.roll()  # it was sealed, and another was to begin: it is not written on

    def note(self, damage: DamagedError) -> None:
        """Damage was found in a segment. The log tells it once, the broker for as long as the file is there."""
        if damage.path not in self.flaws:
            self.flaws[damage.path] = damage
            log.error(
                "stream=%s partition=%d: readers are refused from there on: %s",
                self.stream,
                self.number,
                damage,
            )

    def set_options(self, options: StreamOptions) -> None:
        """Takes over other options, for what is written from now on."""
        self.options = options
        self.write_options = write_options(options.compression)
        self._beside = BytesBeside()
        self.segment_age = options.segment_age_seconds
        url = read_archive(options.archive)
        if url != (None if self.archive is None else self.archive.url):
            place = self.folder, self.header, self.number, lambda: self.room
            self.archive = None if url is None else PartitionArchive(url, *place)

    # Opening

    def _recover(self) -> Active:
        for leftover in self.folder.glob("*.tmp"):
            leftover.unlink()
        noted = checkpoints.read(self.folder / CHECKPOINT)
        self.checkpoint = CheckpointFile(self.folder / CHECKPOINT)
        try:
            return self._recover_segments(noted)
        except BaseException:
            self.checkpoint.close()
            raise

    def _recover_segments(self, noted: PartitionCheckpoint | None) -> Active:
        paths = sorted(self.folder.glob("*" + SUFFIX))
        if not paths:
            base = noted.next_offset if noted else 0
            return self._begin(base)
        sealed: list[Sealed] = []
        for path in paths[:-1]:
            base = int(path.stem)
            index = recover_sealed(path, base, self.header)
            each = sealed_of(path, index)
            if sealed and each.end <= sealed[-1].end:
                self._unlink([each])  # a join was interrupted: its copy has these rows
            else:
                sealed.append(each)
        self._check_order([*((each.base, each.end) for each in sealed), (int(paths[-1].stem), 0)])
        self.sealed = tuple(sealed)
        self.unmerged = [each for each in sealed if not each.merged]
        last, base = paths[-1], int(paths[-1].stem)
        if noted is not None and noted.base > base:
            return self._missing(last, noted)
        trusted = None if noted is None else noted.trusted(base)
        index = recover_active(last, base, self.header, trusted)
        active = Active(last, index, index.first_time / 1e6 if index.frames else self.clock())
        active.distrust(0 if noted is None else noted.synced_of(base))
        active.sync()
        self._note(active)
        return active

    def _check_order(self, ends: list[tuple[int, int]]) -> None:
        for (_, end), (base, _) in pairwise(ends):
            if base != end:
                raise MissingError(self.folder / file_name(base), end)

    def _missing(self, last: Path, noted: PartitionCheckpoint) -> Active:
        """The segment that was written to is gone."""
        path = self.folder / file_name(noted.base)
        if noted.next_offset > noted.base:
            raise DamagedError(path, 0, noted.base, "the file is missing")
        # It had no rows yet. The one before it goes on.
        index = recover_active(last, int(last.stem), self.header, None)
        return Active(last, index, index.first_time / 1e6 if index.frames else self.clock())

    def _begin(self, base: int) -> Active:
        """Makes an empty segment and notes that it is the one to write to."""
        path = self.folder / file_name(base)
        work = path.with_name(path.name + ".tmp")
        work.write_bytes(self.header.raw)
        work.replace(path)
        try:
            sync_folder(self.folder)
            active = Active(path, Index(base, len(self.header.raw)), self.clock())
            self._note(active)
        except OSError:
            path.unlink()  # else it would begin where the segment before it goes on
            raise
        return active

    def _note(self, active: Active) -> None:
        """Notes how far the active segment is written."""
        index = active.index
        self.checkpoint.write(PartitionCheckpoint(index.base, index.size, active.synced, index.end))

    # Writing: one thread

    def append(
        self, batch: pa.RecordBatch | FewRows, newest: int, receipts: Sequence[tuple[int, str]] = ()
    ) -> None:
        """Writes rows behind the last; nobody sees them before `publish`, which comes before the next call.

        Args:
            batch: rows of the stored columns.
            newest: their highest timestamp, in microseconds.
            receipts: those of the rows that have one, by the row's number, in order.

        Raises:
            OSError: the disk, for example when it is full. Call `rollback` then.
        """
        if self.is_due(batch.nbytes):
            self.roll()
        schema_size = len(self.header.raw)
        last = done = 0
        for piece in few_or_pieces(batch, self.header.schema.metadata):
            index = self.active.index
            # The first batch of a segment names that of the segments before it.
            receipt = "" if index.frames else index.receipt
            done += piece.num_rows
            while last < len(receipts) and receipts[last][0] < done:
                receipt = receipts[last][1]
                last += 1
            parts: Sequence[bytes | memoryview]
            if isinstance(piece, FewRows):
                parts = piece.message(index.end, receipt)
            else:
                parts = encode(piece, index.end, newest, schema_size, self.write_options, receipt)
            self.active.write(parts)
            count, size = piece.num_rows, sum(map(len, parts))
            index.add(index.end, count, count, size, newest, receipt)

    def is_due(self, size: int = 0) -> bool:
        """Whether the active segment is to be sealed before more is written."""
        active, options = self.active, self.options
        if not active.index.frames:
            return False
        index = active.index
        if index.frames >= MANY and index.size < index.frames * SMALL:
            return True
        age = self.clock() - active.began
        return index.size + size > options.segment_bytes or age >= self.segment_age

    def sync(self) -> None:
        """Waits until what is written is on disk."""
        self.active.sync()

    def publish(self) -> None:
        """Shows readers all that is written."""
        index = self.active.index
        if index.size != self.visible or index.end != self.end:
            self._note(self.active)
        with self.changed:
            self.shown = index.mark()
            self.visible = index.size
            self.end = index.end
        self.on_publish()

    def rollback(self) -> None:
        """Undoes what was written and not shown. Raises `OSError`: call it again before anything else is written."""
        self.active.cut(self.visible)
        with self.changed:
            self.active.index.reset(self.shown)

    def roll(self) -> None:
        """Seals the active segment and begins another.

        Raises:
            OSError: the disk; the active segment is still the same then.
        """
        active = self.active
        index = active.index
        size = index.size
        assert size == self.visible, "rows that were not published would be shown"
        try:
            active.write([END])
            active.sync()
            fresh = self._begin(index.end)
        except OSError:
            with suppress(OSError):
                active.cut(size)
            raise
        fresh.index.receipt = index.receipt
        with suppress(OSError):
            index.save(index_path(active.path))
        sealed = sealed_of(active.path, index)
        with self.changed:
            self.sealed = (*self.sealed, sealed)
            self.unmerged.append(sealed)
            self._go_on(fresh)
        active.file.close()

    def go_on_behind(self, work: Path, index: Index) -> None:
        """Puts a sealed segment in the place of the active one, which has no rows, and begins another.

        Raises:
            OSError: the disk; call it again before anything else is written.
        """
        before = self.active
        work.replace(before.path)
        fresh = self._begin(index.end)
        with suppress(OSError):
            index.save(index_path(before.path))
        with self.changed:
            self.sealed = (*self.sealed, sealed_of(before.path, index))
            self._go_on(fresh)
        before.file.close()

    def _go_on(self, fresh: Active) -> None:
        """Another segment is the one to write to; under `changed`."""
        self.active = fresh
        self.shown = fresh.index.mark()
        self.visible = fresh.index.size
        self.end = fresh.index.end

    @property
    def is_copy(self) -> bool:
        """Whether these rows count for nothing."""
        return self.giver is not None

    def begin_at(self, base: int, giver: str | None = None) -> None:
        """Has a partition without rows, or with a copy that counts for nothing, begin with an offset.

        One with rows of its own goes on as it is. `giver`: the node whose copy begins; None: the partition itself does.

        Raises:
            OSError: the disk; call it again before anything else is written.
        """
        before = self.active
        is_empty = self.kept == before.index.end
        if not is_empty and self.giver is None:
            return
        if giver is not None:
            (self.folder / COPY).write_text(giver, encoding="utf-8")
            self.giver = giver
        if not is_empty or base != before.index.end:
            self._forget_sealed()
            before.path.unlink(missing_ok=True)  # first: two segments would have to join
            fresh = self._begin(base)
            with self.changed:
                self._go_on(fresh)
            before.file.close()
        if giver is None:
            self.accept_copy()

    def accept_copy(self) -> None:
        """What was a copy is the partition from now on."""
        if self.is_copy:
            (self.folder / COPY).unlink(missing_ok=True)
            self.giver = None

    def clear(self, end: int) -> bool:
        """Deletes all rows if there are none from an offset on; they are on another node.

        Raises:
            OSError: the disk.
        """
        if self.active.index.end != end or self.closed:
            return self.closed
        if self.active.index.frames:
            self.roll()
        self._forget_sealed()
        if self.archive is not None:
            self.archive.forget()
        return True

    def _forget_sealed(self) -> None:
        with self.changed:
            gone, self.sealed, self.unmerged = self.sealed, (), []
        self._unlink(gone)

    def close(self) -> None:
        """Closes the files; what was published stays."""
        with self.changed:
            self.closed = True
            self.active.file.close()
        self.checkpoint.close()

    # Retention and merging: any one thread

    @property
    def earliest(self) -> int:
        """The first offset that can be read, here or from the archive; 0 while nobody knows what that has."""
        archive = self.archive
        return self.kept if archive is None else archive.first(self.kept)

    @property
    def kept(self) -> int:
        """The first offset that is still here."""
        active = self.active  # first: a roll adds it to the sealed ones before it begins another
        return (self.sealed or (active.index,))[0].base

    @property
    def size(self) -> int:
        """Bytes of the segments."""
        return sum(each.size for each in self.sealed) + self.visible

    def last_receipt(self) -> str:
        """That of the last message that has one; "" if it is not known of any. For whoever just opened it.

        Raises:
            DamagedError: the last segment with rows is not what was written.
            OSError: the disk.
        """
        index = self.active.index
        if index.receipt or index.frames or not self.sealed:
            return index.receipt
        last = self.sealed[-1]
        with last.path.open("rb") as file:
            return examine(file.fileno(), last.path, last.base, self.header).receipt

    def sync_behind(self) -> None:
        """Brings to disk what is shown, where the stream's acks do not ask for it: less is lost with the power."""
        with ExitStack() as using:
            with self.changed:
                active, size = self.active, self.visible
                if self.closed or active.synced >= size:
                    return
                fd = using.enter_context(active.file)
            active.sync_open(fd, size)

    def retain(self) -> list[Sealed]:
        """Deletes the oldest sealed segments that are too old or too many; returns them."""
        with self.changed:
            gone = []
            for each, is_too_much in self._expired():
                if not self._may_go(each, is_too_much):
                    break
                gone.append(each)
            self.sealed = self.sealed[len(gone) :]
            self.unmerged = [each for each in self.unmerged if each not in gone]
        self._unlink(gone)
        return gone

    def due(self) -> list[Sealed]:
        """The sealed segments that retention is to take, and the archive has not."""
        has = (lambda *_: True) if self.archive is None else self.archive.has
        with self.changed:
            return [each for each, _ in self._expired() if not has(each.base, each.end)]

    def _expired(self) -> Iterator[tuple[Sealed, bool]]:
        sealed, options = self.sealed, self.options
        beside = self._beside.sizes(sealed, options) if options.retention_bytes else {}
        age, passed = options.retention_age_seconds, self.passed
        now = self.clock() if passed is None else passed(age)
        return expired(sealed, self.size, options, now, beside=beside, is_gone=self.gone)

    def _may_go(self, each: Sealed, is_too_much: bool) -> bool:
        """Whether a segment may be deleted: one that is archived; or too much, while the archive fails."""
        archive = self.archive
        if archive is None or self.gone or archive.has(each.base, each.end):
            return True
        if is_too_much and archive.failure and not self.options.archive_required:
            self.unarchived += max(0, each.end - max(each.base, self._counted_to))
            self._counted_to = max(each.end, self._counted_to)  # a replica is asked again
            return True
        return False

    def replace(self, run: Sequence[Sealed], work: Path, index: Index) -> None:
        """Puts a copy in the place of neighbouring sealed segments, unless one is gone meanwhile."""
        first, *others = run
        with self.changed:
            before = [each for each in self.sealed if each.base < first.base]
            behind = self.sealed[len(before) + len(run) :]
            if self.is_replica or self.sealed != (*before, *run, *behind):
                work.unlink(missing_ok=True)
                return
            index_path(first.path).unlink(missing_ok=True)
            work.replace(first.path)
            self.sealed = (*before, sealed_of(first.path, index), *behind)
            self.unmerged = [each for each in self.unmerged if each not in run]
        with suppress(OSError):
            index.save(index_path(first.path))
        # The copy has to be there for good before what it replaces goes. Who is interrupted leaves segments that it
        # covers; they go when the partition is opened again.
        sync_folder(self.folder)
        self._unlink(others)

    def leave_merged(self, old: Sealed) -> None:
        """Notes that a sealed segment has nothing to merge."""
        with self.changed:
            known = [each._replace(merged=each is old or each.merged) for each in self.sealed]
            self.sealed = tuple(known)

    @staticmethod
    def _unlink(segments: Iterable[Sealed]) -> None:
        for each in segments:
            each.path.unlink(missing_ok=True)
            index_path(each.path).unlink(missing_ok=True)

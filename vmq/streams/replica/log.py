"""The segments of a partition as the log of a Raft group: what `vmq_cluster.raft.log.Log` asks for.

Index and offset are one number space. Everything in front of the last two segments, and committed, is **old**: files
that change no more. What comes behind is **loose**: the place of each batch is known, and what is not committed may be
cut. A segment gets its END when the next one begins, by the leader's word: a batch of kind `STATE`.

For one thread, that of the node's groups. Readers are shown what is committed (`vmq.streams.replica.partition`).
"""

import os
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from math import inf
from pathlib import Path
from typing import Any, Final

from vmq.streams.log import checkpoint as checkpoints
from vmq.streams.log.checkpoint import CheckpointFile, PartitionCheckpoint
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.frame import BadFrameError
from vmq.streams.log.index import Index
from vmq.streams.log.partition import CHECKPOINT, Partition
from vmq.streams.log.segment import SUFFIX, Sealed, index_path, sealed_of
from vmq.streams.replica import opening
from vmq.streams.replica.aside import Digests, FilesAside
from vmq.streams.replica.batches import Codec
from vmq.streams.replica.copy import PartitionCopy
from vmq.streams.replica.damage import DamagedRanges
from vmq.streams.replica.segment import LooseSegment
from vmq.streams.tidying.compaction import NOTE as COMPACTION_NOTE
from vmq.streams.tidying.compaction import CompactionNote, write_note
from vmq_cluster.raft.messages import ROWS, STATE, Batch, Mark, SealedFile

#: Whole segments that stay loose: who is behind by less gets batches, not files.
LOOSE: Final = 1
#: Batches at which a segment is full although it is small: opening it reads the head of each.
MANY: Final = 16_384
#: Sealed files that are named at a time.
NAMED: Final = 2

#: How far the log is known to be committed.
COMMIT: Final = "commit"


class ReplicaLog:
    """The log of one replica; making it opens what lies there, or raises `OSError`.

    Args:
        partition: whose files these are; it is shown what is committed.
    """

    def __init__(self, partition: PartitionCopy) -> None:
        self._partition = partition
        self._folder = folder = partition.folder
        self._header = header = partition.header
        self._codec, self._aside = Codec(header), FilesAside(folder, header)
        self.blank, self._digests = self._codec.blank, Digests(header)
        #: Rises when a segment is another one that may not be compacted yet.
        self.changes = 0
        self._began, self._synced = 0.0, 0
        for leftover in folder.glob("*.tmp"):
            leftover.unlink(missing_ok=True)
        noted = checkpoints.read(folder / CHECKPOINT)
        committed = opening.read_commit(folder / COMMIT)
        paths = sorted(folder.glob("*" + SUFFIX))
        how = partition.options.durability, partition.is_doubtful
        loaded = opening.load(paths, header, noted, committed, LOOSE, *how)
        self.base, self.old, self.segments = loaded.base, loaded.old, loaded.segments
        partition.flaws.update(loaded.flaws)
        self._damaged = DamagedRanges(folder, header, partition.flaws, loaded.damage)
        self.gap = self._damaged.gap
        lost = bool(paths) and opening.forgets(loaded, folder, how[0], noted)
        self.mark = opening.ForgottenMark(folder, lost)
        self.forgot = self.mark.is_set  # it may lack something that was safe
        self._drop_files(paths)
        opening.begin_unclean(folder)
        self._checkpoint = CheckpointFile(folder / CHECKPOINT)
        self._commit = opening.CommitFile(folder / COMMIT)
        if self.is_unsynced:
            self.sync()
        self._note()
        self.committed = max(self.first, min(committed, self.end))
        self._retire()
        self._show()

    def _drop_files(self, paths: list[Path]) -> None:
        """What was not taken over goes, and the last segment can be written on."""
        kept = {each.path for each in self.old} | {each.path for each in self.segments}
        for path in paths:
            if path not in kept:
                path.unlink(missing_ok=True)
                index_path(path).unlink(missing_ok=True)
        while self.segments and not self.segments[-1].count:
            self._remove(self.segments.pop())
        if not self.segments and self.old:
            self._loosen()
        if self.segments:
            last = self.segments[-1]
            last.unseal()
            first = last.index.first_time / 1e6
            self._began = first if first > 0 else self._partition.clock()

    def _loosen(self) -> None:
        """The last of the old segments is loose again."""
        sealed = self.old.pop()
        self._digests.forget(sealed)
        segment = self._load(sealed.path)
        if segment.end != sealed.end:
            raise OSError(f"{sealed.path}: it is whole up to offset {segment.end} only")
        self.segments.insert(0, segment)

    def _load(self, path: Path) -> LooseSegment:
        """A segment that is to be whole. Raises `OSError`: then this group alone is closed."""
        try:
            return LooseSegment.load(path, self._header)
        except DamagedError as damage:
            raise OSError(str(damage)) from None

    def close(self, *, clean: bool = True) -> None:
        """Lets go of the files; `clean`: everything is on the disk, and the next life is told so. Raises `OSError`."""
        try:
            if clean:
                self.sync()
                (self._folder / opening.CLEAN).touch()
        finally:
            for segment in self.segments:
                segment.close()
            self._commit.close()
            self._checkpoint.close()

    # --- what there is

    @property
    def end(self) -> int:
        """The offset behind the last, committed or not."""
        if self.segments:
            return self.segments[-1].end
        return self.old[-1].end if self.old else self.base

    @property
    def damage(self) -> list[tuple[int, int]]:
        """Committed offsets that cannot be read here, as (first, end)."""
        return self._damaged.ranges

    @property
    def is_begun(self) -> bool:
        """Whether there is anything of a group's, and not only what there was before it."""
        return bool(self.segments) and not self.segments[-1].is_earlier

    @property
    def first(self) -> int:
        """The first offset that is kept."""
        if self.old:
            return self.old[0].base
        return self.segments[0].base if self.segments else self.base

    @property
    def safe(self) -> int:
        """How far the log is as durable as was promised."""
        return self._synced if self._partition.options.durability == "fsync" else self.end

    @property
    def loose(self) -> int:
        """From here on batches can be read one by one."""
        begins = (each.base for each in self.segments if not each.is_compacted)
        return next(begins, self.end if self.segments else self.base)

    @property
    def is_full(self) -> bool:
        """Whether the next batch is to begin a new segment."""
        if not self.segments or self.segments[-1].count < 2 or self.segments[-1].is_compacted:
            return bool(self.segments) and self.segments[-1].is_compacted
        last, limit = self.segments[-1], self._partition.options.segment_bytes
        is_large = last.index.size >= limit or last.count >= MANY
        return is_large or self._partition.clock() >= self.full_at

    @property
    def full_at(self) -> float:
        """When the last segment is full by its age alone; never, if there is nothing in it."""
        is_empty = not self.segments or self.segments[-1].count < 2
        return inf if is_empty else self._began + self._partition.segment_age

    def make(
        self, offset: int, term: int, kind: int, marks: tuple[Mark, ...], rows: Sequence[Any]
    ) -> Batch:
        """A batch for this place in the log."""
        return self._codec.make(offset, term, kind, marks, rows, self._partition.write_options)

    def read(self, offset: int, limit: int) -> list[Batch]:
        """Batches from the one with this offset on; none where damage begins."""
        made = self._codec.made
        if made is not None and made.offset == offset and made.end == self.end:
            return [made]
        for segment in self.segments:
            if segment.base <= offset < segment.end:
                return self._read(segment, offset, limit)
        for sealed in reversed(self.old):
            if sealed.base <= offset:
                return self._read_old(sealed, offset, limit)
        return []

    def _read(self, segment: LooseSegment, offset: int, limit: int) -> list[Batch]:
        if self._damaged.meets(segment.base, segment.end):
            return self._damaged.read(offset, limit)
        try:
            return segment.read(offset, limit)
        except BadFrameError as error:
            at = segment.position_of(offset)
            self._partition.note(DamagedError(segment.path, at, offset, str(error)))
            return []

    def _read_old(self, sealed: Sealed, offset: int, limit: int) -> list[Batch]:
        if self._damaged.meets(sealed.base, sealed.end):
            return self._damaged.read(offset, limit)
        try:
            segment = LooseSegment.load(sealed.path, self._header)
        except DamagedError as damage:
            self._partition.note(damage)
            return []
        try:
            return self._read(segment, offset, limit) if offset < segment.end else []
        finally:
            segment.close()

    def replay(self, end: int) -> Iterator[Batch]:
        """The segment that holds the offset before `end`: its batches before `end`."""
        while self.old and (not self.segments or end <= self.segments[0].base):
            self._loosen()
        for segment in reversed(self.segments):
            if segment.base < end:
                return segment.heads(end)
        return iter(())

    # --- the log of the group: what changes

    def append(self, batches: Sequence[Batch]) -> None:
        """Puts batches behind the last. Raises `OSError`."""
        self._partition.check_room(sum(len(each.body) for each in batches if each.kind == ROWS))
        run: list[bytes] = []
        is_new = self.end == self.first
        for batch in batches:
            if batch.kind == STATE:
                self._write(run)
                run = []
                self._roll(batch.offset)
            run.append(self._codec.message(batch))
        self._write(run)
        if is_new:  # what it begins with is never forgotten
            self.sync()
        self._note()
        self._partition.on_write()

    def _write(self, messages: list[bytes]) -> None:
        if not messages:
            return
        if self.segments and self.segments[-1].is_compacted:
            # An unclean election has taken back where it ended: it is to be fetched.
            self.cut(self.segments[-1].base)
            raise OSError(f"{self._folder}: what is compacted is not written on")
        if not self.segments:
            raise OSError(f"{self._folder}: a log begins with its state")
        self.segments[-1].write(messages)

    def _roll(self, base: int) -> None:
        if self.segments:
            last = self.segments[-1]
            if self._partition.options.durability == "fsync":
                last.sync()
            last.seal()
        self.segments.append(LooseSegment.make(self._folder, base, self._header))
        self._began = self._partition.clock()

    def _note(self) -> None:
        """Notes how far the last segment is written."""
        if self.segments:
            last = self.segments[-1]
            noted = PartitionCheckpoint(last.base, last.index.size, last.synced, last.end)
            self._checkpoint.write(noted)

    def sync(self) -> None:
        """Waits until everything is on the disk itself. Raises `OSError`."""
        for segment in self.segments:
            segment.sync()
        self._synced = self.end
        self._note()

    @property
    def is_unsynced(self) -> bool:
        """Whether the group waits for the disk."""
        return self._partition.options.durability == "fsync" and self._synced < self.end

    def cut(self, offset: int) -> None:
        """Forgets everything from an offset on. Open readers keep what they see."""
        self._codec.made = None
        while self.segments and self.segments[-1].base >= offset:
            self._remove(self.segments.pop())
        while not self.segments and self.old:
            self._loosen()
            if self.segments[-1].base >= offset:
                self._remove(self.segments.pop())
        if self.segments and not self.segments[-1].can_be_cut(offset):
            self._uncompact()
            self.cut(self.segments[-1].base)
            return
        if self.segments:
            self._cut_last(offset)
        else:
            self.base = offset
        self._cut_damage()
        self._damaged.forget(self.end)
        self._synced = min(self._synced, self.end)
        self.committed = min(self.committed, self.end)
        self._note()
        self._show()

    def _cut_last(self, offset: int) -> None:
        last = self.segments[-1]
        if last.end <= offset:
            last.unseal()
            return
        made = last.without(offset)
        with self._partition.changed:
            self.segments[-1] = made
            last.freeze(min(offset, max(self._partition.end, last.base)))
        last.close()

    def _cut_damage(self) -> None:
        """The segment that is the last now must be whole."""
        last = self.segments[-1].base if self.segments else self.end
        first = self._damaged.cut(self.end, last)
        if first is not None:
            self.cut(first)

    def _remove(self, segment: LooseSegment) -> None:
        with self._partition.changed:
            segment.freeze(segment.base)
        segment.close()
        segment.path.unlink(missing_ok=True)
        index_path(segment.path).unlink(missing_ok=True)

    def commit(self, end: int) -> None:
        """So much is committed: readers may see it, and whole segments become old."""
        self.committed, self._codec.made = end, None
        self._commit.write(end)
        self._retire()
        self._show()

    def _retire(self) -> None:
        """Whole segments become old: all but the last of them, and all from before there was a group."""
        while len(self.segments) > 1 and self.segments[0].end <= self.committed:
            segment = self.segments[0]
            is_made_anew = segment.is_earlier or segment.is_compacted
            if len(self.segments) <= 1 + LOOSE and not is_made_anew:
                break
            segment.sync()
            self.old.append(sealed_of(segment.path, segment.index))
            self.segments.pop(0)
            segment.close()

    def _show(self) -> None:
        """Shows readers what is committed."""
        end = self.committed
        whole = [each for each in self.segments[:-1] if each.end <= end]
        sealed = (*self.old, *(sealed_of(each.path, each.index) for each in whole))
        growing = next((each for each in self.segments if each not in whole), None)
        visible = 0 if growing is None else growing.position_of(min(end, growing.end))
        self._partition.show(sealed, growing, visible, max(end, self.first))

    def trim(self, first: int) -> None:
        """Deletes segments that end at this offset or before."""
        gone = []
        while self.old and self.old[0].end <= first:
            gone.append(self.old.pop(0))
            self._digests.forget(gone[-1])
        while len(self.segments) > 1 and not self.old and self.segments[0].end <= first:
            self._remove(self.segments.pop(0))
        self._show()
        Partition._unlink(gone)
        self._damaged.trim(self.first)
        self._damaged.forget(self.end)

    def reset(self, offset: int) -> None:
        """Forgets everything: the log begins, and ends, at an offset."""
        while self.segments:
            self._remove(self.segments.pop())
        gone, self.old = self.old, []
        self._damaged.clear()
        self._digests.clear()
        self.base = self.committed = self._synced = offset
        self._show()
        Partition._unlink(gone)
        self._damaged.forget(self.end)

    # --- files

    def files(self, offset: int) -> list[SealedFile]:
        """The first of the sealed segments that hold an offset or what comes behind; from the first if it is gone."""
        behind = (each for each in self.old if each.end > offset)
        whole = takewhile(lambda each: not self._damaged.meets(each.base, each.end), behind)
        wanted = islice(whole, NAMED)
        return list(self._digests.named(wanted, self._partition.note))

    def read_file(self, file: SealedFile, position: int, limit: int) -> bytes:
        """A piece of one; nothing if it is not there any more."""
        for sealed in self.old:
            is_whole = not self._damaged.meets(sealed.base, sealed.end)
            if is_whole and self._digests.is_known(sealed, file):
                with sealed.path.open("rb") as opened:
                    return os.pread(opened.fileno(), limit, position)
        return b""

    def write_aside(self, file: SealedFile, position: int, data: bytes) -> int:
        """Keeps a piece of another's file until it is whole; returns how much of it is there."""
        self._partition.check_room(len(data))
        return self._aside.write(file, position, data)

    def install(self, file: SealedFile) -> bool:
        """A file is there whole: puts it in place of all from its first offset on, if it is good."""
        path = self._aside.take(file)
        if path is None:
            return False
        if self.end > file.first:
            self.cut(file.first)
        if not self.old and not self.segments:
            self.base = file.first
        if self.end != file.first:
            raise OSError(f"{path}: it does not begin where the log ends, at {self.end}")
        target = self._folder / f"{file.first:020}{SUFFIX}"
        self._uncompact()
        path.replace(target)
        segment = self._load(target)
        if self.segments and self.segments[-1].end > self.segments[-1].base:
            self.segments[-1].seal()
        self.segments.append(segment)
        segment.unseal()
        self._began = self._partition.clock()
        self.sync()
        self.commit(max(self.committed, file.end))
        return True

    # --- damage

    def find_damage(self) -> int | None:
        """Looks which segments damage was met in; returns where the log is to be cut, if it is in the last one."""
        last = self.segments[-1].path if self.segments else self._folder  # the last is always loose
        segments: list[Sealed | LooseSegment] = [*self.old, *self.segments]
        cut = self._damaged.find(segments, last, self.committed, self.end)
        if cut is not None:
            self.mark.set()
        return cut

    def mend(self, batches: Sequence[Batch]) -> bool:
        """Puts committed batches in the place of damaged ones; what is not whole yet is kept aside."""
        before = self.damage
        messages = [self._codec.message(each) for each in batches]
        mended = self._damaged.mend(batches[0].offset, batches[-1].end, messages)
        if mended is not None:
            self._uncompact()
            self._replace(*mended)
            self._partition.flaws.pop(mended[0], None)  # what readers met until just now
        return self.damage != before

    # --- what is written anew

    def take_copy(self, sealed: Sealed, work: Path | None, index: Index) -> bool:
        """A rewritten file takes the place of an old segment, if it is still there; None: it need not be rewritten."""
        if sealed not in self.old or self._damaged.meets(sealed.base, sealed.end):
            return False
        if work is not None:
            self._replace(sealed.path, work, index)
        else:
            self.old[self.old.index(sealed)] = sealed._replace(merged=True)
            self._show()
        index.save(index_path(sealed.path))
        return True

    def note_compaction(self, note: CompactionNote, changes: int) -> None:
        """So far it is compacted, unless segments have changed since. Raises `OSError`."""
        if changes == self.changes:
            write_note(self._folder, note)

    def _uncompact(self) -> None:
        """Nobody knows how far it is compacted."""
        self.changes += 1
        (self._folder / COMPACTION_NOTE).unlink(missing_ok=True)

    def _replace(self, path: Path, work: Path, index: Index) -> None:
        """Another file gets a segment's place. Raises `OSError`."""
        new = self._partition.swap(path, work, index)
        for place, sealed in enumerate(self.old):
            if sealed.path == path:
                self._digests.clear()
                self.old[place] = new
        for place, segment in enumerate(self.segments):
            if segment.path == path:
                made = self._load(path)
                with self._partition.changed:
                    self.segments[place] = made
                segment.close()
        self._show()

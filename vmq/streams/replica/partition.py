"""One node's copy of a partition, as readers know partitions: up to the commit index, and nothing behind it."""

import logging
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from vmq.config.streams import StreamOptions
from vmq.streams.log.checkpoint import sync_folder
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.index import Index
from vmq.streams.log.partition import Partition
from vmq.streams.log.segment import SUFFIX, Active, Header, Sealed, index_path, sealed_of
from vmq.streams.replica.log import ReplicaLog
from vmq.streams.replica.segment import LooseSegment
from vmq.streams.tidying.compaction import CompactionNote

log = logging.getLogger("vmq.streams")

#: Below the folder of streams: what is no part of any log here any more, each in a data directory of its own.
ASIDE: Final = ".aside"
#: In the folder of a partition that has been opened for a group: which one.
GROUP: Final = "group"


class ReplicaPartition(Partition):
    """Empty until it is opened for its group; the thread of the groups writes it, by `log`."""

    is_replica = True

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
        self.on_publish = lambda: None
        self.changed = threading.Lock()
        self.gone = False
        self.closed = False
        self.giver = None
        self.flaws = {}
        self.begin()
        self.show((), None, 0, 0)

    def begin(self) -> None:
        """It is a replica from now on, and is not open yet."""
        self.unmerged = []
        self.log: ReplicaLog | None = None
        #: Something has failed since the start, a sync perhaps.
        self.is_doubtful = False
        #: Called, by whoever reads, when damage is met.
        self.on_damage: Callable[[], None] = lambda: None
        #: Called when batches were written.
        self.on_write: Callable[[], None] = lambda: None
        #: Has whoever writes it let go of it.
        self.on_close: Callable[[], None] = lambda: None
        #: Has something done, with some arguments, by whoever writes it, and returns what comes of it.
        self.call: Callable[..., Any] = lambda what, *about: what(*about)
        #: This node leads the group: it is the one that archives.
        self.leads = False
        #: How far it is to be compacted, as the group has decided.
        self.decided = CompactionNote()

    def check_room(self, size: int) -> None:
        """Whether so many bytes of rows are taken; what the group itself writes is little, and goes on.

        Raises:
            OSError: the disk is short of room.
        """
        if size:
            self.room.check(self.folder, size)

    def belong_to(self, group: str, *, is_first: bool) -> None:
        """What lies here is a group's from now on; what cannot be is put aside.

        `is_first`: this node began the group, so that what no group has opened yet is the beginning of its log.

        Raises:
            OSError: the disk.
        """
        mark = self.folder / GROUP
        found = mark.read_text(encoding="utf-8") if mark.exists() else None
        # One that is empty was being written when the node, or its power, failed.
        is_other = bool(found) and found != group
        if is_other or (found is None and not is_first):
            self.put_aside()  # of a stream that was deleted, of another cluster, or of this node alone
        if found != group:
            mark.write_text(group, encoding="utf-8")

    def open(self) -> ReplicaLog:
        """Opens what lies here. Raises `OSError`."""
        self.log = ReplicaLog(self)
        return self.log

    def shut(self, *, clean: bool = True) -> None:
        """Lets go of the files; readers see nothing any more. Raises `OSError`."""
        log, self.log = self.log, None
        self.is_doubtful = self.is_doubtful or not clean
        if log is not None:
            self.show((), None, 0, 0)
            log.close(clean=clean)

    def erase(self) -> None:
        """This node has no copy any more. Raises `OSError`."""
        self.shut(clean=False)
        if self.archive is not None:
            self.archive.forget()
        self.giver = None
        self.show((), None, 0, 0)
        for path in self.folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)

    def put_aside(self) -> None:
        """What lies here is no part of the group's log, and may be nowhere else: it is kept. Raises `OSError`.

        It is the log of a time before this node joined the cluster, or of a stream that was deleted while it was away.
        """
        self.shut(clean=False)
        stream = self.folder.parent
        if any(self.folder.glob("*" + SUFFIX)):
            data = stream.parent / ASIDE / str(int(self.clock()))
            kept = data / stream.parent.name / stream.name
            kept.mkdir(parents=True, exist_ok=True)
            for path in stream.iterdir():
                if path.is_file():
                    shutil.copyfile(path, kept / path.name)
            self.folder.rename(kept / self.folder.name)
            self.folder.mkdir()
            log.warning(
                "stream=%s partition=%d: what this node had of it is no part of the cluster's log; it is kept, to be "
                "read by vmq stream export %s --data-dir %s",
                *(self.stream, self.number, self.stream, data),
            )
        self.erase()

    def show(
        self, sealed: tuple[Sealed, ...], growing: LooseSegment | None, visible: int, end: int
    ) -> None:
        """Readers see offsets before `end` from now on, and so many bytes of the segment that grows."""
        active: Any = _NoSegment(self.folder, end) if growing is None else growing
        with self.changed:
            self.sealed = sealed
            self.active = active
            self.visible = visible
            self.end = end
        self.on_publish()

    def swap(self, path: Path, work: Path, index: Index) -> Sealed:
        """Puts a file in the place of a sealed segment. Raises `OSError`.

        At one moment: who reads opens the file under the lock, with what is known of it.
        """
        with self.changed:
            index_path(path).unlink(missing_ok=True)
            work.replace(path)
            made = sealed_of(path, index)
            self.sealed = tuple(made if each.path == path else each for each in self.sealed)
        sync_folder(path.parent)
        return made

    def note(self, damage: DamagedError) -> None:
        """Damage was met in a segment, in any thread: the group fetches what is missing from who has it."""
        super().note(damage)
        self.on_damage()

    def close(self) -> None:
        """There is no such stream any more, or the broker ends."""
        with self.changed:
            self.closed = True
        self.on_close()
        with suppress(OSError):
            self.shut()

    def retained_from(self) -> int:
        """Where the log is to begin by age and size, as this node sees it: what a leader then decides for all.

        With an archive not before that has what goes.
        """
        first = self.kept
        for each, is_too_much in self._expired():
            if not self._may_go(each, is_too_much):
                break
            first = each.end
        return first

    def due(self) -> list[Sealed]:
        """What the archive is to have next, if this node leads: of what is committed, so that all have the same."""
        log = self.log
        if not self.leads or log is None or log.damage:
            return []
        return [each for each in super().due() if each.end < log.committed]

    # --- what a partition does by itself, and a replica by its group's word

    def is_due(self, _size: int = 0) -> bool:
        """Whether a segment is to be sealed by the writer of the streams: none is."""
        return False

    def retain(self) -> list[Sealed]:
        """Deletes nothing by this node's own clock: the group's leader decides."""
        return []

    def sync_behind(self) -> None:
        """Syncing is the group's affair."""

    def publish(self) -> None:
        """Nothing is written to it from outside."""

    def rollback(self) -> None:
        """Nothing is taken back, for nothing is written to it from outside."""

    def last_receipt(self) -> str:
        """Of none of its messages is it known here that it is there."""
        return ""


class _NoSegment(Active):
    """Stands where no segment is."""

    def __init__(self, path: Path, base: int) -> None:
        self.path = path
        self.index = Index(base, 0)

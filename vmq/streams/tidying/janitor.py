"""The thread that tidies streams: retention, merging, and bringing to disk what durability "os" left to the kernel."""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

import pyarrow as pa

from vmq.streams.log.copying import spans_of
from vmq.streams.log.errors import EXPECTED, DamagedError, PartitionFailures, StreamError
from vmq.streams.log.merging import join, merge
from vmq.streams.log.partition import Partition
from vmq.streams.log.segment import Sealed
from vmq.streams.tidying.compaction import compact

log = logging.getLogger("vmq.streams")

#: Seconds between two rounds; a sealed segment or a full disk begins one at once.
EVERY: Final = 30.0


class Janitor:
    """Tidies the partitions that there are, round after round.

    Args:
        partitions: those that there are.
        tidy_replica: what is done with one that is its group's, and may stop when the second says so.
    """

    def __init__(
        self,
        partitions: Callable[[], Iterable[Partition]],
        tidy_replica: Callable[[Partition, Callable[[], bool]], None] = lambda *_: None,
    ) -> None:
        self.partitions = partitions
        self.tidy_replica = tidy_replica
        #: `PassedTime.now` for those that are not their group's; None: they go by their clock.
        self.passed: Callable[[float | None], float] | None = None
        self.failures = PartitionFailures("cannot be tidied")
        self.wanted = threading.Event()
        self.stopping = False
        self.thread = threading.Thread(target=self.run, name="vmq-streams-tidy", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self.thread.start()

    def stop(self) -> None:
        """Ends the thread after the segment that it is at."""
        self.stopping = True
        self.wanted.set()
        if self.thread.ident is not None:
            self.thread.join()

    def run(self) -> None:
        """The thread."""
        while not self.stopping:
            self.wanted.wait(EVERY)
            self.wanted.clear()
            self.tidy()

    def archive(self, partition: Partition) -> None:
        """Keeps elsewhere what is to go. Where that fails it stays, as long as there is room, and is tried again."""
        archive = partition.archive
        if archive is None or partition.is_copy or partition.damage is not None:
            return
        if not partition.end:
            return  # it is new, or another node's: what the archive has is not its own
        if partition.is_replica and not (partition.due() or partition.kept):
            return  # nothing of it is archived, as far as this copy is concerned
        try:
            archive.look(partition.kept, partition.sealed)
            for each in partition.due():
                if self.stopping or partition.gone:
                    return
                spans = spans_of(partition.header, [each])
                archive.put(each, spans, partition.options.typed)
                log.info("archived %s to %s", each.path, archive.url.shown)
        except Exception as error:
            if not archive.failure:
                text = "stream=%s partition=%d cannot be archived to %s: %s; it is tried again"
                names = partition.stream, partition.number, archive.url.shown
                trace = None if isinstance(error, (*EXPECTED, pa.ArrowException)) else error
                log.error(text, *names, error, exc_info=trace)
            archive.failure = " ".join(str(error).split())[:300] or type(error).__name__
        else:
            archive.failure = ""

    def retain(self, partition: Partition) -> None:
        """Deletes what retention takes; what no archive has is gone for good, and the log warns of that."""
        before = partition.unarchived
        for each in partition.retain():
            log.info("deleted %s by the retention", each.path)
        lost = partition.unarchived - before
        if lost:
            text = "stream=%s partition=%d: %d messages are deleted that the archive does not have"
            log.warning(text, partition.stream, partition.number, lost)

    def _is_stopping(self) -> bool:
        return self.stopping

    def tidy(self) -> None:
        """One round."""
        for partition in list(self.partitions()):
            with self.failures.watch(partition):
                try:
                    self._tidy(partition)
                except DamagedError as damage:
                    partition.note(damage)

    def _tidy(self, partition: Partition) -> None:
        partition.passed = None if partition.is_replica else self.passed
        self.archive(partition)
        if partition.is_replica:
            # Of thousands most have nothing that is sealed: not even their disks are asked about.
            if partition.sealed and has_room(partition):
                self.tidy_replica(partition, self._is_stopping)
            return
        self.retain(partition)
        partition.sync_behind()
        if not has_room(partition):
            return
        compact(partition, self._is_stopping)
        while partition.unmerged and not (self.stopping or partition.gone):
            self._merge(partition, partition.unmerged.pop())
        if not (self.stopping or partition.gone):
            join(partition)

    @staticmethod
    def _merge(partition: Partition, sealed: Sealed) -> None:
        try:
            merge(partition, sealed)
        except (OSError, StreamError):
            raise  # it stays as it is, and is taken up again after the next start
        except Exception:
            # In the next round again: it is told as long as it fails.
            partition.unmerged.append(sealed)
            raise


def has_room(partition: Partition) -> bool:
    """Whether there is room for what is merged, joined or compacted beside what it replaces; it waits else.

    It may take half of what is to stay free of the disk: it has less when it is done.
    """
    largest = max((each.size for each in partition.sealed), default=0)
    return not partition.room.lack(partition.folder, 2 * largest, 2)

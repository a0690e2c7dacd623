"""The thread that writes every stream: commits in the order in which they were closed, each whole or not at all.

The event loop never waits for a disk. While the disk fails (most often it is full) the thread keeps
the commit it is at and tries again: nothing behind it is acknowledged, nothing is lost, and it
goes on by itself once there is room.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Final, TypeVar

import pyarrow as pa

from vmq.disk.durable import Durable
from vmq.streams.log.errors import PartitionFailures
from vmq.streams.log.gathering import Gathering
from vmq.streams.log.given import append_given, takes_from
from vmq.streams.log.keys import Keys
from vmq.streams.log.partition import Partition
from vmq.streams.log.small import FewRows

log = logging.getLogger("vmq.streams")

T = TypeVar("T")

#: Seconds until a write that failed is tried again.
RETRY_AFTER: Final = 1.0
#: Seconds between two looks for segments that are old enough to be sealed.
ROLL_EVERY: Final = 10.0


def promised(function: Callable[[], T]) -> "tuple[Future[T], Callable[[], None]]":
    """What will come of a function, and what calls it; whatever that raises is for who waits.

    Nobody but the future is told, so nothing may pass by it, as in `concurrent.futures`: who waits would for ever. Who
    ceases to wait, as the task of a client that has gone, ends no thread: what he asked for is done all the same.
    """
    future: Future[T] = Future()

    def work() -> None:
        is_awaited = future.set_running_or_notify_cancel()
        try:
            found = function()
        except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it, and the thread goes on
            if is_awaited:
                future.set_exception(error)
        else:
            if is_awaited:
                future.set_result(found)

    return future, work


class Item:
    """The rows of one commit for one partition; made when they are first written."""

    def __init__(
        self,
        partition: Partition,
        rows: Gathering | FewRows | pa.RecordBatch,
        keys: Keys,
        safe: Durable | None = None,
    ) -> None:
        self.partition = partition
        #: Comes on to the number of the commit once it is done.
        self.safe = safe
        self.rows = rows
        self.keys = keys
        self.newest = 0
        self.left_out = 0
        #: Of the rows that have one (`Partition.append`).
        self.receipts = rows.receipts if isinstance(rows, Gathering) else []
        #: Where a copy of a partition begins that these are the first rows of; -1: they go on with what is there.
        self.first = -1
        #: Up to where they reach, if they keep their offsets (`vmq.streams.log.given`); -1: they go on behind the last.
        self.end = -1
        #: The node that gives them for its copy here; None: they are the partition's own.
        self.giver: str | None = None

    def batch(self) -> pa.RecordBatch | FewRows:
        """The rows as they are written."""
        if isinstance(self.rows, Gathering) and (few := FewRows.of(self.rows, self.keys)):
            self.newest = few.newest
            self.rows = few
        if isinstance(self.rows, Gathering):
            self.newest = max(0, self.rows.newest())
            self.rows, self.left_out = self.rows.rows(self.keys)
            if self.left_out and self.receipts:
                # Rows have other numbers now; all are there once the last is.
                self.receipts = [(self.rows.num_rows - 1, self.receipts[-1][1])]
        return self.rows


class Commit:
    """Rows that become durable together. `done` is called in the writer's thread, once they are."""

    def __init__(self, items: Iterable[Item], done: Callable[[], None]) -> None:
        self.items = list(items)
        self.done = done


class PartitionWriter:
    """One thread for all partitions.

    `failed` is called in it with a text whenever a write fails, and with None when one succeeds
    again; `partitions` names those there are, for the sealing of old segments.
    """

    def __init__(
        self,
        partitions: Callable[[], Iterable[Partition]] = list,
        failed: Callable[[str | None], None] = lambda _text: None,
    ) -> None:
        self.partitions = partitions
        self.failed = failed
        self.work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.stopping = threading.Event()
        self.failing = False
        self.failures = PartitionFailures("has a segment that cannot be sealed")
        #: Called after a segment was sealed or the disk was full: there may be something to tidy.
        self.tidy: Callable[[], None] = lambda: None
        self.unclean: set[Partition] = set()
        self.retry_after = RETRY_AFTER
        self.thread = threading.Thread(target=self.run, name="vmq-streams", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self.thread.start()

    def submit(self, commit: Commit) -> None:
        """Has a commit written after those before it."""
        self.work.put(lambda: self.write(commit))

    def call(self, function: Callable[[], T]) -> "Future[T]":
        """Has a function called between two commits."""
        future, work = promised(function)
        self.work.put(work)
        return future

    def stop(self) -> None:
        """Writes what was submitted and ends; a commit that fails now is tried no more."""
        self.stopping.set()
        self.work.put(None)
        if self.thread.ident is not None:
            self.thread.join()

    def run(self) -> None:
        """The thread."""
        due = time.monotonic() + ROLL_EVERY
        while True:
            try:
                work = self.work.get(timeout=max(0.0, due - time.monotonic()))
                if work is None:
                    return
                work()
            except queue.Empty:
                pass
            if time.monotonic() >= due:
                self.roll_due()
                due = time.monotonic() + ROLL_EVERY

    def write(self, commit: Commit) -> None:
        """Writes a commit, however often it takes."""
        while commit.items:
            try:
                self.attempt(commit)
            except Exception as error:  # noqa: BLE001 - nothing may be acknowledged that is not written
                self.report(str(error) or repr(error))
                self.tidy()
                if self.stopping.wait(self.retry_after):
                    return
        self.report(None)
        commit.done()

    def attempt(self, commit: Commit) -> None:
        """Writes what is left of a commit, or undoes what it wrote of it.

        Raises:
            Exception: what failed, for example an OSError.
        """
        self.clean()
        commit.items = [item for item in commit.items if not item.partition.gone]
        while commit.items:
            self.attempt_some(commit, distinct(commit.items))

    def attempt_some(self, commit: Commit, items: list[Item]) -> None:
        """Writes the first items of a commit, each of a partition of its own; else as `attempt`."""
        sealed = 0
        try:
            for item in items:
                partition = item.partition
                self.unclean.add(partition)
                if item.first >= 0:
                    partition.begin_at(item.first, item.giver)
                if not takes_from(partition, item.giver):
                    continue  # its giver still has them, and asks
                before = partition.active
                batch = item.batch()
                partition.room.check(partition.folder, batch.nbytes)
                if item.end >= 0:
                    append_given(partition, batch, item.newest, item.end)
                else:
                    partition.append(batch, item.newest, item.receipts)
                sealed += partition.active is not before
            for item in items:
                if item.partition.options.durability == "fsync":
                    item.partition.sync()
            for item in items:
                partition = item.partition
                partition.publish()
                self.unclean.discard(partition)
                del commit.items[0]
        except BaseException:
            self.clean()
            raise
        if sealed:
            self.tidy()

    def clean(self) -> None:
        """Undoes what was written and not published.

        Raises:
            OSError: the disk; it is tried again before the next write.
        """
        for partition in list(self.unclean):
            partition.rollback()
            self.unclean.discard(partition)

    def roll_due(self) -> None:
        """Seals the segments that are old enough, written to or not."""
        for partition in list(self.partitions()):
            if partition.is_replica:
                continue  # its group seals
            with self.failures.watch(partition):
                if partition.is_due():
                    partition.roll()
                    self.tidy()

    def report(self, text: str | None) -> None:
        """Says that the disk fails, or that it does no more; once each."""
        if text is None:
            if self.failing:
                self.failing = False
                log.warning("streams are written again")
                self.failed(None)
            return
        if not self.failing:
            log.error("streams cannot be written: %s; nothing is acknowledged until they can", text)
        self.failing = True
        self.failed(text)


def distinct(items: list[Item]) -> list[Item]:
    """The first items, up to one of a partition that comes again: a segment is sealed behind shown rows only."""
    seen: set[Partition] = set()
    for number, item in enumerate(items):
        if item.partition in seen:
            return items[:number]
        seen.add(item.partition)
    return items[:]

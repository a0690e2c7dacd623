"""The end of a pass: what happened to jobs is written, then what clients are told of it leaves.

One write covers all that a pass did; with `fsync` the replies wait until it is on disk, while the next pass gathers.
"""

import logging
from collections.abc import Callable

from mypy_extensions import i64

from vmq.disk.durable import Durable
from vmq.jobs.machine import JobMachine
from vmq.jobs.queues import JobRefusedError
from vmq.jobs.record import JobRecord
from vmq.jobs.rules import OFF

log = logging.getLogger("vmq.jobs")


class JobOutput:
    """The outgoing side of one client. Subclasses bring the transport."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.is_touched = False

    def take(self) -> bytes:
        """All that it is to be told. It counts as touched still."""
        pieces = self.pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        return data

    def write(self, data: bytes) -> None:
        """Hands what is safe to the transport."""

    def cut(self, reason: str) -> None:
        """What it was to be told is not safe, and will not be: it ends unanswered."""


class JobWriter(JobRecord):
    """A record that is written at the end of each pass; this one has nothing to write."""

    def __init__(self) -> None:
        #: Bodies that are written stay in memory, too.
        self.keeps_bodies = True
        #: Bytes of those that did not, since the last look.
        self.spilled: i64 = 0

    def commit(self) -> bool:
        """Writes what was noted; whether it has to be synced before anybody is told.

        Raises:
            OSError: the disk. What was noted stays, for the next call.
        """
        return False


class JobCommit:
    """The passes of one node's jobs.

    Args:
        machine: the jobs.
        writer: keeps them.
        clock: monotonic seconds.
    """

    def __init__(self, machine: JobMachine, writer: JobWriter, clock: Callable[[], float]) -> None:
        self.machine = machine
        self.writer = writer
        self.clock = clock
        self.touched: list[JobOutput] = []
        #: Called when there are deadlines and nobody watches them.
        self.watch_time: Callable[[], None] | None = None
        self.is_watching = False
        #: Somebody waits for what has no deadline among the jobs.
        self.wants_time = False
        #: Has what was written synced, with which queues are paused if that is new, and calls `synced`.
        self.sync: Callable[[], None] | None = None
        self.syncing: list[tuple[JobOutput, bytes]] | None = None
        self.needs_sync = False
        #: The disk fails, or is short of room: nothing is added that it would have to keep.
        self.is_failing = False
        self.is_short = False
        self.failures: i64 = 0
        #: What is done in pass number `number` is safe once this has come to it, for who waits by numbers.
        self.stored = Durable(is_near=True)
        self.number: int = 1
        self.is_waited = False
        self.syncing_number: int = 0
        #: Has something done in the next turn of the event loop.
        self.call_soon: Callable[[Callable[[], None]], object] | None = None
        self.is_ending = False
        #: Nothing is written any more.
        self.is_over = False
        #: Called when `stored` has come on, or is not to for now: with nothing, or with why.
        self.tell: Callable[[str], None] | None = None
        #: Bytes of jobs in memory above which bodies stay on disk.
        self.spill_above: i64 = 1 << 60

    def check_disk(self, persistence: i64) -> None:
        """Whether a job is added that would be kept so.

        Raises:
            JobRefusedError: the disk fails, or is short of room.
        """
        if persistence == OFF:
            return
        if self.is_failing:
            raise JobRefusedError("IOERR jobs cannot be written to disk; try later")
        if self.is_short:
            raise JobRefusedError(
                "IOERR the disk is short of room (store.min_free_bytes); try later"
            )

    def touch(self, output: JobOutput) -> None:
        """Somebody is told something in this pass."""
        if not output.is_touched:
            output.is_touched = True
            self.touched.append(output)

    def barrier(self) -> int:
        """The number that `stored` comes to when what is done now is safe; the caller has the pass ended."""
        self.is_waited = True
        return self.number

    def end_soon(self) -> None:
        """Has the pass ended in the next turn of the event loop."""
        if not self.is_ending:
            self.is_ending = True
            assert self.call_soon is not None
            self.call_soon(self.end_now)

    def end_now(self) -> None:
        self.is_ending = False
        if not self.is_over:
            self.end_pass(self.clock())

    def advance(self, number: int) -> None:
        self.stored.advance(number)
        if self.tell is not None:
            self.tell("")

    def end_pass(self, now: float) -> None:
        """Gives jobs to those who wait, writes, and tells everybody."""
        machine = self.machine
        if machine.ready:
            machine.serve(now)
        try:
            if self.writer.commit() or machine.has_new_pauses:
                self.needs_sync = True
            if not self.needs_sync or self.sync is None:  # else it shows when that is on disk
                self.is_failing = False
        except OSError as error:
            self.fail(str(error))
            return
        writer = self.writer
        machine.memory -= writer.spilled
        writer.spilled = 0
        if machine.pager.wants_out():
            machine.pager.page_out(now)
        writer.keeps_bodies = machine.memory < self.spill_above
        if not self.is_watching and self.watch_time is not None:
            if machine.timers.buckets or self.wants_time:
                self.is_watching = True
                self.watch_time()
        if self.syncing is not None:
            return
        if self.needs_sync and self.sync is not None:
            self.begin_sync()
            return
        if self.is_waited:
            self.is_waited = False
            self.number += 1
            self.advance(self.number - 1)
        touched = self.touched
        if touched:
            self.touched = []
            for output in touched:
                data = output.take()
                output.is_touched = False
                output.write(data)

    def write(self) -> None:
        """Writes what was done until now, ahead of the end of the pass, which tells of a disk that fails.

        Raises:
            OSError: the disk. What counts on that is not to be written either.
        """
        if self.writer.commit():
            self.needs_sync = True

    def begin_sync(self) -> None:
        """What everybody is told waits for the disk from now on."""
        self.needs_sync = False
        if self.is_waited:
            self.is_waited = False
            self.syncing_number = self.number
            self.number += 1
        held: list[tuple[JobOutput, bytes]] = []
        for output in self.touched:
            held.append((output, output.take()))
            output.is_touched = False
        self.touched = []
        self.syncing = held
        sync = self.sync
        assert sync is not None
        sync()

    def synced(self, error: str) -> None:
        """The disk has it, or failed."""
        held = self.syncing
        self.syncing = None
        for output, data in held or ():
            if error:
                output.cut(error)
            else:
                output.write(data)
        number = self.syncing_number
        self.syncing_number = 0
        if error:
            self.needs_sync = True  # nothing that was done since is safe without it
            self.fail(error)
            return
        self.is_failing = False
        if number:
            self.advance(number)
        self.end_pass(self.clock())

    def fail(self, reason: str) -> None:
        """Nobody is told anything that is not safe."""
        if not self.is_failing:
            log.error("jobs cannot be written: %s; adding is refused until they can", reason)
        self.is_failing = True
        self.failures += 1
        touched = self.touched
        self.touched = []
        for output in touched:
            output.is_touched = False
            output.pieces.clear()
            output.cut("jobs cannot be written")
        if self.tell is not None:
            self.tell("jobs cannot be written")
        if not self.is_watching and self.watch_time is not None:
            self.is_watching = True
            self.watch_time()

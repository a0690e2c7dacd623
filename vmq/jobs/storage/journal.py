"""The log that is written: gathers what happens in a pass, and appends it as one frame."""

from typing import Final

from mypy_extensions import i64

from vmq.jobs.commit import JobWriter
from vmq.jobs.queue import ACKED, Job
from vmq.jobs.queues import JobQueues
from vmq.jobs.record import ADDED, ADDED_ALIKE, BURIED, DONE, NOTED, REVIVED, SHARED, SHARED_ALIKE
from vmq.jobs.rules import FSYNC
from vmq.jobs.storage.frames import (
    ALIKE,
    HEAD_SIZE,
    AlikeJobs,
    death,
    frame,
    job_header,
    note,
    share,
)
from vmq.jobs.storage.segments import JobSegments

#: Bytes of a segment.
SEGMENT_SIZE: Final = 64 << 20
#: Frames of a segment: the last one is read frame by frame at a start.
_MOST_FRAMES: Final = 1 << 16
_LATEST: Final = (1 << 63) - 1
#: Jobs that are copied out of the oldest segment at a time; so often so many are looked at for that.
_MOVED: Final = 500
_LOOKS: Final = 20
_LOOKED_AT: Final = 500


class JobJournal(JobWriter):
    """Keeps jobs in segments.

    Args:
        segments: the files; what is there was restored.
        wall: nanoseconds since 1970 at the zero of the clock.
        next_serial: the number of the next job.
    """

    def __init__(self, segments: JobSegments, wall: int, next_serial: int) -> None:
        super().__init__()
        self.segments = segments
        self.wall = wall
        self.next_serial: i64 = next_serial
        self.segment_size: i64 = SEGMENT_SIZE
        self.events: list[int] = []
        self.details: list[bytes] = []
        self.bodies: list[bytes] = []
        self.alike = AlikeJobs()
        #: The jobs of the bodies.
        self.added: list[Job] = []
        self.needs_sync = False
        #: Jobs that are to be on disk have left the oldest segment.
        self.has_moved = False
        #: A segment has nothing any more that is wanted.
        self.may_drop = False

    def note(self, event: int, job: Job) -> None:
        if event == ADDED:
            job.serial = self.next_serial
            self.next_serial += 1
            self.add(job, job.body or b"")
            self.note_history(job)
            return
        if event == SHARED:
            self.note_shared(job)
        else:
            self.events.append(int(job.serial << 4) | event)
            if event >= BURIED and event <= REVIVED:
                self.details.append(death(job, self.expiry(job)))
            elif event == NOTED and job.history is not None:
                self.details.append(note(job.history[-1]))
        if job.queue.rules.persistence == FSYNC:
            self.needs_sync = True

    def note_shared(self, job: Job) -> None:
        """Others may have a job: of one that was just added that mostly is as of the one before it."""
        events, number = self.events, int(job.serial << 4)
        last = events[-1] if events else 0
        if last == number | ADDED_ALIKE and self.alike.has_shared(job):
            events[-1] = number | SHARED_ALIKE
            return
        if last == number | ADDED or last == number | ADDED_ALIKE:
            self.alike.share(job)
        events.append(number | SHARED)
        self.details.append(share(job))

    def note_history(self, job: Job) -> None:
        """Writes the whole history of a job that is written whole."""
        for line in job.history or []:
            self.events.append(int(job.serial << 4) | NOTED)
            self.details.append(note(line))

    def add(self, job: Job, body: bytes) -> None:
        """Writes a job whole."""
        expires = self.expiry(job)
        if self.alike.has(job, expires):
            self.events.append(int(job.serial << 4) | ADDED_ALIKE)
            self.details.append(ALIKE.pack(job.id, job.created))
        else:
            self.events.append(int(job.serial << 4) | ADDED)
            self.details.append(job_header(job, expires))
            self.alike.begin(job, expires)
        self.bodies.append(body)
        self.added.append(job)
        if job.queue.rules.persistence == FSYNC:
            self.needs_sync = True

    def expiry(self, job: Job) -> int:
        """When the time of a job ends, in nanoseconds since 1970; the year 2262 is as late as that can be."""
        return min(self.wall + int(job.expires * 1e9), _LATEST)

    def forget(self, job: Job) -> None:
        if job.segment >= 0:
            self.leave(job)

    def leave(self, job: Job) -> None:
        """What lies of a job in its segment is not wanted any more."""
        segment = self.segments.all.get(job.segment)
        job.segment = -1
        if segment is not None:
            segment.live -= 1
            segment.live_bytes -= job.size
            if not segment.live:
                self.may_drop = True

    def drop(self) -> None:
        """Removes what nobody wants: once that it is not wanted is written.

        Raises:
            OSError: the disk.
        """
        if self.may_drop:
            if self.has_moved:
                self.segments.sync()
                self.has_moved = False
            self.may_drop = False
            self.segments.drop_oldest()

    def commit(self) -> bool:
        if self.events:
            self.write()
        self.drop()
        needs_sync = self.needs_sync
        self.needs_sync = False
        return needs_sync

    def write(self) -> None:
        """Writes what was noted.

        Raises:
            OSError: the disk. What was noted stays, for the next call.
        """
        segments = self.segments
        last = segments.last
        if last is None or last.size >= self.segment_size or len(last.frames) >= _MOST_FRAMES:
            last = segments.begin()
        pieces = frame(self.events, self.details, self.bodies)
        offset: i64 = last.size + HEAD_SIZE + len(pieces[1])
        segments.append(pieces)
        number: i64 = last.number
        for job in self.added:
            self.place(job, number, offset)
            offset += job.size
        self.events = []
        self.details = []
        self.bodies = []
        self.added = []
        self.alike.end()

    def place(self, job: Job, segment: i64, offset: i64) -> None:
        """A job lies there now."""
        if job.segment >= 0:
            self.leave(job)
        if job.is_gone and not job.holds_key:
            return
        job.segment = segment
        job.offset = offset
        found = self.segments.all[segment]
        found.live += 1
        found.live_bytes += job.size
        if not self.keeps_bodies and job.body is not None and job.size:
            job.body = None
            self.spilled += job.size

    def body(self, job: Job) -> bytes:
        if not job.size:
            return b""
        return self.segments.read(job.segment, job.offset, job.size)

    def sync(self) -> None:
        """Has on disk what was written; may be called in a thread.

        Raises:
            OSError: the disk.
        """
        self.segments.sync()

    # Cleaning

    def is_wasteful(self) -> bool:
        """Whether more than half of the disk's bytes are not wanted, and it is worth the work."""
        live: i64 = 0
        for each in self.segments.all.values():
            live += each.live_bytes
        return self.segments.total() > 2 * live + 2 * self.segment_size

    def clean(self, jobs: list[Job]) -> None:
        """Writes jobs of the oldest segment anew, which goes when it has no more.

        Raises:
            OSError: the disk. Those that could be read are written.
        """
        failure: OSError | None = None
        for job in jobs:
            if job.is_gone or job.segment < 0:
                continue
            is_done = job.state == ACKED
            if is_done:
                job.size = 0
            try:
                body = self.body(job) if job.body is None else job.body
            except OSError as error:
                failure = error
                continue
            self.add(job, body)
            if job.queue.rules.persistence == FSYNC:
                self.has_moved = True
            if job.copies is not None:
                self.note(SHARED, job)
            self.note_history(job)
            if is_done:
                self.note(DONE, job)
        if failure is not None:
            raise failure


class SegmentWalk:
    """Looks for the jobs that lie in a segment, some at a time, and goes on where it stopped.

    Args:
        machine: the jobs.
    """

    def __init__(self, machine: JobQueues) -> None:
        self.machine = machine
        self.segment = -1
        self.created = 0
        #: It came to the last job: the next look begins with the first.
        self.is_over = True

    def some(self, segment: int, live: int) -> list[Job]:
        """Jobs that lie in a segment; it has `live` of them."""
        if self.segment != segment or self.is_over:
            self.segment, self.created, self.is_over = segment, 0, False
        found: list[Job] = []
        most = min(live, _MOVED)
        for _ in range(_LOOKS):
            jobs = self.machine.in_memory_after(self.created, _LOOKED_AT)
            for job in jobs:
                self.created = int(job.created)
                if job.segment == segment:
                    found.append(job)
                    if len(found) >= most:
                        return found
            if len(jobs) < _LOOKED_AT:
                self.is_over = True
                break
        return found

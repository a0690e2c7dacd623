"""A start: the log is read from its oldest segment on, and the machine has its jobs again. Bodies stay on disk."""

import gc
import logging
import mmap
import os
from pathlib import Path
from struct import error as StructError  # noqa: N812 - it is a class
from typing import Any, Final

from crc32c import crc32c
from mypy_extensions import i64

from vmq.jobs import record
from vmq.jobs.machine import JobMachine
from vmq.jobs.queue import ACKED, ACTIVE, DEAD, QUEUED, Job, JobCopies
from vmq.jobs.queues import JOB_BYTES, window_of
from vmq.jobs.storage.damage import is_torn, next_frame
from vmq.jobs.storage.frames import (
    DEATH,
    DEATH_SIZE,
    HEAD,
    HEAD_SIZE,
    IS_DELAYED,
    IS_QUEUED,
    MAGIC,
    NOTE_SIZE,
    nodes_of,
)
from vmq.jobs.storage.indexes import read_index
from vmq.jobs.storage.plain import PlainJobs
from vmq.jobs.storage.segments import HEADER, JobSegment, JobSegments
from vmq.jobs.storage.walking import FrameWalk

log = logging.getLogger("vmq.jobs")

#: Seconds after which the other nodes that may have a job are asked for it, unless all have come up before that.
ASK_AFTER: Final = 3.0
#: Between two pages of them.
_PAGE_PAUSE: Final = 0.01
#: Jobs whose retry begins anew at the start are spread over this part of it.
_SPREAD: Final = 0.2


class JobRestore(FrameWalk):
    """Reads a log into a machine that has no jobs yet.

    Args:
        machine: the machine.
        segments: the files.
        now: by the machine's clock.
    """

    def __init__(self, machine: JobMachine, segments: JobSegments, now: float) -> None:
        self.machine = machine
        self.segments = segments
        self.now = now
        #: The jobs by their numbers; those that are gone only while their keys are wanted.
        self.found: dict[int, Job] = {}
        #: Those that only were added.
        self.plain = PlainJobs(machine, now)
        self.next_serial: int = 1
        #: The one whose frames are gone through.
        self.segment: JobSegment | None = None

    def run(self) -> None:
        """Reads everything.

        Raises:
            OSError: the disk.
        """
        collects = gc.isenabled()
        gc.disable()  # nothing made here is garbage; looking for some again and again takes half of the time
        try:
            self.read_all()
        finally:
            if collects:
                gc.enable()

    def read_all(self) -> None:
        """Reads the segments, the oldest first: what happened to jobs, then those that there still are."""
        numbers = sorted(self.segments.all)
        for number in numbers:
            segment = self.segments.all[number]
            if not self.read_indexed(segment):
                self.read_segment(segment, number == numbers[-1])
        self.next_serial = self.plain.tell_fates()
        for number in numbers:
            self.replay(self.segments.all[number])
        for job in self.plain.rest():
            self.found[int(job.serial)] = job
        for number, page in enumerate(self.plain.copies):
            due = self.now + ASK_AFTER + number * _PAGE_PAUSE
            self.machine.timers.set(page, due, self.now)
            self.machine.unasked.append(page)
        self.settle()
        pager = self.machine.pager
        pager.began, pager.last_before = self.now, self.machine.last_created
        # A process that died may not have: from now on acknowledgements count on it, and what was moved goes.
        self.segments.sync_found()
        self.segments.drop_oldest()

    def read_indexed(self, segment: JobSegment) -> bool:
        """Reads what happened from the index of a segment, if it has one."""
        # Times in an index are as they were written: without it they are read, and moved, job by job.
        index = None if segment.shift else read_index(segment.path, segment.size)
        if index is None:
            return False
        segment.has_index = True
        segment.frames.frombytes(index.frames)
        self.plain.words.frombytes(index.words)
        return True

    def replay_indexed(self, segment: JobSegment) -> bool:
        """Does what the index of a segment says, if it has one."""
        index = read_index(segment.path, segment.size) if segment.has_index else None
        if index is None:
            return False
        for jobs in index.jobs:
            for job in self.plain.keep_indexed(jobs, segment):
                self.keep(job, int(job.serial))
        self.walk(index.events, index.count, 0)
        return True

    def read_segment(self, segment: JobSegment, is_last: bool) -> None:
        """Reads one file. What is torn at the end of the last is cut off; what is damaged elsewhere is passed over."""
        size: i64 = segment.size
        if size < len(HEADER):
            return
        with Path(segment.path).open("rb") as file:
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            try:
                is_damaged = view[: len(HEADER)] != HEADER
                at: i64 = len(HEADER)
                while True:
                    at = self.read_frames(segment, view, at, is_last)
                    if at >= size:
                        break
                    following: i64 = next_frame(view, at)
                    if is_last and following == size and is_torn(view, at):
                        text = "jobs: %s is torn at %d of %d bytes: cut off there"
                        log.warning(text, segment.path, at, size)
                        # Not the last one at the next start, it would count as damaged.
                        os.truncate(segment.path, at)
                        segment.size = at
                        break
                    text = "jobs: %s is damaged from %d to %d of %d bytes: jobs there may be lost, or come again"
                    log.error(text, segment.path, at, following, size)
                    is_damaged = True
                    at = following
            finally:
                view.close()
        if is_damaged:
            self.segments.keep_damaged(segment)

    def read_frames(self, segment: JobSegment, view: mmap.mmap, start: i64, is_last: bool) -> i64:
        """Reads the frames from one on; returns where they end."""
        at: i64 = start
        size: i64 = segment.size
        while at + HEAD_SIZE <= size:
            magic, told_crc, body_crc, told, bodies, count = HEAD.unpack(view[at : at + HEAD_SIZE])
            events: i64 = at + HEAD_SIZE
            middle: i64 = events + int(told)
            end: i64 = middle + int(bodies)
            if magic != MAGIC or end > size or int(count) * 8 > told:
                break
            data: bytes = view[events:middle]
            if crc32c(data) != told_crc:
                break
            if is_last and bodies and crc32c(view[middle:end]) != body_crc:
                break
            self.plain.words.frombytes(data[: int(count) * 8])
            segment.frames.append(at)
            at = end
        return at

    def replay(self, segment: JobSegment) -> None:
        """Does what the frames of a segment say."""
        self.segment = segment
        if not segment.frames or self.replay_indexed(segment):
            return
        with Path(segment.path).open("rb") as file:
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            try:
                for at in segment.frames:
                    _, _, _, told, _, count = HEAD.unpack(view[at : at + HEAD_SIZE])
                    middle = at + HEAD_SIZE + told
                    try:
                        self.walk(view[at + HEAD_SIZE : middle], count, middle)
                    except (StructError, UnicodeDecodeError, IndexError):
                        text = "jobs: %s is damaged at %d: jobs there may be lost, or come again"
                        log.error(text, segment.path, at)
                        self.segments.keep_damaged(segment)
            finally:
                view.close()

    def added(
        self,
        head: tuple[Any, ...],
        name: bytes,
        data: bytes,
        at: i64,
        serial: int,
        offset: int,
        shared: bytes,
    ) -> bool:
        segment = self.segment
        assert segment is not None
        if self.plain.is_over(serial, head):
            return False
        shift = segment.shift
        if shift:
            head = (head[0], head[1] + shift, head[2] + shift, *head[3:])
        key = data[at : at + int(head[11])]
        if self.plain.keep(head, name, serial, segment, offset, shared, key):
            return not shift and (not key or not shared)
        job = self.read_job(head, name, data, at)
        job.serial = serial
        job.segment = segment.number
        job.offset = offset
        self.keep(job, serial)
        if shared:
            job.copies = JobCopies(*nodes_of(shared))
        return False

    def alike(
        self,
        head: tuple[Any, ...],
        name: bytes,
        serial: int,
        events: "memoryview[int]",
        data: bytes,
        at: i64,
        offset: int,
        shared: bytes,
    ) -> int:
        segment = self.segment
        assert segment is not None
        return self.plain.keep_alike(head, name, serial, events, data, at, segment, offset, shared)

    def keyed(
        self,
        head: tuple[Any, ...],
        name: bytes,
        serial: int,
        events: "memoryview[int]",
        data: bytes,
        at: i64,
        offset: int,
    ) -> int:
        segment = self.segment
        assert segment is not None
        return self.plain.keep_keyed(head, name, serial, events, data, at, segment, offset)

    def told(self, serial: int, event: int, data: bytes, start: i64, end: i64) -> None:
        job = self.found.get(serial)
        if job is None:
            return
        if event == record.BURIED or event == record.REVIVED:
            expires, nacks, repeats, _ = DEATH.unpack_from(data, start)
            reason = data[start + DEATH_SIZE : end].decode()
            shift = 0 if self.segment is None else self.segment.shift
            self.die(job, reason, (int(expires) + shift - self.machine.wall) / 1e9)
            job.nacks = nacks
            job.repeats = repeats
        elif event == record.SHARED:
            job.copies = JobCopies(*nodes_of(data[start:end]))
        elif event == record.NOTED:
            job.note(data[start + NOTE_SIZE : end].decode())
        else:
            self.happened(job, event)

    def read_job(self, head: tuple[Any, ...], name: bytes, data: bytes, at: i64) -> Job:
        """A job from its header, behind which key and reason are."""
        (
            job_id,
            created,
            expires,
            retry,
            ttl,
            delay,
            size,
            deliveries,
            nacks,
            repeats,
            _,
            key_size,
            reason_size,
            priority,
            flags,
        ) = head
        machine = self.machine
        queue = machine.queues.get(name)
        if queue is None:
            queue = machine.make_queue(name, self.now)
        job = Job(job_id, queue, None)
        job.created = created
        job.expires = (int(expires) - machine.wall) / 1e9
        job.retry = retry
        job.ttl = ttl
        job.delay = delay
        job.size = size
        job.deliveries = deliveries
        job.nacks = nacks
        job.repeats = repeats
        job.priority = priority
        flag_bits: int = flags
        job.state = QUEUED if flag_bits & IS_QUEUED else ACTIVE
        job.is_delayed = flag_bits & IS_DELAYED != 0
        if key_size:
            job.key = data[at : at + key_size]
        at += key_size
        if reason_size:
            job.reason = data[at : at + reason_size].decode()
        return job

    def keep(self, job: Job, serial: int) -> None:
        """A job was added, or written anew."""
        before = self.found.get(serial)
        if before is not None:
            old = self.segments.all[before.segment]
            old.live -= 1
            old.live_bytes -= job.size
            job.is_gone = before.is_gone
            job.copies = before.copies
        self.found[serial] = job
        segment = self.segments.all[job.segment]
        segment.live += 1
        segment.live_bytes += job.size
        if serial >= self.next_serial:
            self.next_serial = serial + 1

    def die(self, job: Job, reason: str, expires: float) -> None:
        """A job died, or came back to life (without a reason)."""
        name = job.queue.name
        other = name + DEAD if reason else name.removesuffix(DEAD)
        queue = self.machine.queues.get(other)
        job.queue = self.machine.make_queue(other, self.now) if queue is None else queue
        job.reason = reason
        job.expires = expires
        job.state = QUEUED
        job.is_delayed = False
        if not reason:
            job.deliveries = 0

    def happened(self, job: Job, event: int) -> None:
        if event == record.TAKEN:
            job.state, job.is_aside = ACTIVE, False
            job.deliveries += 1
        elif event == record.RETURNED:
            job.state = QUEUED
            if job.is_delayed:
                job.is_delayed = False
            else:
                job.repeats += 1
        elif event == record.NACKED:
            job.state = QUEUED
            job.nacks += 1
        elif event == record.SET_ASIDE:
            job.state, job.is_aside = ACTIVE, True
        elif event == record.GIVEN_BACK:
            job.state = QUEUED
            job.deliveries -= 1
        elif event == record.DONE:
            job.state = ACKED
            job.is_delayed = False
        elif event == record.GONE:
            job.is_gone = True
            if not job.key:
                self.drop(job)
        elif event == record.RELEASED:
            job.key = b""
            if job.is_gone:
                self.drop(job)

    def drop(self, job: Job) -> None:
        del self.found[int(job.serial)]
        segment = self.segments.all[job.segment]
        segment.live -= 1
        segment.live_bytes -= job.size
        job.segment = -1

    # What is there at the end

    def settle(self) -> None:
        """Gives the machine what is left, in the order of adding, with its deadlines."""
        machine = self.machine
        now = self.now
        jobs = list(self.found.values())
        jobs.sort(key=created_of)
        for number, job in enumerate(jobs):
            if job.key:
                self.settle_key(job)
            if job.is_gone:
                if not job.holds_key:
                    self.drop(job)
                continue
            machine.enter(job)
            job.queue.jobs += 1
            if job.state == ACKED:
                job.queue.done += 1
            machine.memory += JOB_BYTES
            machine.last_created = max(machine.last_created, job.created)
            self.settle_job(job, now, number)

    def settle_key(self, job: Job) -> None:
        """A key keeps others out while its window lasts, which no clock that was ahead makes longer."""
        machine = self.machine
        added = min(int(job.created - machine.wall) / 1e9, self.now)
        until = added + window_of(job.key, job.queue.rules)
        if until > self.now:
            machine.remember_key(job, until, self.now)

    def settle_job(self, job: Job, now: float, number: int) -> None:
        """Queues a job, or has it given again after its RETRY, which begins anew."""
        retry: int = job.retry
        if retry < 0:
            retry = job.queue.rules.retry_after(job.deliveries)
        # The clock may have been set: no time to live ends by that before one more RETRY.
        job.expires = max(job.expires, now + retry)
        if job.is_delayed:  # nor does a delay begin anew, and more than that
            job.expires = min(job.expires, now + int(job.delay) + int(job.ttl))
        copies = job.copies
        if copies is not None:
            self.settle_shared(job, copies, now, number)
            return
        if job.state == QUEUED:
            more = job.queue.lane(job.priority).more
            job.queue.put(job, more is not None and job.created < more.newest)
            self.machine.timers.set(job, job.expires, now)
            return
        due = job.expires
        if job.is_delayed:
            due = max(now, job.expires - int(job.ttl))
        elif retry:
            spread = 1.0 + _SPREAD * (number % 100) / 100
            due = min(due, now + retry * spread)
        self.machine.timers.set(job, due, now)

    def settle_shared(self, job: Job, copies: JobCopies, now: float, number: int) -> None:
        """Others may have it: they are asked first."""
        due = now + ASK_AFTER + _SPREAD * (number % 100) / 10
        if job.state != ACKED:
            copies.confirmed = list(copies.nodes)
            job.state = ACTIVE
            copies.is_away = True
            if job.is_delayed:
                due = max(due, job.expires - int(job.ttl))
        self.machine.timers.set(job, due, now)
        if not job.is_delayed:
            self.machine.unasked.append(job)


def created_of(job: Job) -> int:
    """When a job was added."""
    return job.created

"""Queued jobs beyond those that go next are paged out: on disk they are whole, here is only what they are found by.

A lane in memory is then: the jobs that go next, pages, and the jobs that came last. A page is taken apart when the
jobs before it are gone; one of its jobs alone when somebody names it. Only jobs that nothing happened to since they
were added are paged out, so that all of them is known by a few columns of numbers.
"""

from array import array
from bisect import bisect_left
from typing import Final
from zlib import crc32

from mypy_extensions import i64

from vmq.jobs.columns import (
    CREATED,
    ID,
    SEGMENT,
    JobColumns,
    at_place,
    long_ids,
    short_id,
    short_ids,
    split_ids,
    whole,
)
from vmq.jobs.queue import QUEUED, Job, JobLane, JobPage, JobQueue, LanePager, LanePages
from vmq.jobs.queues import JOB_BYTES, JobQueues
from vmq.jobs.rules import OFF

#: Jobs of a page; a queue with more than four of them has some paged out when memory is short.
PAGE: Final = 2048
#: Bytes of a page beside its columns.
_PAGE_BYTES: Final = 1500
#: Seconds in which nothing is paged out, after many jobs were found that cannot be.
_IDLE: Final = 5.0
#: Seconds by which the end of a job's time may differ from what follows from when it was added.
_CLOSE: Final = 0.001


class JobPager(LanePager):
    """The pages of one node.

    Args:
        machine: the jobs.
        wall: nanoseconds since 1970 at the zero of the clock.
    """

    def __init__(self, machine: JobQueues, wall: int) -> None:
        super().__init__()
        self.machine = machine
        self.wall = wall
        self.pages: dict[JobPage, None] = {}
        #: Jobs that are paged out, and those of one page.
        self.count: i64 = 0
        self.size: i64 = PAGE
        #: Bytes of memory above which jobs are; queues that have many then.
        self.above: i64 = 1 << 60
        #: Pages that are searched through for an id as yet: to make their marks takes longer than all else at a start.
        self.unmarked: dict[JobPage, None] = {}
        self.crowded: dict[JobQueue, None] = {}
        self.now: float = 0.0
        #: What cannot be paged out is not looked at again before.
        self.idle_until: float = 0.0

    # Out

    def page_out(self, now: float) -> None:
        """Makes one page, of a queue that has many jobs; to be called once a pass."""
        self.now = now
        if now < self.idle_until:
            self.crowded.clear()
            return
        queue = next(iter(self.crowded))
        del self.crowded[queue]
        if queue.rules.persistence != OFF and self.machine.memory > self.above:
            for lane in queue.lanes:
                if self.shrink(lane):
                    self.crowded[queue] = None
                    return

    def shrink(self, lane: JobLane) -> bool:
        """Pages out some jobs of a lane; whether it has more than enough of them."""
        more = lane.more
        if more is None:
            more = self.part(lane)
        if more is None or more.count < 2 * self.size:
            return False
        columns = JobColumns()
        out: list[Job] = []
        kept: list[Job] = []
        due: float = float("inf")
        job = more.head
        while job is not None and len(out) + len(kept) < self.size:
            if self.is_plain(job):
                out.append(job)
                columns.add_job(job)
                due = min(due, job.expires)
            else:
                kept.append(job)
            job = job.newer
        if len(kept) > self.size // 4:
            self.idle_until = self.now + _IDLE
            return False  # they are on other nodes, too, or not on disk yet
        more.head = job
        more.count -= len(out) + len(kept)
        if job is None:
            more.tail = None
            more.count = 0
        else:
            job.older = None
        for each in kept:
            each.older = each.newer = None
            lane.give_back(each)
        machine = self.machine
        for each in out:
            each.older = each.newer = None
            del machine.jobs[each.id]
            machine.timers.cancel(each)
            machine.memory -= JOB_BYTES
            if each.body is not None:
                machine.memory -= each.size
        self.add_page(lane, more, columns, due)
        return len(out) > 0

    def part(self, lane: JobLane) -> LanePages | None:
        """Parts what goes next in a lane from all that comes later; None: there is not so much."""
        job = lane.head
        number: i64 = 1
        while job is not None and number < self.size:
            job = job.newer
            number += 1
        if job is None or job.newer is None:
            return None
        more = LanePages(self)
        first = job.newer
        more.head = first
        more.tail = lane.tail
        lane.tail = job
        job.newer = None
        first.older = None
        rest: Job | None = first
        while rest is not None:
            more.count += 1
            rest = rest.newer
        lane.more = more
        return more

    def is_plain(self, job: Job) -> bool:
        """Whether nothing happened to a job since it was added, and it is on disk."""
        if job.segment < 0 or job.copies is not None or job.deliveries or job.nacks or job.repeats:
            return False
        if job.key or job.history is not None or job.reason:
            return False
        return abs(job.expires - self.expiry(job.created, job.delay, job.ttl)) < _CLOSE

    def expiry(self, created: i64, delay: i64, ttl: i64) -> float:
        """When the time of a job ends, by the clock of its deadlines."""
        return int(created - self.wall) / 1e9 + int(delay) + int(ttl)

    def add_page(self, lane: JobLane, more: LanePages, columns: JobColumns, due: float) -> None:
        """Jobs that are newer than those of all pages of their lane are a page."""
        count = len(columns.created)
        if not count:
            return
        page = JobPage(lane, short_ids(bytes(columns.ids)), columns.columns(), count)
        self.put_page(more, page, due)

    def put_page(self, more: LanePages, page: JobPage, due: float) -> None:
        """A page whose jobs are newer than those of all others of its lane."""
        columns = page.columns
        self.unmarked[page] = None
        page.first = at_place(columns[CREATED], 0)
        page.last = at_place(columns[CREATED], page.size - 1)
        page.segment = min(whole(columns[SEGMENT], page.size))
        more.pages.append(page)
        more.newest = page.last
        self.pages[page] = None
        self.count += page.size
        self.machine.memory += cost(page)
        self.machine.is_in_order = False
        self.machine.timers.set(page, due, self.now)

    # In

    def load(self, lane: JobLane) -> None:
        """Has the jobs of the first page go next; without pages, those that came last."""
        more = lane.more
        assert more is not None
        if more.pages:
            page = more.pages[0]
            jobs = self.take_apart(page)
            lane.more = None
            for job in jobs:
                lane.append(job)
            lane.more = more
            return
        lane.more = None
        head = more.head
        if head is None:
            return
        tail = lane.tail
        if tail is None:
            lane.head = head
        else:
            tail.newer = head
            head.older = tail
        lane.tail = more.tail

    def take_apart(self, page: JobPage) -> list[Job]:
        """The jobs of a page are in memory from now on; the caller queues them."""
        jobs = self.read(page)
        self.drop(page)
        for job in jobs:
            self.adopt(job)
        return jobs

    def drop(self, page: JobPage) -> None:
        """A page is no more."""
        more = page.lane.more
        assert more is not None
        more.pages.remove(page)
        del self.pages[page]
        self.unmarked.pop(page, None)
        self.count -= page.count
        self.machine.memory -= cost(page)
        self.machine.timers.cancel(page)

    def adopt(self, job: Job) -> None:
        machine = self.machine
        machine.jobs[job.id] = job
        machine.memory += JOB_BYTES
        machine.timers.set(job, job.expires, self.now)

    def scatter(self, page: JobPage) -> None:
        """Has the jobs of a page in memory, wherever it stands in its lane."""
        for job in self.take_apart(page):
            page.lane.give_back(job)

    def end(self, page: JobPage, now: float) -> None:
        """The time of a job of a page ends: it is in memory again, one page at a time."""
        if self.now < now:
            self.now = now
            self.scatter(page)
        else:
            self.machine.timers.set(page, now + 0.1, now)

    def read(self, page: JobPage) -> list[Job]:
        """The jobs of a page, as they are; they stay in it."""
        return self.unpack(page.lane, long_ids(page.ids, page.size), page.columns, page.taken)

    def unpack(
        self, lane: JobLane, ids: bytes, columns: "list[array[int]]", taken: "set[int] | None"
    ) -> list[Job]:
        """The jobs of columns, but for some places."""
        size = len(ids) // ID
        serials, created, segments, offsets, sizes, ttls, retries, delays = columns
        queue, priority = lane.queue, lane.priority
        found: list[Job] = []
        for place in range(size):
            if taken is not None and place in taken:
                continue
            job = Job(ids[place * ID : place * ID + ID], queue, None)
            job.state = QUEUED
            job.serial = at_place(serials, place)
            job.created = at_place(created, place)
            job.segment = at_place(segments, place)
            job.offset = at_place(offsets, place)
            job.size = at_place(sizes, place)
            job.ttl = at_place(ttls, place)
            job.retry = at_place(retries, place)
            job.delay = at_place(delays, place)
            job.priority = priority
            job.expires = self.expiry(job.created, job.delay, job.ttl)
            found.append(job)
        return found

    def find(self, job_id: bytes) -> Job | None:
        """A job that is paged out, and is in memory from now on."""
        mark = crc32(job_id)
        token = short_id(job_id)
        for page in self.pages:
            marks = page.marks
            if marks:
                place = bisect_left(marks, mark)
                may_be_there = place < len(marks) and marks[place] == mark
            else:
                is_short = len(page.ids) < page.size * ID
                may_be_there = page.ids.find(token if is_short else job_id) >= 0
            if may_be_there:
                job = self.take_out(page, job_id)
                if job is not None:
                    return job
        return None

    def mark(self, limit: int) -> None:
        """Has the jobs of some more pages found by their ids."""
        for page in list(self.unmarked)[:limit]:
            del self.unmarked[page]
            ids = long_ids(page.ids, page.size)
            page.marks = array("I", sorted(map(crc32, split_ids(ids))))

    def take_out(self, page: JobPage, job_id: bytes) -> Job | None:
        """One job of a page, if it has it."""
        for job in self.read(page):
            if job.id == job_id:
                place = long_ids(page.ids, page.size).find(job_id) // ID
                if page.taken is None:
                    page.taken = set()
                page.taken.add(place)
                page.count -= 1
                self.count -= 1
                self.adopt(job)
                page.lane.give_back(job)
                if not page.count:
                    self.drop(page)
                return job
        return None

    # Looking

    def after(self, created: int, limit: int) -> list[Job]:
        """Jobs that are paged out and were added later than this; they stay so."""
        found: list[Job] = []
        last: int = 0
        later = [
            (page.first, number, page)
            for number, page in enumerate(self.pages)
            if page.last > created
        ]
        later.sort()
        for first, _, page in later:
            if len(found) >= limit and first > last:
                break
            found.extend([job for job in self.read(page) if job.created > created])
            last = max(last, page.last)
        return found

    def in_segment(self, segment: int) -> JobPage | None:
        """A page of which jobs lie in a segment, or in an older one."""
        for page in self.pages:
            if page.segment <= segment:
                return page
        return None


def cost(page: JobPage) -> int:
    """Bytes of a page in memory."""
    columns = sum([len(each) * each.itemsize for each in page.columns])
    return _PAGE_BYTES + len(page.ids) + columns + 4 * page.size

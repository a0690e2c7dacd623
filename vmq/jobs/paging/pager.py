"""Jobs beyond those that go next are paged out: on disk they are whole, here is only what they are found by.

A lane in memory is then: the jobs that go next, pages, and the jobs that came last; beside these pages of jobs that
came back. Copies of what other nodes serve are in pages of their own. A page is taken apart when the jobs before it are
gone; one of its jobs alone when somebody names it. A job is paged out if a few columns of numbers have all of it.
"""

from heapq import heapify
from itertools import islice
from typing import Final

from mypy_extensions import i64

from vmq.jobs.paging.columns import JobColumns
from vmq.jobs.paging.pages import PAGE
from vmq.jobs.paging.views import PageViews
from vmq.jobs.queue import (
    ACTIVE,
    AWAY,
    DEAD,
    GONE,
    IN_ORDER,
    QUEUED,
    STRAY,
    Job,
    JobLane,
    JobQueue,
    LanePages,
)
from vmq.jobs.queues import JOB_BYTES, JobQueues, key_name
from vmq.jobs.rules import OFF

#: The part of the memory above which jobs are paged out; so many pages of jobs in memory are all of it, since up to
#: four of a queue, of copies, and of keys are, each with its body; and jobs of the smallest page.
_ABOVE: Final = 0.125
_PAGES: Final = 64
_SMALLEST_PAGE: Final = 64
#: Seconds in which nothing is paged out, after many jobs were found that cannot be.
_IDLE: Final = 5.0
#: Seconds by which the end of a job's time may differ from what its columns say.
_CLOSE: Final = 0.001


class JobPager(PageViews):
    """Pages jobs of one node out, when memory is short.

    Args:
        machine: the jobs.
        wall: nanoseconds since 1970 at the zero of the clock.
    """

    def __init__(self, machine: JobQueues, wall: int) -> None:
        super().__init__(machine, wall)
        #: Bytes of memory above which jobs are paged out.
        self.above: i64 = 1 << 60
        #: Queues that have many jobs, and copies that may be paged out.
        self.crowded: dict[JobQueue, None] = {}
        self.away: dict[Job, None] = {}
        #: The same of jobs that are gone and whose keys keep others out.
        self.gone: dict[Job, None] = {}
        #: What cannot be paged out is not looked at again before.
        self.idle_until: float = 0.0

    def fit(self, limit: int) -> None:
        """Jobs may have so many bytes of memory, of which those that are not paged out yet take a part."""
        self.above = int(limit * _ABOVE)
        self.size = min(PAGE, max(_SMALLEST_PAGE, limit // (_PAGES * JOB_BYTES)))

    def offer(self, job: Job) -> None:
        """A job may be paged out, if memory is short."""
        if self.machine.memory <= self.above:
            return
        if job.state == QUEUED:
            if job.queue.depth > 4 * self.size:
                self.crowded[job.queue] = None
        elif job.copies is not None and job.copies.is_away:
            self.away[job] = None

    def awaits_others(self, job: Job) -> bool:
        """Whether a copy that is due is to be asked for with others: then it is paged out soon."""
        if self.machine.memory <= self.above or not is_unasked(job) or not self.is_plain(job):
            return False
        self.away[job] = None
        return True

    def wants_out(self) -> bool:
        """Whether there is enough to be paged out."""
        return len(self.crowded) > 0 or max(len(self.away), len(self.gone)) >= 4 * self.size

    def offer_gone(self, job: Job) -> None:
        """A job is gone whose key keeps others out: that may be paged out."""
        if self.machine.memory > self.above and job.key[:1] != b"\0":
            self.gone[job] = None

    def page_out(self, now: float) -> None:
        """Makes some pages, so many that a pass does not take long; to be called once a pass."""
        self.now = now
        if len(self.away) >= 4 * self.size:
            self.page_out_away()
        if len(self.gone) >= 4 * self.size:
            self.page_out_gone()
        if now < self.idle_until:
            self.crowded.clear()
        left: i64 = PAGE
        while self.crowded and left > 0:
            left -= self.size
            queue = next(iter(self.crowded))
            del self.crowded[queue]
            if queue.rules.persistence != OFF and self.machine.memory > self.above:
                for lane in queue.lanes:
                    if self.shrink(lane) or self.shrink_returned(lane):
                        self.crowded[queue] = None
                        break

    def page_out_away(self) -> None:
        """Has copies in pages, those of one lane and of ids that are alike together."""
        groups: dict[bytes, list[Job]] = {}
        jobs = self.machine.jobs
        for job in some_of(self.away, max(4 * PAGE, 8 * int(self.size))):
            if jobs.get(job.id) is job and is_unasked(job) and self.is_plain(job):
                if job.queue.rules.persistence != OFF:
                    job_id = job.id
                    key = b"%b%b%d %b" % (job_id[:11], job_id[35:], job.priority, job.queue.name)
                    groups.setdefault(key, []).append(job)
        left: list[Job] = []
        for group in groups.values():
            for at in range(0, len(group), int(self.size)):
                some = group[at : at + int(self.size)]
                if 8 * len(some) >= self.size:
                    self.put_out(some, AWAY, min([job.due for job in some]))
                else:
                    left.extend(some)
        if len(left) < 2 * self.size:
            self.away.update(dict.fromkeys(left))

    def page_out_gone(self) -> None:
        """Has jobs that are gone in pages, those of one queue together."""
        groups: dict[bytes, list[Job]] = {}
        for job in some_of(self.gone, max(4 * PAGE, 8 * int(self.size))):
            if job.holds_key and job.segment >= 0:
                groups.setdefault(job.queue.name.removesuffix(DEAD), []).append(job)
        for name, group in groups.items():
            queue = self.machine.queues.get(name) or self.machine.make_queue(name, self.now)
            for job in group:
                job.queue = queue
            for at in range(0, len(group), int(self.size)):
                some = group[at : at + int(self.size)]
                if 8 * len(some) >= self.size:
                    self.put_out(some, GONE, max([self.key_until(job) for job in some]))
                else:
                    self.gone.update(dict.fromkeys(some))

    def put_out(self, jobs: list[Job], kind: i64, due: float) -> None:
        """Jobs of one lane that are queued nowhere are a page."""
        lane = jobs[0].queue.lane(jobs[0].priority)
        columns = JobColumns()
        machine = self.machine
        ends = float("inf")
        for job in jobs:
            columns.add_job(job, self.later(job), self.share_of(job.copies))
            ends = min(ends, job.expires)
            job.older = job.newer = None
            job.is_returned = False
            if job.holds_key:
                machine.timers.cancel(machine.keys.pop(key_name(job.queue.name, job.key)))
                machine.memory -= JOB_BYTES
            if kind == GONE:
                continue
            del machine.jobs[job.id]
            machine.timers.cancel(job)
            machine.memory -= JOB_BYTES
            if job.body is not None:
                machine.memory -= job.size
        page = self.page_of(lane, columns)
        page.kind = kind
        page.ends = ends
        self.put_page(page, ends if kind < AWAY else due)
        self.mark_page(page)

    def shrink(self, lane: JobLane) -> bool:
        """Pages out some jobs of a lane; whether it has more than enough of them."""
        more = lane.more
        if more is None or (lane.more is not None and not more.has_next()):
            more = self.part(lane)
        if more is None or more.count < 2 * self.size:
            return False
        out: list[Job] = []
        kept: list[Job] = []
        job = more.head
        while job is not None and len(out) + len(kept) < self.size:
            if self.is_plain(job):
                out.append(job)
            else:
                kept.append(job)
            job = job.newer
        if len(kept) > self.size // 4:
            self.idle_until = self.now + _IDLE
            return False  # other nodes have not got them, or they are not on disk yet
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
        if out:
            self.put_out(out, IN_ORDER, 0.0)
        return len(out) > 0

    def part(self, lane: JobLane) -> LanePages | None:
        """Parts what goes next in a lane from all that comes later; None: there is not so much."""
        job = lane.head
        number: i64 = 1
        while job is not None and number < self.size:
            job = job.newer
            number += 1
        if job is None or job.newer is None:
            return lane.more
        more = lane.more
        if more is None:
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

    def shrink_returned(self, lane: JobLane) -> bool:
        """Pages out most of the jobs that came back to a lane; whether there were many."""
        if lane.returned_now < 4 * self.size:
            return False
        entries = sorted(lane.valid())
        kept = entries[: int(self.size)]
        out: list[Job] = []
        for entry in entries[int(self.size) :]:
            if self.is_plain(entry[2]):
                out.append(entry[2])
            else:
                kept.append(entry)
        if 4 * len(out) < len(entries):
            self.idle_until = self.now + _IDLE
            return False
        lane.returned = kept
        heapify(lane.returned)
        lane.returned_now = len(kept)
        if lane.more is None:
            lane.more = LanePages(self)
        for at in range(0, len(out), int(self.size)):
            self.put_out(out[at : at + int(self.size)], STRAY, 0.0)
        return True

    def is_plain(self, job: Job) -> bool:
        """Whether columns have all of a job, which is on disk, and all nodes that may have it confirmed that."""
        if job.segment < 0 or job.history is not None or job.reason or job.is_delayed:
            return False
        if job.key and (job.key[:1] == b"\0" or job.holds_key != (self.key_until(job) > self.now)):
            return False
        copies = job.copies
        if copies is not None:
            if len(copies.confirmed) < len(copies.nodes) or copies.is_given:
                return False
        beside = job.expires - self.expiry(job.created, job.delay, job.ttl)
        return abs(beside - round(beside)) < _CLOSE

    def later(self, job: Job) -> int:
        """Seconds by which the time of a job ends later than follows from when it was added."""
        return round(job.expires - self.expiry(job.created, job.delay, job.ttl))


def some_of(jobs: dict[Job, None], count: int) -> list[Job]:
    """Takes so many jobs out, those that came first: with all of them a pass would take long."""
    found = list(islice(jobs, count))
    for job in found:
        del jobs[job]
    return found


def is_unasked(job: Job) -> bool:
    """Whether another node serves a job, and was not asked for it."""
    copies = job.copies
    return job.state == ACTIVE and copies is not None and copies.is_away and not copies.is_asking

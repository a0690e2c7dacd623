"""Pages of jobs: how they are made, found, and taken apart. What is paged out, and when: `vmq.jobs.paging.pager`."""

from bisect import bisect_left, insort
from collections.abc import Collection
from itertools import islice
from typing import Final
from zlib import crc32

from mypy_extensions import i64

from vmq.jobs.paging.columns import (
    CREATED,
    DELAY,
    DELIVERIES,
    ID,
    LATER,
    NACKS,
    OFFSET,
    REPEATS,
    RETRY,
    SEGMENT,
    SERIAL,
    SHARE,
    SIZE,
    TTL,
    JobColumns,
    at_place,
    join_keys,
    long_id,
    long_ids,
    pack_keys,
    place_of,
    short_ids,
    split_ids,
    split_keys,
    unpack_keys,
    whole,
)
from vmq.jobs.paging.marks import PageMarks
from vmq.jobs.paging.page import cost, first_of, key_mark
from vmq.jobs.queue import (
    ACTIVE,
    AWAY,
    GONE,
    IN_ORDER,
    QUEUED,
    Job,
    JobCopies,
    JobLane,
    JobPage,
    LanePager,
)
from vmq.jobs.queues import JOB_BYTES, JobQueues, key_name, window_of

#: Jobs of a page; a queue with more than four of them has some paged out when memory is short.
PAGE: Final = 2048
#: Copies of one page that are named one by one; then all of it is in memory: who does its jobs names the others soon.
_MOST_HITS: Final = 16
#: Jobs that are looked for in a page one by one; more of them are compared with all that it has.
_FEW: Final = 16


class PagedJobs(LanePager):
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
        #: When the first job of each was added, with its number, rising; and the longest time that one spanned.
        self.starts: list[tuple[int, int]] = []
        self.longest: int = 0
        #: Jobs that are paged out, those of them that are queued, and those of one page.
        self.count: i64 = 0
        self.queued: i64 = 0
        self.size: i64 = PAGE
        #: Which pages may have an id; those that are searched through as yet: at a start that would take too long.
        self.numbered: dict[int, JobPage] = {}
        self.last_number: int = 0
        self.marks = PageMarks(self.numbered)
        self.unmarked: dict[JobPage, None] = {}
        #: Which nodes may have a job, once for all jobs that have the same: the first is of those that are here only.
        self.shares: list[JobCopies | None] = [None]
        self.share_numbers: dict[tuple[int, ...], int] = {}
        #: Pages of jobs with keys, those that are gone among them; of these those that are not marked yet.
        self.keyed: dict[JobPage, None] = {}
        self.unmarked_keyed: dict[JobPage, None] = {}
        #: The page whose keys were wanted last, and these: they are packed, and often wanted one after the other.
        self.unpacked: JobPage | None = None
        self.unpacked_keys: list[bytes] = []
        self.now: float = 0.0
        #: When the jobs of earlier lives were brought back, and the time at which the last of them was added.
        self.began: float = 0.0
        self.last_before: i64 = 0
        #: Ids that were compared with those that somebody named, since the start.
        self.compared: i64 = 0
        #: When a page was taken apart last whose time was over.
        self.ended_at: float = -1.0

    # Making

    def expiry(self, created: i64, delay: i64, ttl: i64) -> float:
        """When the time of a job ends that was added here, by the clock of its deadlines."""
        return int(created - self.wall) / 1e9 + int(delay) + int(ttl)

    def share_of(self, copies: JobCopies | None) -> int:
        """The number of what is known of a job's copies."""
        return 0 if copies is None else self.share(copies.wanted, copies.nodes)

    def share(self, wanted: int, nodes: list[int]) -> int:
        """The number of that these nodes may have a job, which is to be on so many hosts."""
        key = (wanted, *nodes)
        found = self.share_numbers.get(key)
        if found is None:
            found = self.share_numbers[key] = len(self.shares)
            self.shares.append(JobCopies(wanted, nodes))
        return found

    def page_of(self, lane: JobLane, columns: JobColumns) -> JobPage:
        """A page of jobs of a lane."""
        ids, numbers = short_ids(bytes(columns.ids)), columns.columns()
        page = JobPage(lane, ids, numbers, len(columns.created))
        if columns.keys:
            page.keys = join_keys(columns.keys, page.size)
        page.vouched = columns.vouched
        return page

    def put_page(self, page: JobPage, due: float) -> None:
        """There is a page, whose jobs are newer than those of all others of its lane if it is `IN_ORDER`."""
        columns = page.columns
        created = whole(columns[CREATED], page.size)
        page.first = min(created)
        page.last = max(created)
        page.segment = min(whole(columns[SEGMENT], page.size))
        if page.kind < AWAY:
            more = page.lane.more
            assert more is not None
            self.queued += page.size
            if page.kind == IN_ORDER:
                more.pages.append(page)
                more.newest = page.last
            else:
                more.strays.append(page)
                more.strays.sort(key=first_of)
        self.last_number += 1
        page.number = self.last_number
        self.numbered[page.number] = page
        self.unmarked[page] = None
        if page.keys:
            self.keyed[page] = None
            self.unmarked_keyed[page] = None
        if page.kind != GONE:
            self.pages[page] = None
            insort(self.starts, (page.first, page.number))
            self.longest = max(self.longest, page.last - page.first)
            self.count += page.size
        self.machine.memory += cost(page)
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
        head = more.head
        tail = lane.tail
        if tail is None:
            lane.head = head
        elif head is not None:
            tail.newer = head
            head.older = tail
        if head is not None:
            lane.tail = more.tail
        more.head = more.tail = None
        more.count = 0
        if not more.strays:
            lane.more = None

    def load_stray(self, lane: JobLane) -> None:
        more = lane.more
        assert more is not None
        self.scatter(more.strays[0])

    def take_apart(self, page: JobPage) -> list[Job]:
        """The jobs of a page are in memory from now on; the caller queues them, unless they are away."""
        jobs = self.read(page)
        self.drop(page)
        for job in jobs:
            self.adopt(page, job)
        return jobs

    def drop(self, page: JobPage) -> None:
        """A page is no more."""
        if page.kind < AWAY:
            more = page.lane.more
            assert more is not None
            pages = more.pages if page.kind == IN_ORDER else more.strays
            pages.remove(page)
            self.queued -= page.count
        if page.kind != GONE:
            del self.pages[page]
            del self.starts[bisect_left(self.starts, (page.first, page.number))]
            self.count -= page.count
        del self.numbered[page.number]
        self.unmarked.pop(page, None)
        if page.keys:
            del self.keyed[page]
            self.unmarked_keyed.pop(page, None)
            if self.unpacked is page:
                self.unpacked, self.unpacked_keys = None, []
        self.machine.memory -= cost(page)
        self.machine.timers.cancel(page)

    def adopt(self, page: JobPage, job: Job) -> None:
        """A job of a page is in memory from now on."""
        machine = self.machine
        if job.key and self.key_until(job) > self.now:
            if key_name(job.queue.name, job.key) not in machine.keys:
                machine.remember_key(job, self.key_until(job), self.now)
        if page.kind == GONE:
            return
        machine.enter(job)
        machine.memory += JOB_BYTES
        due = job.expires
        if page.kind == AWAY:
            due = page.due
            copies = job.copies
            assert copies is not None
            copies.is_asking = page.seen is not None and job.id not in page.seen
        machine.timers.set(job, due, self.now)

    def scatter(self, page: JobPage) -> list[Job]:
        """Has the jobs of a page in memory, wherever it stands in its lane."""
        jobs = self.take_apart(page)
        if page.kind < AWAY:
            for job in jobs:
                page.lane.give_back(job)
        return jobs

    def end(self, page: JobPage, now: float) -> bool:
        """The time of a job of a page ends: it is in memory again, one page at a time. Whether it is this one's turn;
        those of a page of jobs that are gone are the caller's.
        """
        if self.ended_at >= now:
            self.machine.timers.set(page, now + 0.1, now)
            return False
        self.ended_at = self.now = now
        if page.kind != GONE:
            self.scatter(page)
        return True

    def read(self, page: JobPage) -> list[Job]:
        """The jobs of a page, as they are; they stay in it."""
        return self.unpack(page, long_ids(page.ids, page.size), page.taken)

    def unpack(self, page: JobPage, ids: bytes, taken: "set[int] | None") -> list[Job]:
        """The jobs of a page, but for some places."""
        found: list[Job] = []
        keys = self.keys_of(page) if page.keys else []
        for place in range(page.size):
            if taken is None or place not in taken:
                job = self.job_at(page, place, ids[place * ID : place * ID + ID])
                if keys:
                    job.key = keys[place]
                found.append(job)
        return found

    def job_at(self, page: JobPage, place: int, job_id: bytes) -> Job:
        """One job of a page, without its key."""
        columns, lane = page.columns, page.lane
        job = Job(job_id, lane.queue, None)
        job.state = QUEUED
        job.serial = at_place(columns[SERIAL], place)
        job.created = at_place(columns[CREATED], place)
        job.segment = at_place(columns[SEGMENT], place)
        job.offset = at_place(columns[OFFSET], place)
        job.size = at_place(columns[SIZE], place)
        job.ttl = at_place(columns[TTL], place)
        job.retry = at_place(columns[RETRY], place)
        job.delay = at_place(columns[DELAY], place)
        job.deliveries = at_place(columns[DELIVERIES], place)
        job.nacks = at_place(columns[NACKS], place)
        job.repeats = at_place(columns[REPEATS], place)
        job.priority = lane.priority
        job.is_vouched = page.vouched != 0 and page.vouched >> place & 1 == 1
        later = at_place(columns[LATER], place)
        job.expires = self.expiry(job.created, job.delay, job.ttl) + later
        known = self.shares[at_place(columns[SHARE], place)]
        if known is not None:
            job.copies = copies = JobCopies(known.wanted, known.nodes)
            copies.confirmed = list(known.nodes)
            if page.kind == AWAY:
                job.state = ACTIVE
                copies.is_away = True
        if page.kind == GONE:
            job.state = ACTIVE
            job.is_gone = True
        return job

    # By ids

    def find(self, job_id: bytes, created: int = -1) -> Job | None:
        """A job that is paged out, and is in memory from now on; `created`: when it was added, if that is known."""
        numbered = self.numbered
        for number in self.marks.pages(crc32(job_id)):
            page = numbered.get(number)
            job = None if page is None else self.find_in(page, job_id)
            if job is not None:
                return job
        for page in self.unmarked:
            if page.kind == GONE or (created >= 0 and not page.first <= created <= page.last):
                continue
            job = self.find_in(page, job_id)
            if job is not None:
                return job
        return None

    def peek(self, job_id: bytes) -> Job | None:
        """A job that is paged out, without its key: as it is, it stays so."""
        numbered = self.numbered
        for number in self.marks.pages(crc32(job_id)):
            page = numbered.get(number)
            if page is not None and page.kind != GONE:
                place = place_of(page.ids, page.size, job_id)
                if place >= 0 and (page.taken is None or place not in page.taken):
                    job = self.job_at(page, place, job_id)
                    if job.copies is not None:
                        job.copies.is_asking = page.seen is not None
                    return job
        return None

    def find_in(self, page: JobPage, job_id: bytes) -> Job | None:
        """A job of a page, if it has it."""
        place = place_of(page.ids, page.size, job_id)
        if place < 0 or (page.taken is not None and place in page.taken):
            return None
        page.hits += 1
        if page.kind == AWAY and page.hits > _MOST_HITS:
            self.take_apart(page)
            return self.machine.jobs.get(job_id)
        return self.take_out(page, place, job_id)

    def take_out(self, page: JobPage, place: int, job_id: bytes) -> Job:
        """One job of a page."""
        job = self.job_at(page, place, job_id)
        if page.keys:
            job.key = self.keys_of(page)[place]
        if page.taken is None:
            page.taken = set()
        page.taken.add(place)
        page.count -= 1
        if page.kind != GONE:
            self.count -= 1
        self.adopt(page, job)
        if page.kind < AWAY:
            self.queued -= 1
            page.lane.give_back(job)
        if not page.count:
            self.drop(page)
        return job

    def take_some_out(self, page: JobPage, job_ids: Collection[bytes]) -> list[Job]:
        """Some jobs of a page."""
        if len(job_ids) == page.count:
            return self.scatter(page)
        found: list[Job] = []
        for place, job_id in self.places(page, job_ids):
            found.append(self.take_out(page, place, job_id))
        return found

    def places(self, page: JobPage, job_ids: Collection[bytes]) -> list[tuple[int, bytes]]:
        """Those of some jobs that a page has, with their places."""
        taken = page.taken
        self.compared += max(len(job_ids), page.size if len(job_ids) > _FEW else 0)
        if len(job_ids) > _FEW:
            wanted = set(job_ids)
            ids = split_ids(long_ids(page.ids, page.size))
            found = [(place, job_id) for place, job_id in enumerate(ids) if job_id in wanted]
        else:
            found = [(place_of(page.ids, page.size, job_id), job_id) for job_id in job_ids]
        return [each for each in found if each[0] >= 0 and (taken is None or each[0] not in taken)]

    def mark(self, limit: int) -> None:
        """Has the jobs of some more pages found by their ids and keys, those with keys first."""
        for page in list(islice(self.unmarked_keyed or self.unmarked, limit)):
            self.mark_page(page)

    def mark_page(self, page: JobPage) -> None:
        del self.unmarked[page]
        number, marks = page.number, self.marks
        if page.kind != GONE:
            for job_id in split_ids(long_ids(page.ids, page.size)):
                marks.add(crc32(job_id), number)
        if page.keys:
            queue = page.lane.queue.name
            for key in self.keys_of(page):
                if key:
                    marks.add(key_mark(queue, key), number)
            del self.unmarked_keyed[page]
            self.machine.memory -= cost(page)
            page.keys = pack_keys(page.keys)
            page.has_packed_keys = True
            self.machine.memory += cost(page)

    # By keys

    def keys_of(self, page: JobPage) -> list[bytes]:
        """The keys of all its jobs, empty where there is none."""
        if self.unpacked is not page:
            data = unpack_keys(page.keys) if page.has_packed_keys else page.keys
            self.unpacked, self.unpacked_keys = page, split_keys(data, page.size)
        return self.unpacked_keys

    def key_until(self, job: Job) -> float:
        """Until when the key of a job keeps others out."""
        added: float = int(job.created - self.wall) / 1e9
        if job.created <= self.last_before:
            added = min(added, self.began)  # a clock that was ahead makes no window longer
        return added + window_of(job.key, job.queue.rules)

    def locate_key(self, name: tuple[bytes, bytes]) -> tuple[JobPage, int] | None:
        """The page and the place of the job that has a key: of those whose window is over some may wait still."""
        queue, key = name
        numbered = self.numbered
        pages = {
            numbered[each] for each in self.marks.pages(key_mark(queue, key)) if each in numbered
        }
        for unmarked in self.unmarked_keyed:
            if key in unmarked.keys:
                pages.add(unmarked)
        found: tuple[JobPage, int] | None = None
        newest = -1
        for page in pages:
            if not page.keys or page.lane.queue.name != queue:
                continue
            created = page.columns[CREATED]
            for place, each in enumerate(self.keys_of(page)):
                if each == key and (page.taken is None or place not in page.taken):
                    if at_place(created, place) > newest:
                        newest = at_place(created, place)
                        found = page, place
        return found

    def find_key(self, name: tuple[bytes, bytes]) -> None:
        """Has the job of a key in memory, if it is paged out; its key is then among those of the machine."""
        found = self.locate_key(name)
        if found is not None:
            page, place = found
            self.take_out(page, place, self.id_at(page, place))

    def key_id(self, name: tuple[bytes, bytes]) -> bytes:
        """The id of the job that has a key, if it is paged out; it stays so."""
        found = self.locate_key(name)
        return b"" if found is None else self.id_at(*found)

    def id_at(self, page: JobPage, place: int) -> bytes:
        return long_id(page.ids, page.size, place)

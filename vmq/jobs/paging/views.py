"""What is asked of pages without taking a job out: which there are of a queue or a segment, and what is in them."""

from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator, Set
from heapq import nsmallest
from typing import Final
from zlib import crc32

from vmq.jobs.paging.columns import (
    CREATED,
    DELIVERIES,
    NACKS,
    REPEATS,
    SHARE,
    at_place,
    long_ids,
    narrow,
    split_ids,
    whole,
)
from vmq.jobs.paging.page import PagedGroup, cost, numbers_of
from vmq.jobs.paging.pages import PagedJobs
from vmq.jobs.queue import ACKED, AWAY, GONE, Job, JobCopies, JobPage, JobQueue

#: Jobs in memory that one step counts.
COUNTED: Final = 4096


class PageViews(PagedJobs):
    """The pages of one node, as others ask for them."""

    def after(self, created: int, limit: int) -> list[Job]:
        """The first jobs that are paged out and were added later than this; they stay so."""
        found: list[tuple[int, int, int]] = []
        numbered = self.numbered
        # None that began sooner than the longest one lasts has such a job.
        for at in range(bisect_left(self.starts, (created - self.longest, 0)), len(self.starts)):
            first, number = self.starts[at]
            if len(found) >= limit and first > found[limit - 1][0]:
                break
            page = numbered[number]
            if page.last <= created:
                continue
            taken = page.taken
            for place, when in enumerate(whole(page.columns[CREATED], page.size)):
                if when > created and (taken is None or place not in taken):
                    found.append((when, number, place))
            found = nsmallest(limit, found)
        jobs: list[Job] = []
        for _, number, place in found:
            page = numbered[number]
            job = self.job_at(page, place, self.id_at(page, place))
            if page.keys:
                job.key = self.keys_of(page)[place]
            jobs.append(job)
        return jobs

    def having(
        self, name: bytes, first: int, last: int, job_ids: Collection[bytes]
    ) -> list[tuple[JobPage, list[PagedGroup]]]:
        """Pages of a queue with those of some jobs that they have, which were added from then to then.

        It costs as much as there are ids, however many pages there are: a page may have jobs of all times.
        """
        numbered = self.numbered
        sought: dict[JobPage, Collection[bytes]] = {}
        for page in self.unmarked:
            if page.last >= first and page.first <= last:
                sought[page] = job_ids
        marked: dict[int, list[bytes]] = {}
        for job_id in job_ids:
            for number in self.marks.pages(crc32(job_id)):
                marked.setdefault(number, []).append(job_id)
        for number, some in marked.items():
            if number in numbered:
                sought.setdefault(numbered[number], some)
        found: list[tuple[JobPage, list[PagedGroup]]] = []
        for page, wanted in sought.items():
            if page.kind != GONE and page.lane.queue.name == name:
                groups = self.groups_of(page, self.places(page, wanted))
                if groups:
                    found.append((page, groups))
        return found

    def ids(self, page: JobPage) -> list[bytes]:
        """Those of the jobs that a page has still."""
        ids = split_ids(long_ids(page.ids, page.size))
        taken = page.taken
        if taken is None:
            return ids
        return [job_id for place, job_id in enumerate(ids) if place not in taken]

    def groups(self, page: JobPage) -> list[PagedGroup]:
        """Its jobs, those together that are alike."""
        taken = page.taken
        places = list(enumerate(split_ids(long_ids(page.ids, page.size))))
        if taken is not None:
            places = [each for each in places if each[0] not in taken]
        return self.groups_of(page, places)

    def groups_of(self, page: JobPage, places: list[tuple[int, bytes]]) -> list[PagedGroup]:
        """Jobs at some places of a page, those together that are alike."""
        columns = [page.columns[each] for each in (SHARE, DELIVERIES, NACKS, REPEATS)]
        if places and max([len(each) for each in columns]) == 1:
            share, *counters = [each[0] for each in columns]
            group = PagedGroup(self.shares[share], *counters)
            group.ids = [job_id for _, job_id in places]
            return [group]
        found: dict[tuple[int, int, int, int], PagedGroup] = {}
        for place, job_id in places:
            share, deliveries, nacks, repeats = [at_place(each, place) for each in columns]
            known = found.get((share, deliveries, nacks, repeats))
            if known is None:
                known = PagedGroup(self.shares[share], deliveries, nacks, repeats)
                found[share, deliveries, nacks, repeats] = known
            known.ids.append(job_id)
        return list(found.values())

    def shares_of(self, page: JobPage) -> list[JobCopies | None]:
        """Which nodes may have its jobs."""
        return [self.shares[each] for each in numbers_of(page, SHARE)]

    def raise_counters(
        self, page: JobPage, job_ids: Collection[bytes], deliveries: int, nacks: int, repeats: int
    ) -> None:
        """So often some jobs were given, given up and given again, as far as others know."""
        ids = long_ids(page.ids, page.size)
        places = [place for place, job_id in enumerate(split_ids(ids)) if job_id in job_ids]
        self.machine.memory -= cost(page)
        for column, count in ((DELIVERIES, deliveries), (NACKS, nacks), (REPEATS, repeats)):
            numbers = array("q", whole(page.columns[column], page.size))
            for place in places:
                numbers[place] = max(numbers[place], count)
            page.columns[column] = narrow(numbers)
        self.machine.memory += cost(page)

    def counting(self, found: dict[JobQueue, int], me: int, up: Set[int]) -> Iterator[None]:
        """Counts the jobs of each queue that are not done, those of several nodes at one of them: the first in reach.

        A step at a time: what comes, goes or is paged between two of them may be counted or not.

        Args:
            found: what is counted.
            me: this node.
            up: those that it reaches.
        """
        created = -1
        while jobs := self.machine.in_memory_after(created, COUNTED):
            created = int(jobs[-1].created)
            for job in jobs:
                if job.state != ACKED and is_counted(job.copies, me, up):
                    found[job.queue] = found.get(job.queue, 0) + 1
            yield
        for page in list(self.pages):
            if page.kind != GONE:
                queue = page.lane.queue
                count = sum(
                    [len(each.ids) for each in self.groups(page) if is_counted(each.copies, me, up)]
                )
                found[queue] = found.get(queue, 0) + count
                yield

    def first_queued(self) -> JobPage | None:
        """A page whose jobs this node serves."""
        for page in self.pages:
            if page.kind < AWAY:
                return page
        return None

    def in_segment(self, segment: int) -> JobPage | None:
        """A page of which jobs lie in a segment, or in an older one."""
        for page in self.pages:
            if page.segment <= segment:
                return page
        return None


def is_counted(copies: JobCopies | None, me: int, up: Set[int]) -> bool:
    """Whether this node counts a job."""
    for node in [] if copies is None else copies.nodes:
        if node == me or node in up:
            return node == me
    return True

"""What is asked of pages without taking a job out: which there are of a queue or a segment, and what is in them."""

from array import array
from collections.abc import Collection

from vmq.jobs.paging.columns import (
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
from vmq.jobs.queue import AWAY, Job, JobCopies, JobPage


class PageViews(PagedJobs):
    """The pages of one node, as others ask for them."""

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

    def between(self, name: bytes, first: int, last: int) -> list[JobPage]:
        """Pages of a queue that may have jobs which were added from then to then."""
        found: list[JobPage] = []
        for page in self.pages:
            if page.last >= first and page.first <= last and page.lane.queue.name == name:
                found.append(page)
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
        columns = [page.columns[each] for each in (SHARE, DELIVERIES, NACKS, REPEATS)]
        if max([len(each) for each in columns]) == 1:
            share, *counters = [each[0] for each in columns]
            group = PagedGroup(self.shares[share], *counters)
            group.ids = self.ids(page)
            return [group]
        found: dict[tuple[int, int, int, int], PagedGroup] = {}
        taken = page.taken
        ids = split_ids(long_ids(page.ids, page.size))
        for place, job_id in enumerate(ids):
            if taken is not None and place in taken:
                continue
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

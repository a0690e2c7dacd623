"""DEBUG FLUSHALL: all jobs of a mountpoint, some a turn, so that others are served meanwhile."""

from typing import Final

from vmq.jobs.machine import JobMachine
from vmq.jobs.queue import ACKED, Job, JobPage

#: Jobs that are looked at in one turn; a page is taken apart whole.
_TURN: Final = 2000


class JobFlush:
    """Deletes the jobs that there are when it begins: what is added meanwhile stays.

    Args:
        machine: the jobs.
        prefix: with which the names of their queues begin.
        now: monotonic seconds.
    """

    def __init__(self, machine: JobMachine, prefix: bytes, now: float) -> None:
        self.machine = machine
        self.prefix = prefix
        self.began = int(machine.next_created(now))
        #: Pages with a higher number were made meanwhile, and may have what came meanwhile.
        self.last_page = machine.pager.last_number
        self.is_first = True
        self._begin()

    def _begin(self) -> None:
        """What is in memory may be paged out on the way, and back: so it is looked for until there is nothing."""
        self.pages = [page for page in self.machine.pager.pages if self._concerns(page)]
        self.ids = list(self.machine.jobs)
        self.deleted = 0

    def _concerns(self, page: JobPage) -> bool:
        is_old = page.number <= self.last_page or page.first <= self.began
        return is_old and page.lane.queue.name.startswith(self.prefix)

    def turn(self, limit: int = _TURN) -> bool:
        """Deletes some; whether there is more to do."""
        left = limit
        while left > 0:
            if self.pages:
                page = self.pages.pop()
                if page in self.machine.pager.pages:
                    is_old = page.number <= self.last_page
                    for job in self.machine.pager.scatter(page):
                        self._delete(job, is_old)
                    left -= int(page.size)
                left -= 1
            elif self.ids:
                found = self.machine.find(self.ids.pop())
                if found is not None:
                    self._delete(found, self.is_first)
                left -= 1
            elif self.deleted:
                self.is_first = False
                self._begin()
                left = 0
            else:
                return False
        return True

    def _delete(self, job: Job, is_old: bool) -> None:
        """A job that was there; what another node added may say of itself that it came later."""
        if not is_old and job.created > self.began:
            return
        if job.state != ACKED and job.queue.name.startswith(self.prefix):
            self.machine.delete(job)
            self.deleted += 1

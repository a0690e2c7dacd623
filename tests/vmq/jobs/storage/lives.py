"""A machine of jobs with its log, which ends and begins anew."""

import random
from pathlib import Path
from typing import Any

from tests.support.present import present
from tests.vmq.jobs.support import WALL, machine_of, passed, rules
from vmq.jobs.machine import JobMachine
from vmq.jobs.queue import Job
from vmq.jobs.storage.clock import JobClock
from vmq.jobs.storage.indexing import JobIndexing
from vmq.jobs.storage.journal import JobJournal
from vmq.jobs.storage.restoring import JobRestore
from vmq.jobs.storage.segments import JobSegments


class Node:
    """A machine with its log in a folder; `page`: jobs of a page; the last two as of `JobClock`."""

    def __init__(
        self,
        folder: Path,
        now: float = 1000.0,
        page: int = 0,
        seed: int = -1,
        ahead: int = 0,
        boot: str = "",
        **changes: Any,
    ) -> None:
        self.ahead = ahead
        self.folder = folder
        self.now = now
        self.seed = random.randrange(1 << 30) if seed < 0 else seed
        self.segments = JobSegments(folder)
        own = rules(**changes)
        self.machine = machine_of(lambda _name: own, seed=self.seed)
        if page:
            self.machine.pager.size = page
        self.clock = JobClock(self.segments, lambda: self.ahead, boot)
        restore = JobRestore(self.machine, self.segments, now)
        restore.run()
        self.clock.begin()
        self.damaged = self.segments.damaged()
        self.journal = JobJournal(self.segments, WALL, restore.next_serial)
        self.machine.log = self.journal

    def add(self, body: bytes = b"x", name: bytes = b"q", **options: Any) -> Job:
        return self.machine.add(self.machine.queue(name, self.now), body, self.now, **options)

    def take(self, name: bytes = b"q") -> Job:
        return present(self.machine.take(self.machine.queue(name, self.now), self.now))

    def passes(self, seconds: float) -> None:
        self.now = passed(self.machine, self.now, seconds)

    def index(self) -> None:
        """Makes an index of each segment that is not written any more."""
        indexing = JobIndexing(self.segments, lambda _after, _call: None)
        indexing.look()
        indexing.look()
        while indexing.step():
            pass

    def again(self, **changes: Any) -> "Node":
        """The next start, one second later; what was not committed is lost."""
        self.segments.close()
        return Node(self.folder, self.now + 1, **changes)

    def body(self, job: Job) -> bytes:
        return self.journal.body(job) if job.body is None else job.body


def seen(machine: JobMachine) -> dict[bytes, tuple[object, ...]]:
    """What must outlive a restart, of every job."""
    return {
        job.id: (
            job.queue.name,
            int(job.state),
            int(job.created),
            int(job.priority),
            int(job.retry),
            int(job.deliveries),
            int(job.nacks),
            int(job.repeats),
            job.reason,
            tuple(job.history or ()),
            job.is_delayed,
            job.key,
        )
        for job in machine.jobs.values()
    }

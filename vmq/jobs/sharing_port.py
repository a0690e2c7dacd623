"""Other nodes, as the jobs of one node meet them: who shares them is told what happens. This one has no others."""

from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from vmq.jobs.queue import Job, JobPage, JobQueue, JobWaiter

#: The queue of a job that is not here and is done.
UNKNOWN: Final = b"$unknown"

#: Told whether a job is on its hosts.
Told = Callable[[bool], object]


class RemoteWaiter(JobWaiter):
    """A node that has workers; `ended` is called when it is one no more."""

    def __init__(
        self, node: int, queue: JobQueue, count: int, ended: "Callable[[RemoteWaiter], None]"
    ) -> None:
        super().__init__([queue], count)
        self.is_remote = True
        self.node = node
        self.ended = ended

    def give_up(self) -> None:
        self.ended(self)


@mypyc_attr(allow_interpreted_subclasses=True)
class JobSharing:
    """A node without others. `vmq.jobs.sharing` has the one with them."""

    def __init__(self) -> None:
        self.is_on = False
        #: This node gives its jobs to others, and serves no worker that would have to wait.
        self.is_leaving = False

    def asks_for(self, key: bytes) -> bool:
        """Whether other nodes are asked for a key before a job has it."""
        return False

    def hosts(self) -> int:
        """On how many hosts the cluster is."""
        return 1

    def reachable_hosts(self) -> int:
        """How many of them can be reached, this one included."""
        return 1

    def begin(self, job: Job, wanted: int, now: float) -> None:
        """A job was added that is to be on several hosts; it is queued once it is, by `JobStock.settle`."""

    def queued(self, job: Job, now: float) -> None:
        """A job that others may have is queued here."""

    def look(self, job: Job, now: float) -> None:
        """A job that another node has, or that is done, is due."""

    def look_at_page(self, page: JobPage, now: float) -> None:
        """Copies that are paged out are due."""

    def ended(self, job: Job) -> None:
        """A job that others may have is done."""

    def is_sure(self, job: Job) -> bool:
        """Whether a job that does not wait for its copies is known to be on its hosts."""
        return True

    def wait(self, jobs: list[Job], deadline: float, told: Told) -> None:
        """Has somebody told once whether jobs are all on their hosts; if one is not to be, none is."""
        told(True)

    def when_there(self, jobs: list[Job], deadline: float, told: Told) -> None:
        """Has somebody told of jobs that go on whoever waits; who hears that they are not in time may ask again."""
        told(True)

    def ask(self, job_id: bytes, deadline: float, told: Told) -> None:
        """Has somebody told whether another node has added a job; not at all, if that is not known by a deadline."""
        told(False)

    def acknowledge_unknown(self, job_id: bytes, queue: bytes = UNKNOWN) -> bool:
        """A job that is not here is done, of a queue if that is known; whether the others will hear of it."""
        return False

    def working(self, job: Job) -> None:
        """A worker is at a job still, which another node may serve."""

    def paused(self, queue: JobQueue) -> None:
        """An operator said to all nodes what a queue refuses."""

    def starve(self, queue: JobQueue, now: float) -> None:
        """Somebody waits for a job of a queue that has none."""

    def serve(self, waiter: RemoteWaiter, jobs: list[Job], now: float) -> None:
        """Another node gets jobs; they are queued nowhere now."""

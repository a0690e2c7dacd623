"""What the parts of sharing have in common: the jobs, the other nodes, the clock, and the way out."""

from collections.abc import Callable, Iterable
from typing import Final

from vmq.jobs.machine import JobMachine
from vmq.jobs.queue import Job, JobCopies, JobQueue
from vmq.jobs.queues import JobRefusedError
from vmq.jobs.sharing.messages import AnyEntry, Queued
from vmq.jobs.sharing.outbox import MOST, JobOutbox
from vmq.jobs.sharing.peers import JobPeers

#: Seconds that each node waits longer than the one before it, so that they do not ask all at once.
_RANK: Final = 1.0


class SharingCounts:
    """What happened since the start."""

    def __init__(self) -> None:
        #: Copies that others gave this node, and that this one gave others.
        self.copied_in: int = 0
        self.copied_out: int = 0
        #: Copies made since a holder was gone.
        self.mended: int = 0
        #: Jobs that went to a node with workers.
        self.federated: int = 0
        #: Jobs that this node took over, since nobody else said that he had them.
        self.taken_over: int = 0
        #: Additions given up, since too few hosts had the job in time; that were acknowledged with fewer copies.
        self.not_copied: int = 0
        self.fewer_copies: int = 0
        #: Jobs that went when two sides of a split met that had one each with the same key.
        self.doubles: int = 0


class SharingContext:
    """Of one node.

    Args:
        machine: its jobs.
        peers: the others.
        clock: monotonic seconds.
        outbox: has messages go to nodes once what was done is safe; they may be lost.
    """

    def __init__(
        self,
        machine: JobMachine,
        peers: JobPeers,
        clock: Callable[[], float],
        outbox: JobOutbox,
    ) -> None:
        self.machine = machine
        self.peers = peers
        self.clock = clock
        self.outbox = outbox
        self.me = peers.me.number
        self.counts = SharingCounts()
        #: Some job is on too few hosts, and nobody sees to that.
        self.wants_mending = False

    def others(self, nodes: Iterable[int]) -> list[int]:
        """Those of some nodes that can be reached."""
        up = self.peers.up
        return [node for node in nodes if node in up]

    def send(self, node: int, entry: AnyEntry) -> None:
        """Says something to a node."""
        self.outbox.send([node], entry)

    def tell(self, nodes: Iterable[int], entry: AnyEntry) -> None:
        """Says something to those that can be reached."""
        self.outbox.send(self.others(nodes), entry)

    def grace(self, job: Job) -> float:
        """Seconds that this node leaves to who serves a job, beyond its retry."""
        return _RANK if job.copies is None else self.grace_of(job.copies)

    def grace_of(self, copies: JobCopies) -> float:
        """Seconds that this node leaves to who serves a job of which these may have copies."""
        nodes = copies.nodes
        return _RANK * (1 + (nodes.index(self.me) if self.me in nodes else len(nodes)))

    def retry(self, job: Job) -> float:
        """Seconds after which to look at a job that another node serves."""
        return (self.machine.retry_of(job) or 1) + self.grace(job)

    def set_away(self, job: Job, after: float, now: float) -> None:
        """Another node serves a job; this one looks at it later."""
        assert job.copies is not None
        job.copies.is_away = True
        job.copies.is_asking = job.copies.is_given = job.copies.is_put_off = False
        limit = max(job.expires, now) + self.grace(job)
        self.machine.timers.set(job, min(now + after, limit), now)
        self.machine.pager.offer(job)

    def queue(self, name: bytes, now: float) -> JobQueue | None:
        """A queue by its name, unless there are too many."""
        try:
            return self.machine.queue(name, now)
        except JobRefusedError:
            return None

    def body(self, job: Job) -> bytes | None:
        """The body of a job; None: it cannot be read."""
        if job.body is not None:
            return job.body
        try:
            return self.machine.log.body(job)
        except OSError:
            return None

    def offer(self, nodes: list[int], job: Job, wake: float, serves: bool, now: float) -> bool:
        """Gives nodes a copy of a job; False: its body cannot be read."""
        body = self.body(job)
        if body is None:
            return False
        self.outbox.copy(nodes, job, body, wake, serves, now)
        return True

    def queued_of(self, job: Job) -> Queued:
        """That a job is queued here."""
        return Queued(
            job.id,
            min(int(job.deliveries), MOST),
            min(int(job.nacks), MOST),
            min(int(job.repeats), MOST),
            job.reason,
        )


def learn(job: Job, deliveries: int, nacks: int, repeats: int) -> None:
    """What another node knows of how often a job was given, and why again: of two generations the later one counts."""
    if nacks + repeats > job.generation:
        job.deliveries, job.nacks, job.repeats = deliveries, nacks, repeats
    elif nacks + repeats == job.generation:
        job.deliveries = max(job.deliveries, deliveries)

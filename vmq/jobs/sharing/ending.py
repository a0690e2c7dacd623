"""Tombstones: a job that is done is known to be so on every node that may have it, then it is gone everywhere.

The node whose worker acknowledged it tells the others until all have heard; if that dies, another goes on. A node that
is a member no more never hears: then the tombstones stay until the job's time ends, lest it come back with the job. One
that lost its disk need not hear.

Who says that it has heard has no copy of its own under way to anybody: such a copy would come where all is forgotten,
and be queued as if it were new.
"""

from collections import deque
from typing import Final

from vmq.jobs import record
from vmq.jobs.ids import is_repeated
from vmq.jobs.queue import ACKED, DEAD, Job, JobCopies
from vmq.jobs.queues import JOB_BYTES, JobRefusedError
from vmq.jobs.rules import OFF
from vmq.jobs.sharing.context import SharingContext
from vmq.jobs.sharing.messages import Done
from vmq.jobs.sharing_port import UNKNOWN

#: Seconds until who has not heard is told again; doubled each time, up to the last.
_FIRST: Final = 1.0
_LAST: Final = 180.0
#: Seconds after which a node that was told tells the others itself.
_PATIENCE: Final = 30.0
#: Tombstones of jobs that are not known here, of one queue: more are not taken, and their jobs are given again.
_MOST_UNKNOWN: Final = 100_000


class JobEnding:
    """Collects the copies of jobs that are done."""

    def __init__(self, here: SharingContext) -> None:
        self.here = here
        self.machine = here.machine
        #: Of a node that leaves: tombstones of which somebody who can be reached may not have heard.
        self.unheard: deque[Job] | None = None

    def watch(self, is_on: bool) -> None:
        """From now on it is asked whether all have heard; or it is so no more. To be called, too, if a node came up."""
        self.unheard = None
        if is_on:
            self.unheard = deque([job for job in self.machine.jobs.values() if job.state == ACKED])

    def is_heard(self) -> bool:
        """Whether all that can be reached know of each job that was acknowledged here."""
        unheard = self.unheard
        while unheard:
            if self._is_unheard(unheard[0]):
                return False
            unheard.popleft()
        return True

    def _is_unheard(self, job: Job) -> bool:
        copies = job.copies
        if job.is_gone or copies is None or not copies.is_asking:
            return False
        up, confirmed = self.here.peers.up, copies.confirmed
        return any(each in up and each not in confirmed for each in copies.nodes)

    def ended(self, job: Job) -> None:
        """A job was acknowledged here."""
        copies = job.copies
        assert copies is not None
        copies.is_away = False
        copies.is_asking = True
        copies.tries = 0
        copies.confirmed = [self.here.me]
        self._tell(job)
        self._look(job)

    def acknowledge_unknown(self, job_id: bytes, name: bytes, lives: float, now: float) -> bool:
        """A job that is not here was acknowledged here: whoever has it hears of it. Whether that was taken down."""
        queue = self.here.queue(name, now)
        if queue is None or queue.jobs >= _MOST_UNKNOWN:
            return False
        job = self._tombstone(job_id, name, lives, 0, [self.here.me], now)
        if job is not None:
            self.ended(job)
        return job is not None

    def _tombstone(
        self, job_id: bytes, name: bytes, lives: float, wanted: int, nodes: list[int], now: float
    ) -> Job | None:
        """Remembers that a job is done which is not here."""
        machine = self.machine
        try:
            queue = machine.queue(name, now)
        except JobRefusedError:
            return None
        job = Job(job_id, queue, b"")
        job.created = machine.next_created(now)
        job.expires = now + lives
        job.ttl = max(1, int(lives))
        machine.enter(job)
        queue.jobs += 1
        machine.memory += JOB_BYTES
        if queue.rules.persistence != OFF:
            machine.log.note(record.ADDED, job)
        machine.share(job, wanted, sorted(nodes))
        machine.entomb(job)
        return job

    # Telling

    def _tell(self, job: Job) -> None:
        """Tells those that have not heard, and sets when to tell them again."""
        here, copies = self.here, job.copies
        assert copies is not None
        now = here.clock()
        up, confirmed = here.peers.up, copies.confirmed
        nodes = [each for each in self._all(copies) if each in up and each not in confirmed]
        if nodes:
            here.outbox.done(nodes, job, job.queue.name, copies.nodes, now)
            if self.unheard is not None:
                self.unheard.append(job)
        pause = min(_FIRST * (1 << min(int(copies.tries), 10)), _LAST)
        copies.tries += 1
        self.machine.timers.set(job, now + pause, now)

    def _all(self, copies: JobCopies) -> list[int]:
        """The nodes that have to hear of it: all, as long as nobody who has it is known."""
        lost = self.here.peers.lost
        nodes = copies.nodes if copies.wanted else sorted({*copies.nodes, *self.here.peers.all})
        return [each for each in nodes if each not in lost] if lost else nodes

    def look(self, job: Job, now: float) -> None:
        """A tombstone is due."""
        copies = job.copies
        assert copies is not None
        if now >= job.expires + self.here.grace(job):
            self.machine.remove(job)
        elif copies.is_asking:
            self._tell(job)
        else:
            self.ended(job)

    def look_again(self, job: Job) -> None:
        """Some node may be no more."""
        if self.here.peers.lost and job.copies is not None and job.copies.is_asking:
            self._look(job)

    def _look(self, job: Job) -> None:
        """If everybody knows everybody may forget it."""
        here, copies = self.here, job.copies
        assert copies is not None
        if not copies.wanted and not here.peers.members <= here.peers.numbers.keys():
            return
        for node in self._all(copies):
            if node not in copies.confirmed:
                return
        nodes = here.others(copies.nodes)
        if nodes:
            here.outbox.forget(nodes, job.id)
        self.machine.remove(job)

    # Hearing

    def on_done(self, sender: int, done: Done, jobs: list[bytes], now: float) -> None:
        """Another node knows that jobs are done."""
        name, nodes, to = done.queue, list(done.nodes), [sender]
        expires = now + done.lives / 1000
        for job_id in jobs:
            self._on_done(to, job_id, name, expires, nodes, now)

    def _on_done(
        self,
        to: list[int],
        job_id: bytes,
        name: bytes,
        expires: float,
        nodes: list[int],
        now: float,
    ) -> None:
        here = self.here
        job = self.machine.find(job_id)
        if job is None:
            if here.me in nodes:  # what is still on its way here must not be done again
                job = self._tombstone(job_id, name, expires - now, 1, nodes, now)
                if job is not None and job.copies is not None:
                    job.copies.confirmed = list(nodes)  # this node gave copies to nobody
                self._wait(job, now)
            here.outbox.heard(to, job_id, [])
            return
        if name not in (UNKNOWN, job.queue.name, job.queue.name.removesuffix(DEAD)):
            if job.queue.name not in (UNKNOWN, name.removesuffix(DEAD)):
                return  # whoever said so had no right to
        copies = job.copies
        if copies is None:
            copies = self.machine.share(job, 1, [here.me, *nodes])
        elif copies.nodes != nodes and copies.add(nodes):
            self.machine.note_shared(job)
        is_new = job.state != ACKED
        if is_new:
            self.machine.entomb(job)
            copies.is_away = copies.is_asking = False
            if copies.is_sent_again:
                copies.confirmed = [here.me]
            self._wait(job, now)
        copies.confirm(to[0])
        up, confirmed = here.peers.up, copies.confirmed
        left = [each for each in copies.nodes if each in up and each not in confirmed]
        if copies.is_asking or not left:
            # Who has nothing but a tombstone of it, as he who asks, knows of nobody who has the job.
            here.outbox.heard(to, job_id, copies.nodes if copies.wanted else [])
        elif is_new:  # copies may be under way to these: that they have heard comes behind them
            here.outbox.done(left, job, job.queue.name, copies.nodes, now)
        if copies.is_asking:
            self._look(job)

    def _wait(self, job: Job | None, now: float) -> None:
        if job is not None:
            after = _PATIENCE + self.here.grace(job)
            self.machine.timers.set(job, now + after, now)

    def say(self, node: int, job: Job) -> None:
        """A node takes a job for undone that is done."""
        copies = job.copies
        assert copies is not None
        self.here.outbox.done([node], job, job.queue.name, copies.nodes, self.here.clock())

    def on_heard(self, sender: int, nodes: list[int], jobs: list[bytes]) -> None:
        """A node knows that jobs are done."""
        for job_id in jobs:
            job = self.machine.find(job_id)
            if job is not None and job.state == ACKED and job.copies is not None:
                self._on_heard(sender, nodes, job, job.copies)

    def _on_heard(self, sender: int, nodes: list[int], job: Job, copies: JobCopies) -> None:
        if nodes and not copies.wanted:
            copies.wanted = 1
        known = list(copies.nodes)
        is_more = copies.nodes != nodes and copies.add(nodes)
        if is_more:
            # Who heard before it had a copy kept nothing of that: it is told again.
            copies.confirmed = [each for each in copies.confirmed if each in known]
            self.machine.note_shared(job)
        copies.confirm(sender)
        if not copies.is_asking:
            return  # another node sees to it that all hear
        if is_more:
            copies.tries = 0
            self._tell(job)
        self._look(job)

    def on_forget(self, jobs: list[bytes]) -> None:
        """All that may have them know, as far as who says so knows them: who knows of nobody asks all by himself."""
        for job_id in jobs:
            job = self.machine.find(job_id)
            if job is None or job.state != ACKED:
                continue
            if job.copies is None or job.copies.wanted or not job.copies.is_asking:
                self.machine.remove(job)

    def on_drop(self, job_id: bytes) -> None:
        """It need not be done: it was not added, unless somebody else was told that it has his key; or, of one that is
        delivered at most once, it is done.
        """
        job = self.machine.find(job_id)
        if job is None or (job.is_vouched and is_repeated(job_id)):
            return
        if is_repeated(job_id):
            self.machine.abandon(job)
        else:
            self.machine.remove(job)

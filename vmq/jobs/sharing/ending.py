"""Tombstones: a job that is done is known to be so on every node that may have it, then it is gone everywhere.

The node whose worker acknowledged it tells the others until all have heard; if that dies, another goes on. A node that
is a member no more never hears: then the tombstones stay until the job's time ends, lest it come back with the job.

Who says that it has heard has no copy of its own under way to anybody: such a copy would come where all is forgotten,
and be queued as if it were new.
"""

from typing import Final

from vmq.jobs import record
from vmq.jobs.ids import is_repeated
from vmq.jobs.queue import ACKED, DEAD, Job, JobCopies
from vmq.jobs.queues import JOB_BYTES, JobRefusedError
from vmq.jobs.rules import OFF
from vmq.jobs.sharing.context import SharingContext, milliseconds
from vmq.jobs.sharing.messages import Done, Forget, Heard
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
        machine.jobs[job_id] = job
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
        done = Done(job.id, job.queue.name, milliseconds(job.expires - now), copies.nodes)
        here.tell([each for each in self._all(copies) if each not in copies.confirmed], done)
        pause = min(_FIRST * (1 << min(int(copies.tries), 10)), _LAST)
        copies.tries += 1
        self.machine.timers.set(job, now + pause, now)

    def _all(self, copies: JobCopies) -> list[int]:
        """The nodes that have to hear of it: all, as long as nobody who has it is known."""
        return copies.nodes if copies.wanted else sorted({*copies.nodes, *self.here.peers.all})

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

    def _look(self, job: Job) -> None:
        """If everybody knows everybody may forget it."""
        here, copies = self.here, job.copies
        assert copies is not None
        if not copies.wanted and not here.peers.members <= here.peers.numbers.keys():
            return
        for node in self._all(copies):
            if node not in copies.confirmed:
                return
        here.tell(copies.nodes, Forget(job.id))
        self.machine.remove(job)

    # Hearing

    def on_done(self, sender: int, done: Done, now: float) -> None:
        """Another node knows that a job is done."""
        here = self.here
        job = self.machine.find(done.job)
        if job is None:
            if here.me in done.nodes:  # what is still on its way here must not be done again
                nodes = list(done.nodes)
                job = self._tombstone(done.job, done.queue, done.lives / 1000, 1, nodes, now)
                if job is not None and job.copies is not None:
                    job.copies.confirmed = nodes  # this node gave copies to nobody
                self._wait(job, now)
            here.send(sender, Heard(done.job, []))
            return
        if done.queue not in (UNKNOWN, job.queue.name, job.queue.name.removesuffix(DEAD)):
            if job.queue.name not in (UNKNOWN, done.queue.removesuffix(DEAD)):
                return  # whoever said so had no right to
        copies = job.copies
        if copies is None:
            copies = self.machine.share(job, 1, [here.me, *done.nodes])
        elif copies.add(list(done.nodes)):
            self.machine.note_shared(job)
        is_new = job.state != ACKED
        if is_new:
            self.machine.entomb(job)
            copies.is_away = copies.is_asking = False
            if copies.is_sent_again:
                copies.confirmed = [here.me]
            self._wait(job, now)
        copies.confirm(sender)
        left = [each for each in here.others(copies.nodes) if each not in copies.confirmed]
        if copies.is_asking or not left:
            here.send(sender, Heard(done.job, copies.nodes))
        elif is_new:  # copies may be under way to these: that they have heard comes behind them
            for node in left:
                self.say(node, job)
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
        lives = milliseconds(job.expires - self.here.clock())
        self.here.send(node, Done(job.id, job.queue.name, lives, copies.nodes))

    def on_heard(self, sender: int, heard: Heard) -> None:
        """A node knows that it is done."""
        job = self.machine.find(heard.job)
        if job is None or job.state != ACKED or job.copies is None:
            return
        copies = job.copies
        if heard.nodes and not copies.wanted:
            copies.wanted = 1
        is_more = copies.add(list(heard.nodes))
        if is_more:
            self.machine.note_shared(job)
        copies.confirm(sender)
        if not copies.is_asking:
            return  # another node sees to it that all hear
        if is_more:
            copies.tries = 0
            self._tell(job)
        self._look(job)

    def on_forget(self, job_id: bytes) -> None:
        """All that may have it know."""
        job = self.machine.find(job_id)
        if job is not None and job.state == ACKED:
            self.machine.remove(job)

    def on_drop(self, job_id: bytes) -> None:
        """It need not be done, unless somebody else was told that it has his key."""
        job = self.machine.find(job_id)
        if job is not None and not (job.is_vouched and is_repeated(job_id)):
            self.machine.remove(job)

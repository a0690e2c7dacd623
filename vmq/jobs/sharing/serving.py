"""Who serves a job: of the nodes that have a copy one has it queued, or its worker has it."""

from typing import Final

from mypy_extensions import i64

from vmq.jobs import record
from vmq.jobs.queue import ACKED, ACTIVE, DEAD, QUEUED, WAITING, Job, JobCopies, JobPage
from vmq.jobs.sharing.context import SharingContext, learn
from vmq.jobs.sharing.ending import JobEnding
from vmq.jobs.sharing.messages import Busy, Holders, Lacks, Queued, WillQueue
from vmq.jobs.sharing.outbox import milliseconds

#: Seconds that the others have to say that they serve a job.
ANSWER: Final = 1.0
#: Seconds in which many copies that are due together are paged out, to be asked for at once.
_PUT_OFF: Final = 5.0
#: After a start: seconds over which questions for single jobs are spread, and between two for pages of them.
_SPREAD: Final = 2.0
_PAGE_PAUSE: Final = 0.01


class JobServing:
    """Decides with the other nodes who serves a job."""

    def __init__(self, here: SharingContext, ending: JobEnding) -> None:
        self.here = here
        self.machine = here.machine
        self.ending = ending
        #: Jobs that are queued together: the others are told of all at once.
        self.gathered: list[Job] | None = None

    def queued(self, job: Job) -> None:
        """A job is queued here: the others need not see to it."""
        copies = job.copies
        assert copies is not None
        if self.gathered is None or job.reason:
            self.here.tell(copies.nodes, self.here.queued_of(job))
        else:
            self.gathered.append(job)

    def look(self, job: Job, now: float) -> None:
        """Nothing was heard for so long of a job that another node serves: it is asked for, then served here."""
        copies = job.copies
        assert copies is not None
        if job.state == WAITING:
            self.machine.timers.set(job, max(job.expires, now + self.here.retry(job)), now)
        elif not copies.is_put_off and self.machine.pager.awaits_others(job):
            copies.is_put_off = True
            self.machine.timers.set(job, now + _PUT_OFF, now)
        elif not copies.is_asking and self.here.others(copies.nodes):
            copies.is_asking = True
            self._ask(copies.nodes, job, now)
        else:
            self._take_over(job, now)

    def ask_all(self, now: float) -> None:
        """All members can be reached: who serves what was here at the start is asked now, not when it is due."""
        unasked, self.machine.unasked = self.machine.unasked, []
        timers = self.machine.timers
        pages: i64 = 0
        for number, timed in enumerate(unasked):
            early = now + _SPREAD * (number % 100) / 100
            if isinstance(timed, JobPage):
                is_unasked = timed.seen is None
                early = now + _PAGE_PAUSE * int(pages)
                pages += 1
            else:
                assert isinstance(timed, Job)
                copies = timed.copies
                is_unasked = copies is not None and copies.is_away and not copies.is_asking
            if is_unasked and timed.after is not None and timed.due > early:
                timers.set(timed, early, now)

    def _ask(self, nodes: list[int], job: Job, now: float) -> None:
        copies = job.copies
        assert copies is not None
        self.here.tell(nodes, WillQueue(job.id, copies.nodes))
        self.machine.timers.set(job, now + ANSWER, now)

    def _take_over(self, job: Job, now: float) -> None:
        """Nobody else has it."""
        machine, copies = self.machine, job.copies
        assert copies is not None
        self.here.counts.taken_over += 1
        copies.is_away = copies.is_asking = False
        if now >= job.expires:
            machine.expire(job, now)
        elif job.is_delayed:
            machine.timers.set(job, max(now, job.expires - int(job.ttl)), now)
        else:  # also if its queue is paused: it comes from nowhere else
            job.repeats += 1
            if not machine.is_worn(job, now):
                machine.put(job, now, True)
                if job.serial:
                    machine.log.note(record.RETURNED, job)

    def on_will_queue(self, sender: int, asked: WillQueue, now: float) -> None:
        """Another node is about to queue it."""
        machine = self.machine
        job = machine.jobs.get(asked.job)
        if job is None and machine.pager.count:
            job = machine.pager.peek(asked.job)
            if job is not None and job.copies is not None and sender in job.copies.nodes:
                if job.state == QUEUED:
                    self.here.send(sender, self.here.queued_of(job))
                    return  # it stays paged out
                if not job.copies.is_asking and is_known(job.copies, sender, asked.nodes):
                    return
            job = machine.find(asked.job)
        if job is None:
            self.here.send(sender, Lacks(asked.job))
            return
        copies = job.copies
        self._has_it(sender, job)
        if job.state == ACKED:
            self.ending.say(sender, job)
        elif job.state == QUEUED:
            self.here.send(sender, self.here.queued_of(job))
        elif job.state == WAITING:
            self._say_busy(sender, job, 1.0)
        elif copies is None or not copies.is_away or copies.is_given:
            self._say_busy(sender, job, job.due - now)
        elif copies.is_asking and self.here.me > sender:
            self._say_busy(sender, job, 2 * ANSWER)
        else:
            if copies.is_asking:  # both ask: what the other hears of that may come too late
                self.here.set_away(job, 2 * ANSWER + self.here.grace(job), now)
            if not is_known(copies, sender, asked.nodes):
                self.here.send(sender, Holders(job.id, copies.nodes))

    def on_holders(self, told: Holders, now: float) -> None:
        """More nodes may have it: they are asked, too, before it is queued here."""
        job = self.machine.find(told.job)
        if job is None or job.copies is None or job.state == ACKED:
            return
        copies = job.copies
        new = [each for each in told.nodes if each not in copies.nodes]
        if new:
            self.machine.share(job, copies.wanted, new)
            if copies.is_away and copies.is_asking:
                self._ask(new, job, now)

    def _say_busy(self, node: int, job: Job, wake: float) -> None:
        told = self.here.queued_of(job)
        counters = told.deliveries, told.nacks, told.repeats
        self.here.send(node, Busy(job.id, milliseconds(wake), *counters))

    def on_busy(self, sender: int, busy: Busy, now: float) -> None:
        """Another node sees to it."""
        job = self.machine.find(busy.job)
        if job is None or job.copies is None or job.state not in (ACTIVE, QUEUED):
            return
        self._has_it(sender, job)
        if job.state == QUEUED and busy.nacks + busy.repeats >= job.generation:
            self.machine.set_aside(job)
        elif not job.copies.is_away:
            return
        learn(job, busy.deliveries, busy.nacks, busy.repeats)
        self.here.set_away(job, busy.wake / 1000 + self.here.grace(job), now)

    def on_queued(self, sender: int, queued: Queued, now: float) -> None:
        """Another node has it queued."""
        job = self.machine.find(queued.job)
        if job is None:
            self.here.send(sender, Lacks(queued.job))
            return
        self._has_it(sender, job)
        if job.state == ACKED:
            self.ending.say(sender, job)
            return
        copies = job.copies
        if copies is None or job.state == WAITING:
            return
        generation = queued.nacks + queued.repeats
        if job.state == QUEUED:
            if (generation, sender) < (job.generation, self.here.me):
                self.here.send(sender, self.here.queued_of(job))
                return
            self.machine.set_aside(job)
        elif not copies.is_away and not job.is_delayed and generation <= job.generation:
            self._say_busy(sender, job, job.due - now)  # a worker has it
            return
        elif self.machine.holders:
            self.machine.let_go(job)
        learn(job, queued.deliveries, queued.nacks, queued.repeats)
        if job.is_delayed:  # its time has come, also for the next life of this node
            job.is_delayed = False
            if job.serial:
                self.machine.log.note(record.RETURNED, job)
                self.machine.log.note(record.SET_ASIDE, job)
        self._match_reason(job, queued.reason, now)
        self.here.set_away(job, self.here.retry(job), now)

    def _has_it(self, node: int, job: Job) -> None:
        """A node has a job of which this one may not have known so."""
        copies = job.copies
        if copies is not None and node not in copies.nodes:
            self.machine.share(job, copies.wanted, [node])
            copies.confirm(node)
            if job.state == ACKED:
                copies.confirmed.remove(node)

    def _match_reason(self, job: Job, reason: str, now: float) -> None:
        """It died elsewhere, or came back to life."""
        if bool(reason) == job.queue.is_dead:
            return
        machine = self.machine
        name = job.queue.name + DEAD if reason else job.queue.name[: -len(DEAD)]
        queue = machine.queues.get(name)
        queue = machine.make_queue(name, now) if queue is None else queue
        rules = queue.rules
        job.queue.jobs -= 1
        job.queue = queue
        queue.jobs += 1
        job.reason = reason
        job.expires = now + (rules.dead_ttl if reason else int(job.ttl))
        if job.serial:
            machine.log.note(record.BURIED if reason else record.REVIVED, job)

    def on_working(self, job_id: bytes, now: float) -> None:
        """A worker said on another node that it is at it still."""
        job = self.machine.find(job_id)
        if job is not None and job.state == ACTIVE and job.copies is not None:
            after = float(self.machine.retry_of(job))
            if job.copies.is_away:
                self.here.set_away(job, after + self.here.grace(job), now)
            elif after:
                self.machine.timers.set(job, min(now + after, job.expires), now)

    def resume(self, job: Job, nodes: set[int]) -> None:
        """Tells nodes that came up of a job that they may have, too; if nobody is known to have it, each may."""
        copies = job.copies
        if copies is None:
            return
        for node in copies.nodes if copies.wanted else sorted(nodes):
            if node not in nodes:
                continue
            if job.state == QUEUED:
                self.here.send(node, self.here.queued_of(job))
            elif job.state == ACKED and copies.is_asking and node not in copies.confirmed:
                self.ending.say(node, job)


def is_known(copies: JobCopies, sender: int, nodes: list[int]) -> bool:
    """Whether a node that names these knows of all that may have a job."""
    return bool(nodes) and {sender, *nodes}.issuperset(copies.nodes)

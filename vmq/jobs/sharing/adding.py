"""Copies: a job that is added is on its hosts before whoever added it is answered, and then queued.

What does not answer is asked again, and another host with it. When the time is over the job is dropped, where it is
known to be; it may still be delivered, as whoever added it was told that it might not.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from vmq.jobs import record
from vmq.jobs.ids import is_repeated
from vmq.jobs.paging.columns import split_ids
from vmq.jobs.queue import ACKED, ACTIVE, DEAD, QUEUED, WAITING, Job, JobCopies
from vmq.jobs.queues import JOB_BYTES, key_name, window_of
from vmq.jobs.rules import OFF
from vmq.jobs.sharing.context import SharingContext, learn
from vmq.jobs.sharing.messages import Copies, Drop, Lacks
from vmq.jobs.sharing.vouching import FIRST_RETRY, AskedCopies, JobVouching
from vmq.jobs.sharing_port import Told

#: Seconds that a job lives whose time may end half a second sooner or later.
_LONG: Final = 60

#: Seconds by which the clock of another node may be ahead: a job was not added later than that.
_AHEAD: Final = 86_400


class PendingCopies(AskedCopies):
    """A job that is not on all its hosts yet."""

    def __init__(self, job: Job, needed: int, now: float) -> None:
        super().__init__(now)
        self.put_off(now)
        self.job = job
        #: So many hosts have to have it before it is acknowledged.
        self.needed = needed
        #: When who adds it gives up; never: nobody waits for that.
        self.deadline = float("inf")
        #: Others are asked for its key first.
        self.is_claiming = False


class CopyTerms:
    """What copies of one message have in common; `lives` and `wake` in seconds."""

    def __init__(self, copies: Copies, me: int, sender: int) -> None:
        self.sender = [sender]
        self.queue: bytes = copies.queue
        self.lives: float = copies.lives / 1000
        self.wake: float = copies.wake / 1000
        self.ttl: i64 = copies.ttl
        self.retry: i64 = copies.retry
        self.delay: i64 = copies.delay
        self.priority: i64 = copies.priority
        self.deliveries: i64 = copies.deliveries
        self.nacks: i64 = copies.nacks
        self.repeats: i64 = copies.repeats
        self.reason: str = copies.reason
        self.wanted: int = copies.wanted
        self.is_delayed: bool = copies.is_delayed
        self.serves: bool = copies.serves
        #: The nodes that may have them: with this one, and with the sender as well.
        self.nodes = sorted({me, *copies.nodes})
        self.all_nodes = sorted({sender, *self.nodes})
        #: Into one of the broker's own queues.
        self.is_own = self.queue.rpartition(b"\0")[2][:1] == b"$"


class CopyAdder:
    """Has jobs copied, and takes copies."""

    def __init__(self, here: SharingContext) -> None:
        self.here = here
        self.machine = here.machine
        self.peers = here.peers
        self.vouching = JobVouching(here)
        self.pending: dict[bytes, PendingCopies] = {}
        #: Asks other nodes for the key of a job (`vmq.jobs.sharing.keys`).
        self.claim: Callable[[PendingCopies, float], None] | None = None
        #: Told of a copy with a key.
        self.keyed: Callable[[tuple[bytes, bytes], Job], None] | None = None
        #: A copy came into one of the broker's own queues.
        self.has_own = False
        #: Keys that others were let have, without asking these nodes: copies of theirs come too late for that time.
        self.late: dict[tuple[bytes, bytes], tuple[float, set[int]]] = {}

    # Out

    def begin(self, job: Job, wanted: int, now: float) -> None:
        """A new job is to be on several hosts."""
        pending = self.pending[job.id] = PendingCopies(job, wanted, now)
        if self.claim is not None and job.key and self.machine.sharing.asks_for(job.key):
            pending.is_claiming = True
            self.claim(pending, now)
        else:
            self.go_on(pending, now)

    def go_on(self, pending: PendingCopies, now: float) -> None:
        """Nothing is known against a job: it is copied."""
        pending.is_claiming = False
        here, job, wanted = self.here, pending.job, pending.needed
        if wanted <= 1:
            self._settle(pending, now)
            return
        pending.needed = needed = min(wanted, self.peers.reachable_hosts())
        if needed < wanted:
            here.counts.fewer_copies += 1
        nodes = self.peers.choose(needed - 1, [here.me])
        copies = self.machine.share(job, wanted, [here.me, *nodes])
        copies.confirm(here.me)
        pending.next_try = now + FIRST_RETRY  # asking for its key may have taken longer
        self._offer(job, nodes, now)
        self._look_at(pending, now)

    def be_second(self, pending: PendingCopies, first: bytes) -> None:
        """Another job has the key: who adds this one is told that one's id."""
        job = pending.job
        self.pending.pop(job.id, None)
        if job.is_gone or job.state != WAITING:
            return
        job.twin, key = first, job.key
        self.machine.counts.deduplicated += 1
        self.machine.abandon(job)
        known = self.machine.find(first)
        if known is not None and known.key == key and not known.holds_key:
            # Its copy came while this one had the key here.
            self._keep_key(known, self.here.clock())
        pending.tell(True)

    def wait(self, job: Job, deadline: float, told: Told, adds: bool = True) -> None:
        """Has somebody told when a job is on its hosts, or is not to be until a deadline: at once, if it is known.

        `adds`: he adds it, so that it is given up when he and all others who do have given up.
        """
        pending = self.pending.get(job.id)
        if pending is None:
            if job.state == WAITING:
                told(False)
            else:
                self.vouching.wait(job, deadline, told, self.here.clock())
            return
        is_first = pending.deadline == float("inf")
        pending.told.append((deadline, told))
        if adds:
            pending.deadline = deadline if is_first else max(pending.deadline, deadline)

    def _offer(self, job: Job, nodes: list[int], now: float) -> None:
        """Gives nodes a copy."""
        here = self.here
        wake = job.expires - int(job.ttl) - now if job.is_delayed else 0.0
        if nodes and here.offer(here.others(nodes), job, wake, False, now):
            here.counts.copied_out += len(nodes)

    def on_stored(self, sender: int, jobs: list[bytes], now: float) -> None:
        """A node has these."""
        self.vouching.on_stored(sender, jobs, now)
        for job_id in jobs:
            job = self.machine.find(job_id)
            if job is not None and job.copies is not None and job.state != ACKED:
                self._on_stored(sender, job_id, job, job.copies, now)

    def _on_stored(
        self, sender: int, job_id: bytes, job: Job, copies: JobCopies, now: float
    ) -> None:
        if sender not in copies.nodes:
            copies.add([sender])
        copies.confirm(sender)
        pending = self.pending.get(job_id)
        if pending is not None:
            self._look_at(pending, now)
        elif copies.is_away and not copies.is_asking:
            self.here.set_away(job, self.here.retry(job), now)  # it was handed over, and came
        else:
            self.machine.pager.offer(job)

    def _look_at(self, pending: PendingCopies, now: float) -> None:
        job = pending.job
        assert job.copies is not None
        confirmed = job.copies.confirmed
        if len(confirmed) >= pending.needed and self.peers.spread(confirmed) >= pending.needed:
            self._settle(pending, now)

    def _settle(self, pending: PendingCopies, now: float) -> None:
        del self.pending[pending.job.id]
        self.machine.settle(pending.job, now)
        pending.tell(True)

    def on_lacks(self, sender: int, job_id: bytes, now: float) -> None:
        """A node has it not, or cannot take it: then another one."""
        job = self.machine.find(job_id)
        if job is None or job.copies is None or job.state == ACKED:
            return
        if sender in job.copies.confirmed:
            job.copies.confirmed.remove(sender)
        pending = self.pending.get(job_id)
        if pending is not None:
            self._offer(job, self._one_more(job), now)

    def tick(self, now: float) -> None:
        """Asks again, or gives up."""
        self.vouching.tick(now)
        for pending in list(self.pending.values()):
            job = pending.job
            if job.is_gone or job.state != WAITING:
                self._end(pending)
                continue
            if now >= pending.deadline and not job.is_vouched:
                self._give_up(pending)
                continue
            pending.give_up(now)
            if now >= pending.next_try and not pending.is_claiming:
                pending.put_off(now)
                self._try_again(pending, now)

    def _end(self, pending: PendingCopies) -> None:
        """It is queued all the same, or done already: so it was added."""
        job = pending.job
        del self.pending[job.id]
        if job.copies is not None and self.peers.spread(job.copies.confirmed) < pending.needed:
            self.here.wants_mending = True
        pending.tell(True)

    def _try_again(self, pending: PendingCopies, now: float) -> None:
        job = pending.job
        copies = job.copies
        assert copies is not None
        copies.is_sent_again = True
        self._one_more(job)
        self._offer(job, [each for each in copies.nodes if each not in copies.confirmed], now)

    def _one_more(self, job: Job) -> list[int]:
        """Another node that may have a job from now on, if there is one."""
        assert job.copies is not None
        more = self.peers.choose(1, job.copies.nodes)
        if more:
            self.machine.share(job, job.copies.wanted, more)
        return more

    def _give_up(self, pending: PendingCopies) -> None:
        self.here.counts.not_copied += 1
        self.abandon(pending.job)

    def abandon(self, job: Job) -> None:
        """A job that waits for its copies is dropped; who waits for it is told."""
        pending = self.pending.pop(job.id, None)
        copies = job.copies
        if job.is_gone or job.state != WAITING:
            return
        if copies is not None:
            self.here.tell(copies.nodes, Drop(job.id))
        self.machine.abandon(job)
        if pending is not None:
            pending.tell(False)

    # In

    def on_copies(self, sender: int, copies: Copies, now: float) -> list[Job]:
        """Copies come; those of them that are done already, as the sender is to be told."""
        terms = CopyTerms(copies, self.here.me, sender)
        keys = copies.keys
        done: list[Job] = []
        for at, job_id in enumerate(split_ids(copies.jobs)):
            key = keys[at] if keys else b""
            if self._is_paged_out(job_id, terms):
                self.here.outbox.stored(terms.sender, job_id)
                continue
            job = self.machine.find(job_id, copies.created[at])
            if job is None and key and self._is_late(sender, key_name(copies.queue, key)):
                self.here.send(sender, Lacks(job_id))
                continue
            if job is not None and job.state == ACKED:
                done.append(job)
                continue
            if job is None:
                job = self._new(terms, job_id, copies.created[at], key, copies.bodies[at], now)
                if job is None:
                    self.here.send(sender, Lacks(job_id))
                    continue
            elif is_repeated(job_id):
                self._came_again(job, terms, now)
            self.here.outbox.stored(terms.sender, job_id)
        return done

    def _is_late(self, sender: int, name: tuple[bytes, bytes]) -> bool:
        """Whether another job was let have a key by somebody who does not reach the sender any more."""
        late = self.late.get(name)
        return late is not None and sender in late[1]

    def _is_paged_out(self, job_id: bytes, terms: "CopyTerms") -> bool:
        """Whether a copy comes again that is paged out, and has nothing new: it stays so."""
        machine = self.machine
        if terms.serves or not machine.pager.count or job_id in machine.jobs:
            return False
        seen = machine.pager.peek(job_id)
        return (
            seen is not None
            and seen.copies is not None
            and set(seen.copies.nodes).issuperset(terms.all_nodes)
        )

    def _came_again(self, job: Job, terms: "CopyTerms", now: float) -> None:
        """A copy of a job comes that is here."""
        self.machine.share(job, terms.wanted, terms.all_nodes)
        if terms.serves and job.state == ACTIVE and job.copies is not None and job.copies.is_away:
            self.take_over(job, terms, now)
        self.machine.pager.offer(job)

    def take_over(self, job: Job, terms: "CopyTerms", now: float) -> None:
        """Who served a job hands it over."""
        learn(job, int(terms.deliveries), int(terms.nacks), int(terms.repeats))
        self._serve(job, terms.wake, now)

    def _serve(self, job: Job, wake: float, now: float) -> None:
        if wake > 0:
            if job.copies is not None:
                job.copies.is_away = False
            self.machine.timers.set(job, min(now + wake, job.expires), now)
        else:
            job.is_delayed = False
            self.machine.put(job, now, True)

    def _new(
        self, terms: "CopyTerms", job_id: bytes, created: int, key: bytes, body: bytes, now: float
    ) -> Job | None:
        """A job that was not here; None: there is no room. Whether its queue is paused is for who adds it."""
        machine, here = self.machine, self.here
        queue = here.queue(terms.queue, now)
        if queue is None or machine.memory >= machine.max_memory:
            return None
        job = Job(job_id, queue, body)
        job.created = min(created, machine.wall + int((now + _AHEAD) * 1e9))
        job.expires = self._aligned(terms, job.created, now)
        job.ttl, job.retry, job.delay = terms.ttl, terms.retry, terms.delay
        job.priority = terms.priority
        job.deliveries, job.nacks, job.repeats = terms.deliveries, terms.nacks, terms.repeats
        job.key, job.reason = key, terms.reason
        job.is_delayed = terms.is_delayed
        machine.enter(job)
        queue.jobs += 1
        queue.used = now
        machine.memory += JOB_BYTES + job.size
        here.counts.copied_in += 1
        if terms.is_own:
            self.has_own = True
        if queue.rules.persistence != OFF:
            machine.log.note(record.ADDED, job)
        if key and key[:1] != b"\0":
            self._keep_key(job, now)
        may_repeat = is_repeated(job_id)
        if may_repeat:
            copies = machine.share(job, terms.wanted, terms.nodes)
            copies.confirmed = list(terms.nodes)
        if terms.serves:
            self._serve(job, terms.wake, now)
            if not may_repeat and job.serial and job.state == QUEUED:
                machine.log.note(record.RETURNED, job)
        else:
            wake = terms.wake
            here.set_away(job, wake + here.grace(job) if wake else here.retry(job), now)
        return job

    def _aligned(self, terms: "CopyTerms", created: int, now: float) -> float:
        """When the time of a copy ends: whole seconds from what follows from when it was added, if it lives long.

        So copies are alike, on disk and where they are paged out, though each was under way for another while.
        """
        expires = now + terms.lives
        expected = self.machine.pager.expiry(created, terms.delay, terms.ttl)
        return expected + round(expires - expected) if terms.ttl >= _LONG else expires

    def _keep_key(self, job: Job, now: float) -> None:
        """The key of a copy keeps others out here, too."""
        machine = self.machine
        added = min(int(job.created - machine.wall) / 1e9, now)
        until = added + window_of(job.key, job.queue.rules)
        name = key_name(job.queue.name.removesuffix(DEAD), job.key)
        if until <= now:
            return
        if self.keyed is not None:
            self.keyed(name, job)
        if machine.find_key(name, now) is None:
            machine.remember_key(job, until, now)

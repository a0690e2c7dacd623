"""Copies are made anew where a node is gone that had one, and a node that stops hands over what it serves."""

from typing import Final

from vmq.jobs.ids import is_repeated
from vmq.jobs.machine import was_given
from vmq.jobs.queue import ACKED, ACTIVE, QUEUED, WAITING, Job, JobCopies, JobPage
from vmq.jobs.rules import OFF
from vmq.jobs.sharing.context import SharingContext
from vmq.jobs.sharing.ending import JobEnding
from vmq.jobs.sharing.federation import Federation
from vmq.jobs.sharing.walk import JobWalk

#: Jobs that are looked at in one tick, and bytes of bodies that are sent then: some 8 MiB a second.
_LOOKED_AT: Final = 2000
_BYTES: Final = 800_000
#: Seconds until a node that refused a copy is given it again, and between two looks for what is to be handed over.
_LATER: Final = 5.0
_AGAIN: Final = 1.0
#: What a job counts besides its body; a page that is looked at, and one that is taken apart.
_OVERHEAD: Final = 200
_PAGE_LOOK: Final = 2000
_PAGE_WORK: Final = 200_000


class CopyMender:
    """Looks for jobs that are on too few hosts."""

    def __init__(self, here: SharingContext, federation: Federation, ending: JobEnding) -> None:
        self.here = here
        self.ending = ending
        self.machine = here.machine
        self.peers = here.peers
        self.federation = federation
        self.walk = JobWalk(here.machine)
        #: Pages that are to be looked at; what of them is on too few hosts is taken in for that.
        self.pages: list[JobPage] = []
        #: Jobs of which copies were sent, and not all came.
        self.unconfirmed: dict[bytes, None] = {}
        self.handing = JobWalk(here.machine)
        #: This node gives away what it serves, also what comes to be so.
        self.is_handing = False
        #: It leaves its cluster: what no other host can take goes to another node of its own.
        self.is_for_good = False
        #: Jobs that were handed over and have not arrived, as far as is known; when all is looked through again.
        self.under_way: dict[bytes, None] = {}
        #: Those that were not: nobody takes them just now, or they cannot be read.
        self.kept: dict[bytes, None] = {}
        self.hand_again = 0.0

    # Copies made anew

    def restart(self) -> None:
        """Somebody went, or came: each job is looked at once."""
        self.walk.begin()
        self.pages = list(self.machine.pager.pages)

    def is_over(self) -> bool:
        """Whether each job was looked at, and no copy that was sent then is unconfirmed."""
        return self.walk.is_over() and not self.unconfirmed and not self.pages

    def restart_later(self, now: float) -> None:
        """A node has not what it was to have; it may refuse to."""
        self.walk.begin_later(now + _LATER)

    def lost_memory(self, node: int) -> None:
        """A node has ended and begun again: what it had in memory only is gone."""
        for job in self.machine.jobs.values():
            copies = job.copies
            if copies is not None and node in copies.nodes and job.queue.rules.persistence == OFF:
                if node in copies.confirmed and job.state != ACKED:
                    copies.confirmed.remove(node)

    def tick(self, now: float) -> None:
        """Looks at some."""
        if self.is_handing and self.handing.is_over() and now >= self.hand_again:
            self.hand_over(now)
        if self.here.wants_mending:
            self.here.wants_mending = False
            self.walk.begin_later(now + _LATER)
        if self.unconfirmed and self.walk.is_over() and not self.pages:
            self.unconfirmed.clear()
            self.walk.begin_later(now + _LATER)
        left = _BYTES
        if self.is_handing and self.handing.is_over() and self._receivers([]):
            self._page_in()
        for _ in range(_LOOKED_AT):
            job = self.handing.next(now) if left > 0 else None
            if job is None:
                break
            left -= self._hand(job, now)
        for _ in range(_LOOKED_AT):
            job = self.walk.next(now) if left > 0 else None
            if job is None:
                break
            left -= self._mend(job, now)
        for _ in range(_LOOKED_AT):
            if not self.pages or left <= 0:
                break
            left -= self._mend_page(self.pages.pop(), now)

    def _mend_page(self, page: JobPage, now: float) -> int:
        """Has the jobs of a page in memory if they are on too few hosts, and other nodes get them."""
        pager = self.machine.pager
        if page not in pager.pages:
            return 0
        if not any(each is not None and self._is_lacking(each) for each in pager.shares_of(page)):
            return _PAGE_LOOK
        sent = _PAGE_WORK
        for job in pager.scatter(page):
            sent += self._mend(job, now)
        return sent

    def _is_lacking(self, copies: JobCopies) -> bool:
        """Whether this node is to see to it that others get a job which these have."""
        alive = self._alive(copies)
        return (
            self._is_first(alive)
            and self.peers.spread(alive) < copies.wanted
            and bool(self.peers.choose(1, alive))
        )

    def _alive(self, copies: JobCopies) -> list[int]:
        return [each for each in copies.nodes if not self.peers.is_gone(each)]

    def _is_first(self, alive: list[int]) -> bool:
        """Whether none of those that can be reached is to see to it before this node."""
        me = self.here.me
        return next((each for each in alive if each == me or each in self.peers.up), me) == me

    def _mend(self, job: Job, now: float) -> int:
        """Has other nodes get a job that is on too few hosts; the bytes that are sent."""
        copies, here = job.copies, self.here
        if job.state == ACKED:
            self.ending.look_again(job)
        if copies is None or job.state in (ACKED, WAITING) or not copies.wanted:
            return 0
        alive = self._alive(copies)
        if len(alive) < len(copies.nodes):
            self._give_up(job, copies, alive)
        if not self._is_first(alive):
            return 0
        targets = [
            each
            for each in alive
            if each != here.me and each not in copies.confirmed and each in self.peers.up
        ]
        copies.is_sent_again = copies.is_sent_again or bool(targets)
        lacking = copies.wanted - self.peers.spread(alive)
        if lacking > 0:
            more = self.peers.choose(lacking, alive)
            if more:
                self.machine.share(job, copies.wanted, more)
                targets += more
        if not targets:
            return 0
        wake = job.expires - int(job.ttl) - now if job.is_delayed else 0.0
        if not here.offer(here.others(targets), job, wake, False, now):
            return 0
        here.counts.mended += len(targets)
        self.unconfirmed[job.id] = None
        return len(targets) * (int(job.size) + _OVERHEAD)

    def _give_up(self, job: Job, copies: JobCopies, alive: list[int]) -> None:
        """Nodes that are gone confirm nothing any more: the job is not kept in memory for that."""
        for node in copies.nodes:
            if node not in alive:
                copies.confirm(node)
        self.machine.pager.offer(job)

    # Handing over

    def hand_over(self, now: float) -> None:
        """This node stops: what it serves goes to others, as fast as they take it."""
        self.handing.begin()
        self.hand_again = now + _AGAIN

    def _page_in(self) -> None:
        """Jobs that are paged out are handed over, too, as far as there is memory."""
        machine = self.machine
        page = machine.pager.first_queued()
        if page is not None and machine.memory < machine.max_memory:
            machine.pager.scatter(page)
            self.handing.begin()

    def _receivers(self, has: list[int]) -> list[int]:
        """Nodes that may get a job which these have."""
        peers = self.peers
        near = [each for each in has if each in peers.up and not peers.all[each].is_leaving]
        found = near or peers.choose(1, [self.here.me])
        return peers.taking() if not found and self.is_for_good else found

    def is_handed_over(self) -> bool:
        """Whether they have all of it, and know what was done here."""
        return self._has_arrived() and not self.kept and not self.machine.pager.queued

    def is_in_vain(self) -> bool:
        """Whether nobody will take what is left: no member is to come that would."""
        return self._has_arrived() and not self.peers.awaits_takers(self.is_for_good)

    def _has_arrived(self) -> bool:
        """Whether each job was looked at, and they have what was handed over, and know what was done here."""
        for left in (self.under_way, self.kept):
            for job_id in [each for each in left if each not in self.machine.jobs]:
                del left[job_id]
        return self.handing.is_over() and not self.under_way and self.ending.is_heard()

    def _hand(self, job: Job, now: float) -> int:
        """Gives a job to another node, if this one serves it; the bytes that are sent."""
        copies = job.copies
        self.under_way.pop(job.id, None)
        self.kept.pop(job.id, None)
        if copies is not None and copies.is_given:
            self.under_way[job.id] = None
        if job.state in (ACKED, WAITING) or (copies is not None and copies.is_away):
            return 0
        if job.state == ACTIVE and was_given(job):
            return 0  # a worker has it, for good or ill
        job_id = job.id
        self.kept[job_id] = None
        targets = self._receivers([] if copies is None else copies.nodes)
        if not targets:
            return 0
        wake = 0.0 if job.state == QUEUED else max(0.001, job.due - now)
        if job.state == QUEUED:
            self.machine.set_aside(job)
        elif self.machine.holders:
            self.machine.let_go(job)
        was_queued = wake <= 0
        if not self.federation.give(job, targets[0], now, wake):
            if was_queued:
                self.machine.put_back(job, now)
            return 0
        del self.kept[job_id]
        if is_repeated(job_id):
            self.under_way[job_id] = None
        return int(job.size) + _OVERHEAD

    def on_stored(self, jobs: list[bytes]) -> None:
        """Another node has these."""
        if self.under_way or self.unconfirmed:
            for job_id in jobs:
                self.under_way.pop(job_id, None)
                self.unconfirmed.pop(job_id, None)

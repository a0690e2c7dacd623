"""Keys over nodes: before a job with a key is copied or queued, all nodes in reach are asked whether they know of one.

Of two that ask at once the one with the lower id goes on, the other asks again. When two sides of a split meet, of two
jobs with one key the one that nobody took goes. For that it is enough that one of them hears of the other's job.
"""

from typing import Any, Final

from vmq.jobs.queue import ACKED, ACTIVE, QUEUED, WAITING, Job, JobPage
from vmq.jobs.queues import key_name
from vmq.jobs.sharing.adding import CopyAdder, PendingCopies
from vmq.jobs.sharing.context import SharingContext
from vmq.jobs.sharing.messages import Claim, Claimed, KeyHeld

#: Seconds until who was not the first asks again, and until those that did not answer are asked again.
_AGAIN: Final = 0.1
_PATIENCE: Final = 2.0
#: Seconds after a start in which no key is taken as long as some member was not heard: it may know of one.
_MEETING: Final = 3.0
#: Seconds that a job may take to be on its hosts before who asks for its key is told that there is none.
_COPYING: Final = 30.0
#: Seconds in which a copy of a node that was not asked for a key may still be under way, and keys of that time.
_LATE: Final = 5.0
_MOST: Final = 10_000
#: Keys that a node that came up is told of in one tick.
_TOLD: Final = 1000


class KeyClaim:
    """A job whose key is asked for."""

    def __init__(self, pending: PendingCopies) -> None:
        self.pending = pending
        self.job = job = pending.job
        self.name = key_name(job.queue.name, job.key)
        #: Nodes that have not answered, and until when they may.
        self.left: set[int] = set()
        self.until = 0.0
        #: Another one goes first.
        self.is_second = False
        #: How often all were asked.
        self.turn = 0
        #: A copy of another one that came here meanwhile, and whether it is asked whether that is on its hosts.
        self.copy: Job | None = None
        self.is_waiting = False


class KeyClaims:
    """Keys of jobs that are being added, and of those that there are."""

    def __init__(self, here: SharingContext, adder: CopyAdder) -> None:
        self.here = here
        self.machine = here.machine
        self.adder = adder
        self.claims: dict[tuple[bytes, bytes], KeyClaim] = {}
        self.meets_until = here.clock() + _MEETING
        #: Keys that nodes which came up are to hear of, and these nodes.
        self.untold: list[tuple[bytes, bytes]] = []
        self.newcomers: set[int] = set()
        #: The same of what is paged out.
        self.untold_pages: list[JobPage] = []
        #: Jobs here that go once it is sure that another one, which stays, is on its hosts.
        self.yielding: dict[tuple[bytes, bytes], tuple[bytes, bytes]] = {}
        adder.claim, adder.keyed = self.begin, self.on_copy

    def receive(self, sender: int, entry: Claim | Claimed | KeyHeld, now: float) -> None:
        """Takes a message of another node."""
        if isinstance(entry, Claim):
            self.on_claim(sender, entry, now)
        elif isinstance(entry, Claimed):
            self.on_claimed(sender, entry, now)
        else:
            self.on_held(sender, entry, now)

    # Asking

    def begin(self, pending: PendingCopies, now: float) -> None:
        """Asks for the key of a new job."""
        claim = KeyClaim(pending)
        self.claims[claim.name] = claim
        self._ask(claim, now)

    def _ask(self, claim: KeyClaim, now: float) -> None:
        claim.turn = (claim.turn + 1) % 0x10000
        claim.is_second = self.is_meeting(now)
        claim.left = set() if claim.is_second else set(self.here.peers.up)
        self._send(claim, now)
        self._look_at(claim, now)

    def is_meeting(self, now: float) -> bool:
        """Whether this node has just begun, and some member may know of a key that was not heard yet."""
        return now < self.meets_until and not self.here.peers.are_all_up()

    def _send(self, claim: KeyClaim, now: float) -> None:
        job = claim.job
        claim.until = now + _PATIENCE
        unreached = self.here.peers.unreached()
        self.here.tell(
            list(claim.left), Claim(job.id, job.queue.name, job.key, unreached, claim.turn)
        )

    def _look_at(self, claim: KeyClaim, now: float) -> None:
        """All have answered, this node as well: it goes on, or asks again."""
        if claim.left or claim.is_waiting:
            return
        if claim.is_second:
            claim.until = now + _AGAIN
            return
        copy = claim.copy
        if copy is not None and not is_dropped(copy):
            self._wait_for(claim, copy, now)
            return
        self._forget(claim)
        self.adder.go_on(claim.pending, now)

    def _wait_for(self, claim: KeyClaim, copy: Job, now: float) -> None:
        """The key is that of a job whose node had asked this one before it asked itself, and may have died since."""

        def told(is_there: bool) -> None:
            claim.is_waiting = False
            if self.claims.get(claim.name) is not claim:
                return
            if is_there:
                self._forget(claim)
                self.adder.be_second(claim.pending, copy.id)
            else:
                claim.is_second = True
                claim.until = self.here.clock() + _AGAIN

        claim.is_waiting = True
        if copy.state == ACKED or self.adder.vouching.is_sure(copy):
            told(True)
        else:
            self.adder.wait(copy, now + _COPYING, told, adds=False)

    def on_copy(self, name: tuple[bytes, bytes], job: Job) -> None:
        """A copy came, perhaps of a job with a key that is asked for here."""
        claim = self.claims.get(name)
        if claim is not None and (claim.copy is None or is_dropped(claim.copy)):
            claim.copy = job

    def _forget(self, claim: KeyClaim) -> None:
        if self.claims.get(claim.name) is claim:
            del self.claims[claim.name]

    def on_claimed(self, sender: int, claimed: Claimed, now: float) -> None:
        """Another node has looked for a key."""
        name = key_name(claimed.queue, claimed.key)
        if claimed.is_added and self.yielding.get(name) == (claimed.job, claimed.known):
            del self.yielding[name]
            self._yield(name, claimed.job, now)
        claim = self.claims.get(name)
        if claim is None or claim.job.id != claimed.job:
            return
        if claimed.is_added:
            self._forget(claim)
            self.adder.be_second(claim.pending, claimed.known)
            return
        if claimed.turn != claim.turn:
            return
        claim.left.discard(sender)
        claim.is_second = claim.is_second or bool(claimed.known)
        self._look_at(claim, now)

    def on_down(self, node: int, now: float) -> None:
        """A node cannot be reached: nothing of it is under way any more.

        Who waited for its answer asks the others anew: it may have added a job with that key meanwhile, and a copy
        have come to one that had answered already.
        """
        for _, nodes in self.adder.late.values():
            nodes.discard(node)
        for claim in list(self.claims.values()):
            if node in claim.left:
                self._ask(claim, now)

    def tick(self, now: float) -> None:
        """Asks again, also who did not answer while it can be reached, and tells newcomers of some keys."""
        for claim in list(self.claims.values()):
            if claim.job.is_gone or claim.job.state != WAITING:
                self._forget(claim)
            elif now >= claim.until and claim.is_second:
                self._ask(claim, now)
            elif now >= claim.until:
                self._send(claim, now)
        self._forget_late(now)
        some, self.untold = self.untold[:_TOLD], self.untold[_TOLD:]
        for name in some:
            known = self.machine.keys.get(name)
            if known is None:
                continue
            job = known.job
            if job.state == WAITING and not job.is_gone:
                self.untold.append(name)  # newcomers may not have been asked for it
            elif may_count(job):
                self.here.tell(list(self.newcomers), held_by(job, name))
        if len(some) < _TOLD and self.untold_pages:
            self._tell_of_page(self.untold_pages.pop())
        if not self.untold and not self.untold_pages:
            self.newcomers.clear()

    def _tell_of_page(self, page: JobPage) -> None:
        """Newcomers hear of the keys of jobs that are paged out."""
        if page not in self.machine.pager.keyed:
            return
        now = self.here.clock()
        for job in self.machine.pager.read(page):
            if job.key and may_count(job) and self.machine.pager.key_until(job) > now:
                held = held_by(job, (job.queue.name, job.key))
                self.here.tell(list(self.newcomers), held)

    # Answering

    def on_claim(self, sender: int, claim: Claim, now: float) -> None:
        """Another node is about to add a job with a key."""
        name = key_name(claim.queue, claim.key)
        own = self.claims.get(name)
        known = self.machine.find_key(name, now)
        if own is not None:
            is_first = own.job.id < claim.job
            own.is_second = own.is_second or not is_first
            self._answer(sender, claim, own.job.id if is_first else b"", False)
        elif known is None or known.job.id == claim.job:
            self._pass_over(name, claim, now)
            self._answer(sender, claim, b"", False)
        else:
            self._answer_for(sender, claim, known.job, now)

    def _answer_for(self, sender: int, claim: Claim, job: Job, now: float) -> None:
        """The key of a claim is that of a job here: it stands for the other once it is sure to be on its hosts."""
        if job.is_gone or (job.state != WAITING and self.adder.vouching.is_sure(job)):
            job.is_vouched = True
            self._answer(sender, claim, job.id, True)
            return
        is_added = job.state != WAITING  # it is not dropped if too few hosts have it for now

        def told(is_there: bool) -> None:
            self._answer(sender, claim, job.id if is_there or is_added else b"", is_there)

        self.adder.wait(job, now + _COPYING, told, adds=False)

    def _pass_over(self, name: tuple[bytes, bytes], claim: Claim, now: float) -> None:
        """Who adds does not reach some nodes of which this one still gets what they sent before, as one that died."""
        nodes = self.here.peers.up.intersection(claim.unreached)
        if nodes:
            late = self.adder.late
            late.pop(name, None)
            bounded(late)[name] = (now + _LATE, nodes)

    def _forget_late(self, now: float) -> None:
        late = self.adder.late
        while late and late[first := next(iter(late))][0] <= now:
            del late[first]

    def _answer(self, node: int, claim: Claim, known: bytes, is_added: bool) -> None:
        self.here.send(
            node, Claimed(claim.job, claim.queue, claim.key, known, is_added, claim.turn)
        )

    # Meeting

    def on_newcomer(self, node: int) -> None:
        """A node came up: it hears of the keys of this one."""
        self.newcomers.add(node)
        self.untold = [name for name in self.machine.keys if name[0]]
        self.untold_pages = list(self.machine.pager.keyed)

    def on_held(self, sender: int, held: KeyHeld, now: float) -> None:
        """Another node has a key: of two jobs that goes which nobody took, else that on fewer hosts.

        If it is that node's, that hears of this one: what was said of it may be lost, or was said before it was taken.
        """
        name = key_name(held.queue, held.key)
        if name not in self.machine.keys and self.machine.pager.key_id(name) == held.job:
            return
        known = self.machine.find_key(name, now)
        if known is None or known.job.id == held.job:
            return
        job = known.job
        own = held_by(job, name)
        if rank(own) < rank(held):
            if may_count(job):
                self.here.send(sender, own)
            return
        if is_untaken(job):
            bounded(self.yielding)[name] = job.id, held.job
            self.here.send(sender, Claim(job.id, *name, self.here.peers.unreached()))

    def _yield(self, name: tuple[bytes, bytes], job_id: bytes, now: float) -> None:
        """A job goes, since another one with its key is on its hosts and stays."""
        known = self.machine.find_key(name, now)
        if known is not None and known.job.id == job_id and is_untaken(known.job):
            self.here.counts.doubles += 1
            self.machine.release(known.job)
            self.machine.end(known.job)


def is_untaken(job: Job) -> bool:
    """Whether this node serves a job, and no worker was given it."""
    is_queued = job.state == QUEUED or (job.state == ACTIVE and job.is_delayed)
    is_served = job.copies is None or not job.copies.is_away
    return is_queued and is_served and not job.is_gone and not job.deliveries


def bounded(keys: dict[tuple[bytes, bytes], Any]) -> dict[tuple[bytes, bytes], Any]:
    """Makes room for one more key, the oldest of many goes."""
    if len(keys) >= _MOST:
        del keys[next(iter(keys))]
    return keys


def may_count(job: Job) -> bool:
    """Whether a job stands against others with its key: not one that is gone and that nobody is known to have taken."""
    is_done = job.is_gone or job.state == ACKED
    return job.state != WAITING and (job.deliveries > 0 or not is_done)


def is_dropped(job: Job) -> bool:
    """Whether a copy is gone though nobody is known to have done its job: that was not added after all."""
    return job.is_gone and job.state != ACKED


def wanted_of(job: Job) -> int:
    """On how many hosts a job is to be."""
    return 1 if job.copies is None else job.copies.wanted


def held_by(job: Job, name: tuple[bytes, bytes]) -> KeyHeld:
    """That a job has a key."""
    return KeyHeld(job.id, *name, job.deliveries > 0, wanted_of(job))


def rank(held: KeyHeld) -> tuple[bool, int, bytes]:
    """Of two jobs with one key the lower one stays."""
    return not held.is_taken, -held.wanted, held.job

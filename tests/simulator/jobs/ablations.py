"""Rules switched off, one at a time: what breaks without each is what it is for."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from tests.simulator.jobs.run import KINDS
from tests.simulator.switched_off import switched_off
from vmq.jobs.ids import is_repeated
from vmq.jobs.mqtt.arriving import JobArrival
from vmq.jobs.queue import QUEUED, Job, JobCopies
from vmq.jobs.sharing.adding import CopyAdder, PendingCopies
from vmq.jobs.sharing.ending import JobEnding
from vmq.jobs.sharing.federation import Federation
from vmq.jobs.sharing.keys import KeyClaims
from vmq.jobs.sharing.mending import CopyMender
from vmq.jobs.sharing.messages import Queued
from vmq.jobs.sharing.peers import JobPeers
from vmq.jobs.sharing.serving import JobServing
from vmq.jobs.sharing.vouching import JobVouching


@dataclass(frozen=True)
class Ablation:
    """A rule that can be switched off."""

    meaning: str
    patches: tuple[tuple[Any, str, Callable[..., Any]], ...]
    #: Kinds of faults, and seeds with which they show what it is for.
    shown_by: tuple[tuple[str, ...], tuple[int, ...]]
    #: Nobody works as long as there are faults; what a node sent before it died still arrives.
    piles: bool = False
    is_late: bool = False
    #: So many publish at QoS 2, and go from node to node.
    publishers: int = 0

    def off(self) -> AbstractContextManager[None]:
        """Without the rule."""
        return switched_off(self.patches, [owner for owner, _, _ in self.patches])


def _at_once(self: CopyAdder, pending: PendingCopies, now: float) -> None:
    pending.needed = 1
    _look_at(self, pending, now)


_look_at = CopyAdder._look_at


def _nothing(*_: object) -> None:
    """What the rule sees to is left undone."""


def _any_node(self: JobPeers, count: int, has: Iterable[int]) -> list[int]:
    candidates = sorted(each for each in self.up if each not in set(has))
    self.shuffle(candidates)
    return candidates[:count]


def _number_of(self: JobPeers, numbers: Iterable[int]) -> int:
    return len(set(numbers))


def _forget(self: JobEnding, job: Job) -> None:
    self.machine.remove(job)


def _no_question(self: JobServing, job: Job, now: float) -> None:
    self._take_over(job, now)


def _both(self: JobServing, sender: int, queued: Queued, now: float) -> None:
    """Of two that have a job queued both go on."""
    job = self.machine.jobs.get(queued.job)
    if job is None or job.state != QUEUED:
        _on_queued(self, sender, queued, now)


_on_queued = JobServing.on_queued


def _kept(self: Federation, job: Job, node: int, now: float, wake: float = 0.0) -> bool:
    """What goes elsewhere stays here, too, until it is heard to have come."""
    if is_repeated(job.id):
        return _give(self, job, node, now, wake)
    assert self.here.offer([node], job, wake, True, now)
    self.machine.timers.set(job, now + 1.0, now)
    job.is_delayed = True
    return True


_give = Federation.give


def _without_all(self: JobEnding, job: Job) -> None:
    """One other that knows is enough."""
    copies = job.copies
    assert copies is not None
    if len(copies.confirmed) > 1 or len(copies.nodes) == 1:
        copies.confirmed = list(self._all(copies))
    _look(self, job)


_look = JobEnding._look


def _forgets_for_all(
    self: JobEnding, sender: int, nodes: list[int], job: Job, copies: JobCopies
) -> None:
    """Who is heard by one takes that for the answer of all."""
    copies.is_asking = True
    _on_heard(self, sender, nodes, job, copies)


_on_heard = JobEnding._on_heard


def _no_matter(self: JobEnding, job: Job, now: float) -> None:
    """Who was told that a job is done leaves it to who told."""
    if job.copies is not None and job.copies.is_asking:
        _ending_look(self, job, now)
    else:
        self.machine.timers.set(job, now + 1000, now)


_ending_look = JobEnding.look


def _no_claim(self: KeyClaims, pending: PendingCopies, now: float) -> None:
    self.adder.go_on(pending, now)


def _is_left_out(self: KeyClaims, node: int, now: float) -> None:
    """Who does not answer any more is waited for no more, and nobody is asked anew."""
    for claim in list(self.claims.values()):
        claim.left.discard(node)
        self._look_at(claim, now)


def _but_pages(self: CopyMender) -> bool:
    return self.handing.is_over() and not self.under_way


ABLATIONS: dict[str, Ablation] = {
    "copies": Ablation(
        "a job is on its hosts before it is acknowledged",
        ((CopyAdder, "_look_at", _at_once),),
        (("wipe",), (82,)),
    ),
    "hosts": Ablation(
        "copies are on different hosts",
        ((JobPeers, "choose", _any_node), (JobPeers, "spread", _number_of)),
        (("wipe",), (1,)),
        piles=True,
    ),
    "tombstones": Ablation(
        "a job that is done is known to be so until all that may have it know",
        ((JobEnding, "ended", _forget),),
        ((), (0,)),
    ),
    "questions": Ablation(
        "who has a copy asks before it queues it", ((JobServing, "look", _no_question),), ((), (0,))
    ),
    "mending": Ablation(
        "copies are made anew where a holder is gone",
        ((CopyMender, "_mend", lambda *_: 0),),
        (("wipe",), (0,)),
        piles=True,
    ),
    "one": Ablation(
        "of two that have a job queued one goes on",
        ((JobServing, "on_queued", _both),),
        (("split",), (1,)),
        piles=True,
    ),
    "moved": Ablation(
        "a job of class at most once is gone here before it goes to another node",
        ((Federation, "give", _kept),),
        ((), (0,)),
    ),
    "all": Ablation(
        "a tombstone goes once all that may have the job know",
        ((JobEnding, "_look", _without_all),),
        (("split", "kill"), (0,)),
    ),
    "hand over": Ablation(
        "who stops hands over what it serves",
        ((CopyMender, "_hand", lambda *_: 0),),
        (("stop",), (0,)),
        piles=True,
    ),
    "keys": Ablation(
        "all nodes are asked for a key before a job has it",
        ((KeyClaims, "begin", _no_claim),),
        ((), (0,)),
    ),
    "anew": Ablation(
        "where a node dies before it answers who asks for a key, all are asked anew",
        ((KeyClaims, "on_down", _is_left_out),),
        (("remove",), (6,)),
        is_late=True,
    ),
    "copied": Ablation(
        "who asks for a key itself heeds the copy that it gets of another job with it",
        ((KeyClaims, "on_copy", _nothing),),
        (KINDS, (701_020_374,)),
    ),
    "vouching": Ablation(
        "a known key's job is on its hosts before anybody is told of it",
        ((JobVouching, "is_sure", lambda *_: True),),
        (("kill", "soon"), (226,)),
        piles=True,
        is_late=True,
    ),
    "keys of copies": Ablation(
        "who has a copy of a job keeps others out by its key",
        ((CopyAdder, "_keep_key", _nothing),),
        (("remove",), (4,)),
    ),
    "pages": Ablation(
        "who leaves hands over what is paged out, too",
        ((CopyMender, "_page_in", _nothing), (CopyMender, "is_handed_over", _but_pages)),
        (("leave",), (1,)),
        piles=True,
    ),
    "collector": Ablation(
        "who asks all whether they know that a job is done forgets it, and nobody else does before",
        ((JobEnding, "_on_heard", _forgets_for_all),),
        (("kill", "stop", "pause", "wipe"), (82,)),
    ),
    "lost": Ablation(
        "a tombstone waits for no node that lost its disk",
        ((JobPeers, "lose_disks", lambda *_: False),),
        (("wipe",), (0,)),
    ),
    "arrivals": Ablation(
        "who hears anew of a publisher's job has it on its hosts before that is answered",
        ((JobArrival, "find", _nothing),),
        (("kill", "slow"), (27,)),
        publishers=6,
    ),
    "heirs": Ablation(
        "who was told that a job is done tells the others if it hears no more",
        ((JobEnding, "look", _no_matter),),
        (("kill", "split"), (0,)),
    ),
}

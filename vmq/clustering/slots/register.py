"""What a slot knows of one client: a register with one writer, the owner to which the client is attached.

Two registers never mix: the one attached in the later lineage wins whole, then the later attachment, then the later
record. Only subscriptions merge by filter: of two the later one is there, and an end ends what it knew of and what an
earlier connection asked for, wherever that is read late: so a fork brings no ended one back, and none is lost whose
client went from the side of a split where it ended it to the other, whatever clocks and lineages say.
"""

from collections.abc import Sequence
from copy import copy
from typing import Final

from vmq.clustering.messages.fronts import SessionLimits, SessionStep
from vmq.clustering.slots.words import (
    BOOT_BITS,
    NO_LINEAGE,
    PUBACK,
    PUBCOMP,
    STORE_BITS,
    Address,
    Dot,
    Incarnation,
    Lineage,
    store_of,
)
from vmq.mqtt.special import JOB_ROW
from vmq.mqtt.topics import matches, split_shared
from vmq_cluster.clocks import NodeClock, Runs, intersect, subtract

#: Lineage, version, whether the subscription was there already, and which request it was (0: none that is known).
BornAt = tuple[Lineage, int, bool, int]
#: The end of a subscription: what is known to have been over (`ClientRegister.past`), and where it had begun.
OverAt = tuple[tuple[int, ...], tuple[BornAt, ...]]
NEVER_OVER: Final[OverAt] = ((), ())
#: As much is remembered that was over before a client's connection came, and beginnings of a subscription.
PAST: Final = 8
#: As many ended subscriptions of a client are remembered while there may be forks: it can end any number.
ENDED: Final = 1000
_REQUEST: Final = (1 << 63) - 1


def request_of(connection: int, packet: int) -> int:
    """What names a request of a client."""
    return (connection << 16 | packet) & _REQUEST


def is_of(connection: int, request: int) -> bool:
    """Whether a request was made on a connection."""
    return request_of(connection, 0) == request >> 16 << 16


def is_by(over: int, lineage: Lineage) -> bool:
    """Whether an owner wrote a lineage in a life that was over (below 0; see `ClientRegister.past`), or before it."""
    return 0 < lineage[1] <= -over and store_of(lineage[1]) == store_of(-over)


def _last_lives(clock: NodeClock) -> dict[int, Incarnation]:
    """By store, the last of its lives in a clock."""
    return {origin >> BOOT_BITS: origin for origin in sorted(clock.runs)}


def _or_nothing(runs: Runs) -> Runs:
    """A life of which nothing was seen (numbers begin at 1) is in a clock still: of the lives before it all was."""
    return runs or [0, 1]


def begins_at(context: NodeClock) -> NodeClock:
    """What a slot has seen, short: of each store what its last life published; all of earlier lives it has seen.

    What a share group chose a queue for is not in it.
    """
    return NodeClock(
        {
            origin: list(context.runs[origin])
            for store, origin in _last_lives(context).items()
            if not store >> STORE_BITS
        }
    )


def seen_since(context: NodeClock, begin: NodeClock) -> NodeClock:
    """What a slot has seen since then."""
    last = _last_lives(begin)
    return NodeClock(
        {
            origin: runs
            for origin, runs in context.beyond(begin)
            if origin >= last.get(origin >> BOOT_BITS, 0)
        }
    )


def begins_in_both(one: NodeClock, other: NodeClock) -> NodeClock:
    """What both of two slots had seen: of what only one had, the client got it of the other."""
    there = _last_lives(other)
    found = NodeClock()
    for origin, runs in one.runs.items():
        theirs = there.get(origin >> BOOT_BITS)
        if theirs == origin:
            found.runs[origin] = _or_nothing(intersect(runs, other.runs[origin]))
        elif theirs is not None and theirs < origin:
            found.runs[theirs] = other.runs[theirs]
        elif theirs is not None:
            found.runs[origin] = runs
    return found


def begins_without(begin: NodeClock, dots: NodeClock) -> NodeClock:
    """A begin without those dots which the client gets all the same, from another side."""
    return NodeClock(
        {
            origin: _or_nothing(subtract(runs, dots.runs.get(origin, [])))
            for origin, runs in begin.runs.items()
        }
    )


class SentMessage:
    """A packet id under way to the client."""

    __slots__ = ("dot", "is_received", "order", "qos")

    def __init__(self, dot: Dot, is_received: bool, qos: int, order: int = 0) -> None:
        self.dot = dot
        #: Its place among those under way.
        self.order = order
        #: PUBREC came: the message is done, and PUBREL follows.
        self.is_received = is_received
        self.qos = qos

    def awaits(self, kind: int) -> bool:
        """Whether PUBACK, PUBREC or PUBCOMP (`kind`) answers what the client was sent last under the packet id."""
        if kind == PUBCOMP:
            return self.is_received
        return self.qos == (1 if kind == PUBACK else 2)


class ReceivedId:
    """A packet id that came from the client at QoS 2: where its message goes, by which dots, and its digest."""

    __slots__ = ("addresses", "digest", "front")

    def __init__(
        self, addresses: tuple[Address, ...], digest: bytes, front: Incarnation = 0
    ) -> None:
        self.addresses = addresses
        self.digest = digest
        #: To whom it came, and who has given it to everybody who is in no slot; 0: a node that had the session, or they
        #: have it whoever that was.
        self.front = front

    def is_job(self) -> bool:
        """Whether it is one, and goes to nobody else."""
        return any(each[2].startswith(JOB_ROW) for each in self.addresses)

    @staticmethod
    def of(step: SessionStep, known: "ReceivedId | None", front: Incarnation) -> "ReceivedId":
        """What is known of a packet id once a PUBLISH came to a front; `known`: it came before."""
        if known is None:
            return ReceivedId(tuple(step.addresses), step.digest, front)
        if not step.is_settled:
            return ReceivedId(known.addresses, step.digest, front)
        names = {name for _, _, name in step.addresses}
        left = [each for each in known.addresses if each[2] not in names]
        return ReceivedId((*left, *step.addresses), step.digest, known.front)


class AnyFlow:
    """What flows to a client, and is in no window yet; see `vmq.clustering.slots.flow`. Here nothing does."""

    def __init__(self) -> None:
        #: Something does.
        self.is_open = False

    def spread(self) -> None:
        """Has it be in queue and window."""


class ClientRegister:
    """One client's register."""

    def __init__(self) -> None:
        self.flow: AnyFlow | None = None
        #: The owner that attached the client last.
        self.lineage: Lineage = NO_LINEAGE
        #: The stamp of that attachment, and how many records came since.
        self.attached_at: int = 0
        self.records: int = 0
        #: The stamp at which the session began; 0: there is none.
        self.session: int = 0
        #: Its last connection has begun it.
        self.is_first = False
        #: The stamp at which the last session was ended; one that began before it is over, in whatever fork.
        self.ended: int = 0
        #: The last connection's number among the client's, and its own.
        self.rank: int = 0
        self.connection: int = 0
        #: What is older, in whatever fork: of the client's connections before it, and what owners wrote in lives (below
        #: 0: their incarnations) that were known to be over when it came. Empty while there are no forks.
        self.past: tuple[int, ...] = ()
        #: These, itself, and the session's last one when that was ended: a fork may have begun unnoticed.
        self.ended_past: tuple[int, ...] = ()
        self.last_packet: int = 0
        #: Whose session it is; "": nobody's.
        self.user = ""
        #: The stamp at which its last connection ended; 0: it did not, or nobody needs to know.
        self.left: int = 0
        #: What a plugin has decided for it.
        self.limits: SessionLimits | None = None
        #: Packet ids under way, without those of what flows.
        self.single_window: dict[int, SentMessage] = {}
        self.received: dict[int, ReceivedId] = {}
        #: Filter -> stamp, granted QoS (-1: unsubscribed).
        self.subscriptions: dict[str, tuple[int, int]] = {}
        #: Of those that a plugin has put in place of what the client asked for: what that was.
        self.asked: dict[str, str] = {}
        #: In which versions of which lineages each of those that are there began, in several if forks did not know of
        #: each other, and in which the client has asked for it again since. Who includes where it began knows it; who
        #: includes all of them may end it.
        self.born: dict[str, tuple[BornAt, ...]] = {}
        #: How each of the others ended.
        self.over: dict[str, OverAt] = {}
        #: Of those that are there again, where they began before they ended: an owner may read that late.
        self.before: dict[str, tuple[BornAt, ...]] = {}
        #: Of those that began while there may have been forks, what the slot had seen by then (`begins_at`): of the
        #: rest it knows whether it was for the client, whatever a fork has for the same filter.
        self.since: dict[str, NodeClock] = {}
        #: Dots of the slot's context that no merged state had seen for this client; see `vmq.clustering.slots.merge`.
        self.missed = NodeClock()
        #: Dots that the client has and the context lacks: it got them of an owner whose state was newer.
        self.ahead = NodeClock()

    @property
    def window(self) -> dict[int, SentMessage]:
        """Packet ids under way to the client."""
        if self.flow is not None and self.flow.is_open:
            self.flow.spread()
        return self.single_window

    @window.setter
    def window(self, window: dict[int, SentMessage]) -> None:
        self.single_window = window

    def age(self) -> tuple[Lineage, int, int]:
        return self.lineage, self.attached_at, self.records

    def connect(
        self, rank: int, connection: int, has_forks: bool, dead: Sequence[Incarnation] = ()
    ) -> None:
        """The client has another connection; `has_forks`: somebody may still serve the one before.

        `dead`: lives of stores that are over.
        """
        over = [-each for each in dead]
        known = [each for each in (*self.past, self.connection) if each and each not in over]
        self.past = (*known, *over)[-PAST:] if has_forks else ()
        self.rank, self.connection, self.is_first = rank, connection, False

    def begin(
        self,
        topic_filter: str,
        lineage: Lineage,
        version: int,
        request: int,
        context: NodeClock | None,
    ) -> None:
        """A subscription begins, or is asked for again; `context`: what the slot has seen, if there may be forks."""
        if not self.asks_for(topic_filter):
            self.since.pop(topic_filter, None)
            if context is not None:
                self.since[topic_filter] = begins_at(context)
        first = tuple([each for each in self.born.get(topic_filter, ()) if not each[2]])
        self.born[topic_filter] = (*first, (lineage, version, bool(first), request))
        _, ended = self.over.pop(topic_filter, NEVER_OVER)
        if ended:
            self.before[topic_filter] = ended[-PAST:]

    def end(self, topic_filter: str) -> None:
        """It ends, wherever it was asked for."""
        _, begun = self.over.get(topic_filter, NEVER_OVER)
        begun = self.born.pop(topic_filter, begun)
        self.asked.pop(topic_filter, None)
        self.since.pop(topic_filter, None)
        self.over[topic_filter] = self.past, (*self.before.pop(topic_filter, ()), *begun)

    def forget_end(self) -> str | None:
        """Returns the oldest end that is forgotten, since there are too many; None: there are not.

        A fork that has the subscription brings it back only if its client had asked there, and nobody here knew.
        """
        if len(self.over) <= ENDED:
            return None
        oldest = next(iter(self.over))
        del self.over[oldest], self.subscriptions[oldest]
        return oldest

    def forget_ends(self) -> list[str]:
        """There are no forks: of which subscriptions this changes the records."""
        changed = [*self.over, *self.before, *self.since]
        for each in self.over:
            del self.subscriptions[each]
        self.over, self.before, self.since = {}, {}, {}
        return changed

    def asks_for(self, topic_filter: str) -> bool:
        """Whether what matches a filter waits for the client."""
        return topic_filter in self.born and self.subscriptions[topic_filter][1] > 0

    def granted(self) -> dict[str, int]:
        """The subscriptions that there are, with the QoS granted."""
        return {each: qos for each, (_, qos) in self.subscriptions.items() if qos >= 0}

    def wants(self, topic: str) -> int:
        """The QoS at which the client is to get a message on a topic, but for share groups; -1: not at all."""
        if not self.session:
            return -1
        found = [
            qos
            for each, (_, qos) in self.subscriptions.items()
            if qos >= 0 and not split_shared(each)[0] and matches(each, topic)
        ]
        return max(found, default=-1)

    def copy(self) -> "ClientRegister":
        other = copy(self)
        other.flow = None
        other.window = {
            packet: SentMessage(sent.dot, sent.is_received, sent.qos, sent.order)
            for packet, sent in self.window.items()
        }
        other.received = dict(self.received)
        other.subscriptions = dict(self.subscriptions)
        other.asked = dict(self.asked)
        other.born = dict(self.born)
        other.over = dict(self.over)
        other.before = dict(self.before)
        other.since = dict(self.since)
        other.missed = self.missed.copy()
        other.ahead = self.ahead.copy()
        return other

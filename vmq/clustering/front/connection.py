"""A client's connection, as its node sees it: what outlives each owner that serves it.

Its **table** has the packet ids that are in use on it, with their messages; `unanswered` the client's packets that no
owner has answered; `held` its acknowledgements while no owner serves it: the table stands still meanwhile. An owner
writes down a PUBACK when it has more to write, so what the client has acknowledged is `done` until that is safe: the
next owner is told, else the client would get it again.
"""

from collections import deque
from collections.abc import Callable, Iterable

from mypy_extensions import i64, mypyc_attr

from vmq.clustering.messages.fronts import MAX_DONE, SessionLimits, SessionStep
from vmq.clustering.origin.outbox import OVERHEAD, Publication
from vmq.clustering.slots.flow import PACKETS, SendingRun
from vmq.clustering.slots.register import SentMessage
from vmq.clustering.slots.words import (
    DONE,
    PUBACK,
    PUBLISHED,
    PUBREC,
    PUBREL,
    ROWS,
    Address,
    Dot,
    Lineage,
    digest_of,
)


class Unanswered:
    """A packet of the client that its owner has to answer. Of a PUBLISH at QoS 2 the message waits here, too."""

    __slots__ = ("addresses", "is_own", "payload", "retain", "size", "step", "then", "topic")

    def __init__(
        self,
        step: SessionStep,
        topic: bytes = b"",
        payload: bytes = b"",
        retain: bool = False,
        is_own: bool = False,
        then: "Callable[[bool], None] | None" = None,
    ) -> None:
        self.step = step
        self.topic = topic
        self.payload = payload
        self.retain = retain
        #: It is not for the client itself, which is a bridge.
        self.is_own = is_own
        #: Follows when it is answered, or (False) is not to be: the message went its way before. None: it goes now.
        self.then = then
        #: What the message counts until an owner knows it; 0: it is none.
        self.size: i64 = len(topic) + len(payload) + OVERHEAD if topic else 0
        #: What the owner answered.
        self.addresses: list[Address] | None = None


class KnownRow:
    """A row that its publisher's session knows.

    Args:
        address: by which it is there once, whoever hands it in.
        message: what it is of.
        client: who published it, behind the scope of its mountpoint.
        packet: the packet id.
        is_new: nobody else was asked to hand it in.
    """

    def __init__(
        self, address: Address, message: Publication, client: str, packet: int, is_new: bool
    ) -> None:
        _, (origin, self.number), self.name = address
        self.is_done = origin == DONE
        self.message = message
        self.client = client
        self.packet = packet
        self.is_new = is_new

    def done(self) -> SessionStep:
        """What its publisher's session is told once it is done."""
        digest = digest_of(self.message.topic, self.message.payloads[0])
        rows = [(ROWS, (DONE, self.number), self.name)]
        return SessionStep(PUBLISHED, self.packet, rows, digest, True, is_settled=True)


@mypyc_attr(acyclic=True)
class AcknowledgedRun:
    """Messages of one origin that a client has, one place after the other."""

    def __init__(self, origin: int, place: int) -> None:
        self.origin = origin
        self.place = place
        self.count: i64 = 1


class FrontConnection:
    """One connection."""

    def __init__(
        self,
        number: int,
        client: str,
        slot: int,
        is_clean: bool,
        user: str | None = None,
        limits: SessionLimits | None = None,
    ) -> None:
        self.number = number
        self.client = client
        self.slot = slot
        self.is_clean = is_clean
        self.user = user
        self.limits = limits
        #: Its number among the client's connections; 0: no owner has given it one.
        self.rank = 0
        self.attached: tuple[Lineage, int] | None = None
        self._table: dict[int, SentMessage] = {}
        #: What flows to it at QoS 1: runs that are not all acknowledged, which come behind the table; and
        #: acknowledgements of these for the owner, which gets them as one: so many from a packet id on.
        self._flow: deque[SendingRun] = deque()
        self._flowing: i64 = 0
        #: Of what was offered here and is for nobody else, what it has acknowledged: slot, first dot, how many.
        self.had: list[tuple[int, Dot, int]] = []
        self.first_done = 0
        self.flow_done: i64 = 0
        self.unanswered: list[Unanswered] = []
        self.held: dict[int, SessionStep] = {}
        #: Oldest first, and how many; the owner counts how many of them are safe.
        self._done: deque[AcknowledgedRun] = deque()
        self._done_count: i64 = 0
        self._safe_done = 0
        self._is_here = False
        #: Packet ids of QoS 2 messages that came on it and are not released; and of others that its owner has.
        self._fresh: set[int] = set()
        self._stale: set[int] = set()
        #: The client has released none of these.
        self._is_whole = False
        #: Of those that came, messages that are no repetitions.
        self._new: set[int] = set()
        #: For the owner, at the end of the turn.
        self.steps: list[SessionStep] = []
        #: PUBRELs among what is unanswered.
        self._releasing: set[int] = set()
        #: Publishes in order, by QoS, and those of them that are safe: acknowledgements leave in order.
        self._order: dict[int, deque[int]] = {1: deque(), 2: deque()}
        self._begun: dict[int, set[int]] = {1: set(), 2: set()}
        self._safe: dict[int, set[int]] = {1: set(), 2: set()}

    @property
    def table(self) -> dict[int, SentMessage]:
        """Packet ids that are in use on it, with their messages."""
        if self._flow:
            flow, self._flow, self._flowing = self._flow, deque(), 0
            for run in flow:
                for each in run.each():
                    self._table[each.packet] = each.sent
        return self._table

    def sends(self, run: SendingRun) -> None:
        """Its owner has a run for it."""
        self._flow.append(run)
        self._flowing += run.count

    def is_next_done(self, packet: int) -> bool:
        """PUBACK of what flows, in its turn; False: it is another one."""
        if not self._flow or self.attached is None:
            return False
        run = self._flow[0]
        if packet != run.packet + run.acknowledged:
            return False
        if not self._is_here:
            self.is_done(run.run.origin, run.run.place + run.at + run.acknowledged)
        if self.flow_done and packet != (self.first_done + self.flow_done - 1) % PACKETS + 1:
            self.tell_done()
        if self.flow_done == 0:
            self.first_done = packet
        run.acknowledged += 1
        self._flowing -= 1
        self.flow_done += 1
        if run.acknowledged == run.count:
            self._flow.popleft()
            if run.offered[1]:
                self.had.append((run.slot, run.offered, run.count))
        return True

    def tell_done(self) -> None:
        """Acknowledgements of what flows are packets like others, as one."""
        if self.flow_done:
            self.steps.append(SessionStep(PUBACK, self.first_done, count=self.flow_done))
            self.flow_done = 0

    def may_be_late(self, window: int) -> bool:
        """Whether nobody waits for what there is for an owner elsewhere: PUBACKs, while half the window is free."""
        if self._is_here or self.attached is None:
            return False
        known: i64 = len(self._table) + self._flowing + self.flow_done
        for each in self.steps:
            if each.kind != PUBACK:
                return False
            known += each.count
        return 2 * known <= window

    def began(self, qos: int, packet: int) -> None:
        """A PUBLISH came."""
        if packet not in self._begun[qos]:
            self._begun[qos].add(packet)
            self._order[qos].append(packet)

    def is_safe(self, qos: int, packet: int) -> list[int]:
        """A PUBLISH is safe; returns the packet ids that may be acknowledged now."""
        order, begun, safe = self._order[qos], self._begun[qos], self._safe[qos]
        if packet in begun:  # else it came twice, and the first was safe
            safe.add(packet)
        found = []
        while order and order[0] in safe:
            safe.discard(order[0])
            begun.discard(order[0])
            found.append(order.popleft())
        return found

    def knows(self, received: Iterable[int], is_whole: bool = False) -> None:
        """The packet ids of QoS 2 messages that its owner has of the client; `is_whole`: it lacks no PUBREL."""
        self._stale = set(received) - self._fresh
        self._is_whole = is_whole

    def is_unreleased(self, packet: int) -> bool:
        """Whether a PUBLISH with that packet id repeats a message even without DUP [MQTT-4.3.3-2].

        Some clients repeat so: paho does, if it fails twice to connect after PUBREC.
        """
        return self._is_whole and packet in self._stale

    def came(self, packet: int, is_again: bool) -> None:
        """A PUBLISH at QoS 2."""
        self._fresh.add(packet)
        self._releasing.discard(packet)
        self._stale.discard(packet)
        if not is_again:
            self._new.add(packet)

    def are_over(self, packet: int) -> list[int]:
        """PUBREL came; returns other packet ids that are over, as it shows: another owner answered theirs, in a split.

        A client sends what it has not finished again before anything new [MQTT-4.4.0-1]. Some are late with that, as
        paho is where it publishes from another thread, but not as late as with the PUBREL of something new.
        """
        if packet not in self._new:
            return []
        self._new.discard(packet)
        stale, self._stale = self._stale, set()
        return sorted(stale - {packet})

    def released(self, packet: int) -> bool:
        """PUBREL came; False: one of this message is unanswered, and its answer is that of both."""
        self._fresh.discard(packet)
        self._stale.discard(packet)
        if packet in self._releasing:
            return False
        self._releasing.add(packet)
        return True

    def hold(self, step: SessionStep) -> None:
        """An acknowledgement waits for the next owner, if its packet id awaits it; of one packet id, the last."""
        entry = self.table.get(step.packet)
        if entry is not None and entry.awaits(step.kind):
            self.held[step.packet] = step

    def is_attached(self, key: tuple[Lineage, int], is_here: bool) -> None:
        """Another owner serves it, and counts from the beginning; one that is here dies with the connection."""
        self.attached, self._is_here = key, is_here
        self._safe_done = 0
        self.flow_done = 0
        if is_here:
            self._done.clear()
            self._done_count = 0

    def done(self) -> list[Dot]:
        """What the client has at QoS 1, and no owner has called safe."""
        return [(run.origin, run.place + at) for run in self._done for at in range(run.count)]

    def is_done(self, origin: int, place: int) -> None:
        """The client has a message at QoS 1, by its dot."""
        if self._is_here:
            return
        if self._done_count == MAX_DONE:
            self.done_is_safe(self._safe_done + 1)
        self._done_count += 1
        if self._done:
            last = self._done[-1]
            if last.origin == origin and last.place + last.count == place:
                last.count += 1
                return
        self._done.append(AcknowledgedRun(origin, place))

    def done_is_safe(self, count: int) -> None:
        """So many of what it has done are safe, or dropped: no owner needs to be told."""
        while self._safe_done < count and self._done:
            first = self._done[0]
            many = min(count - self._safe_done, first.count)
            first.place += many
            first.count -= many
            self._done_count -= many
            self._safe_done += many
            if first.count == 0:
                self._done.popleft()

    def acknowledge(self, step: SessionStep) -> None:
        """PUBACK, PUBREC or PUBCOMP, which count only where the packet id awaits them.

        A client that gets PUBREL of two owners answers both, and the second of them may have sent another message
        under the packet id by then.
        """
        kind, packet = step.kind, step.packet
        entry = self.table.get(packet)
        if entry is not None and entry.awaits(kind):
            if kind == PUBREC:
                self._table[packet] = SentMessage(entry.dot, True, 2)
            else:
                del self._table[packet]
            if kind == PUBACK:
                self.is_done(*entry.dot)
        elif kind == PUBACK:
            return
        self.send(step)

    def send(self, step: SessionStep) -> None:
        """A packet for the owner, which has it when it serves the connection."""
        if self.attached is not None:
            self.tell_done()
            self.steps.append(step)

    def take_registered(self, packet: int, addresses: list[Address]) -> list[Unanswered]:
        """The owner knows a QoS 2 packet id; returns the messages whose turn it is, in the client's order."""
        for each in self.unanswered:
            if each.step.digest and each.step.packet == packet and each.addresses is None:
                each.addresses = addresses
                break
        ready: list[Unanswered] = []
        rest: list[Unanswered] = []
        seen = 0
        for each in self.unanswered:
            if not each.step.digest:
                rest.append(each)
            elif each.addresses is None:
                break
            else:
                ready.append(each)
            seen += 1
        self.unanswered[:seen] = rest
        return ready

    def answered(self, kind: int, packet: int) -> bool:
        """The owner has answered a packet; False: it waits for no answer."""
        for each in self.unanswered:
            if each.step.kind == kind and each.step.packet == packet:
                self.unanswered.remove(each)
                if kind == PUBREL:
                    self._releasing.discard(packet)
                return True
        return False

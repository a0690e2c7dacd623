"""How nodes meet, keep in touch and part: what is said about members, and when.

A node that is to join **knocks** at the address of a member, until that one answers. Every heartbeat carries the
digest of all that a node knows of members; who has another tells all it knows and asks for the same. A node that
was taken for dead by the time that it is well again is knocked at now and then, so that two sides of a split that
gave each other up become one again by themselves. As long as members are missed, they are looked for where an operator
says that they may be (**hints**): a cluster all of whose nodes have other addresses by now would not find itself. A
node that **leaves** hands over what it has, says goodbye until one of the others has heard it, and is out.

**A name is the live node's.** As long as a member is up, no other node is taken for it: a later life counts only from
where the member is, or once that is down. Who comes with a name that is taken hears so, and its knocks count once the
name is free. Who comes back when another store has had its name meanwhile has lost that for good.

**A cluster has an identity**, which is founded by the first by name of those who have been together for a minute, and
taken over by who has none: what nodes say is not listened to where they belong to another cluster. Founders who are
members of each other, as after a split, agree on the lesser one. Nodes of one machine alone are no cluster yet, and
older versions say nothing of theirs.
"""

from collections.abc import Callable
from typing import Final

from vmq_cluster.clocks import FAR_AHEAD
from vmq_cluster.detector import Detector
from vmq_cluster.effects import Left, NameRefused, NameTaken, Outbox, Refused
from vmq_cluster.errors import ClusterError, MalformedError
from vmq_cluster.identity import Identity
from vmq_cluster.membership import Membership, Status, is_active, is_later
from vmq_cluster.messages import (
    MAX_MEMBERS,
    AnyMessage,
    Frame,
    Heartbeat,
    MemberRecord,
    Members,
    StaleEpoch,
)
from vmq_cluster.options import Options

#: Why a member is down that has said so itself.
STOPPED: Final = "it was stopped"
#: With every so many heartbeats there is a knock at those that were taken for dead, and a word to those that are down.
_KNOCK: Final = 10
#: Of those that were taken for dead so many at a time: each is a connection, and most of them are dead.
KNOCKS: Final = 8
#: Addresses that are remembered for those that are missed.
MOST_HINTS: Final = 100
#: Seconds with others after which a cluster is founded: those that start at once find each other before.
FOUND_AFTER: Final = 60.0


class RollCall:
    """One node's part in it."""

    def __init__(
        self,
        identity: Identity,
        membership: Membership,
        detector: Detector,
        options: Options,
        wall: Callable[[], int],
        is_handed_over: Callable[[], bool],
        outbox: Outbox,
        siblings: frozenset[str] = frozenset(),
    ) -> None:
        """`is_handed_over` answers whether this node may leave without anything being lost; `siblings` are on its
        machine.
        """
        self._identity = identity
        self._membership = membership
        self._detector = detector
        self._options = options
        self._wall = wall
        self._is_handed_over = is_handed_over
        self._outbox = outbox
        self._siblings = siblings
        #: Since when this node has had others; None: it has none.
        self._in_company: float | None = None
        #: Where to knock until somebody answers, and the tickets by which answers are known.
        self._contacts: dict[str, int] = {}
        self._tickets = 0
        #: Where members may be that are not where they were, the last that was told of at the end.
        self._hints: dict[str, None] = {}
        self._heartbeats = 0
        #: Who was told the members since the last heartbeat.
        self._informed: set[str] = set()
        #: When a leave under way is given up, and who is to hear that this node has left.
        self._leaving: float | None = None
        self._farewell: set[str] = set()
        #: Nodes that were turned away: the lives of them that were told of.
        self._refused: dict[str, int] = {}

    # --- what an operator may ask

    def join(self, address: str, is_hint: bool) -> None:
        """Asks the node at an address to be taken in; repeated until it answers, or (`is_hint`) as long as members are
        missed, of which one may be there.

        Raises:
            ClusterError: another node has this one's name for good.
        """
        if is_hint:
            self._hints.pop(address, None)
            self._hints[address] = None
            while len(self._hints) > MOST_HINTS:
                del self._hints[next(iter(self._hints))]
            return
        if not self._membership.belongs:
            self._membership.rejoin(self._wall(), 0)
            self._leaving = None
            self._farewell.clear()
        self._tickets += 1
        self._contacts[address] = self._tickets
        self._knock(address)

    @property
    def contacts(self) -> list[str]:
        """The addresses that were to be joined and have not answered."""
        return sorted(self._contacts)

    def leave(self, now: float, timeout: float) -> None:
        """Begins to leave; `Left` says when it is done, which it is after so many seconds at the latest.

        Raises:
            ClusterError: this node does not belong to the cluster.
        """
        if not self._membership.belongs:
            raise ClusterError("this node does not belong to the cluster")
        if self._leaving is None:
            self._leaving = now + timeout
            self._contacts.clear()
            self._membership.leave(Status.LEAVING)
            self.tell_all()

    def remove(self, name: str, force: bool) -> None:
        """Takes a dead member out.

        Raises:
            ClusterError: it is no other member, or (unless `force`) it is alive.
        """
        if self._detector.is_up(name) and not force:
            raise ClusterError(f"{name!r} is alive: let it leave")
        self._membership.exclude(name, Status.REMOVED)
        self.tell_all()

    # --- what others say

    def on_heartbeat(self, peer: str, message: Heartbeat, now: float) -> None:
        """A member lives, and may know more or less than this node; or it lives no longer."""
        if message.stops:
            self._detector.lost(peer, STOPPED, now)
            return
        self._detector.answered(peer, message, now)
        if message.digest != self._membership.digest:
            self._inform(peer, message.address)

    def on_stranger(self, peer: str, message: AnyMessage) -> None:
        """From a node that is no member only its word on members counts; it is told ours."""
        match message:
            case Members():
                self.on_members(peer, message)
            case StaleEpoch():
                self.on_stale_epoch(message)
            case Heartbeat(stops=False) if self._membership.belongs:
                self._inform(peer, message.address)
            case _:
                pass

    def on_members(self, peer: str, message: Members) -> None:
        """What a peer knows of members; those that are new to this node are told of it at once."""
        if message.taken:
            self._outbox.emit(NameRefused(message.taken))
            own = [each for each in message.records if each.name == self._identity.name]
            self._membership.merge(own, peer, self._wall())
            if self._membership.has_lost_name:
                self._contacts.clear()
            return
        before = set(self._membership.others)
        # What it says of itself counts: the frame would else have been refused.
        records = [
            each for each in message.records if each.name == peer or not self._is_namesake(each)
        ]
        self._membership.merge(records, peer, self._wall())
        if message.asks:
            answer = self._membership.message(asks=False, ticket=message.ticket)
            self._tell(peer, answer, _address_of(peer, message))
        else:
            self._on_answer(peer, message)
        for name in self._membership.others:
            if name not in before and name != peer:
                self._outbox.send(name, self._membership.message(asks=True))

    def on_namesake(self, frame: Frame) -> None:
        """A node of this one's name, which may be this one itself, by another address: nothing that it says counts."""
        for message in frame.messages:
            if not isinstance(message, Members):
                continue
            theirs = next((each for each in message.records if each.name == frame.sender), None)
            own = self._membership.own
            if theirs is None or theirs.incarnation == own.incarnation:
                continue
            if theirs.address != self._membership.address:
                self._outbox.emit(NameTaken(theirs.address))
                if message.asks:  # so that it hears of it, too
                    self._outbox.knock(theirs.address, self._membership.message(asks=False))

    def _is_namesake(self, record: MemberRecord) -> bool:
        """Whether a record is of another node than the member of its name, which is up."""
        known = self._membership.record(record.name)
        return (
            known is not None
            and record.address != known.address
            and is_active(known)
            and is_active(record)
            and self._detector.is_up(record.name)
            and is_later(record, known)
        )

    def refuses(self, frame: Frame) -> bool:
        """Whether a frame of a new life is of another node than the member of its sender's name, which is up.

        What a node says first is a heartbeat with its address. Where that got lost, the next frame is believed.
        """
        name = frame.sender
        known = self._membership.record(name)
        if known is None or not is_active(known) or not self._detector.is_up(name):
            return False
        address = _address_in(frame) or _address_of_heartbeat(frame)
        if address is None or address == known.address:
            return False
        self._refuse(
            frame,
            f"the node at {address} has the name of the one at {known.address}, which is up: each needs a name and a "
            "data directory of its own",
        )
        self._outbox.knock(address, Members([], asks=False, taken=known.address))
        return True

    def turns_away(self, frame: Frame) -> bool:
        """Whether the sender of a frame has lost its name, or belongs to another cluster; it hears so."""
        known = self._membership.record(frame.sender)
        answer: AnyMessage
        if known is not None and 0 < frame.store < known.store:
            reason = f"the node at {known.address} has its name by now, with a later data directory"
            answer = Members([known], asks=False, taken=known.address)
        elif self._is_foreign(frame, known):
            reason = (
                "it belongs to another cluster, and two clusters do not become one: a node that is to change comes "
                "with an empty data directory"
            )
            answer = Heartbeat(self._membership.digest)
        else:
            return False
        self._refuse(frame, reason)
        address = _address_in(frame) or _address_of_heartbeat(frame)
        if address is not None:
            self._outbox.knock(address, answer)
        return True

    def _is_foreign(self, frame: Frame, known: MemberRecord | None) -> bool:
        own = self._identity.cluster
        if frame.cluster == own or not own or not frame.cluster:
            return False
        # Who was a member before founders agreed, is one of this cluster.
        return known is None or known.store not in (0, frame.store)

    def _refuse(self, frame: Frame, reason: str) -> None:
        if self._refused.get(frame.sender) != frame.epoch:
            if len(self._refused) >= MAX_MEMBERS:
                del self._refused[next(iter(self._refused))]
            self._refused[frame.sender] = frame.epoch
            self._outbox.emit(Refused(frame.sender, reason))

    def learn_cluster(self, frame: Frame) -> None:
        """Takes over the identity of the cluster that a member belongs to, if this node knows none."""
        own = self._identity.cluster
        if (not own or frame.cluster < own) and frame.cluster:
            if frame.sender in self._membership.others:
                self._identity.belong_to(frame.cluster)

    def _maybe_found(self, now: float) -> None:
        if all(each in self._siblings for each in self._detector.up):
            self._in_company = None
        elif self._in_company is None:
            self._in_company = now
        elif now > self._in_company + FOUND_AFTER and self._identity.name < min(self._detector.up):
            self._identity.belong_to(0)

    def on_stale_epoch(self, message: StaleEpoch) -> None:
        """Others have met a later life of this node than this one."""
        if message.epoch > self._wall() + FAR_AHEAD:
            raise MalformedError("an epoch from the far future")
        if message.epoch > self._identity.epoch:
            self._identity.outlive(message.epoch)

    def refuse_stale(self, frame: Frame, epoch: int) -> None:
        """Tells a node that it counts its lives too low, where it says it is if it does."""
        answer = StaleEpoch(epoch)
        address = _address_in(frame)
        if address is None:
            self._outbox.send(frame.sender, answer)
        else:
            self._outbox.knock(address, answer)

    def show_own(self, frame: Frame) -> None:
        """Lets a node that cannot be talked with see what this one is, if it introduces itself.

        Whatever else it says is not answered: two that refuse each other would go on for ever.
        """
        address = _address_in(frame)
        if address is not None:
            self._outbox.knock(address, Heartbeat(self._membership.digest))

    def _on_answer(self, peer: str, message: Members) -> None:
        """A peer may know now what this node said of itself."""
        name = self._identity.name
        if any(each.name == name and each.status == Status.LEFT for each in message.records):
            self._farewell.clear()
        if message.ticket and peer in self._membership.others:
            for address in list(self._contacts):
                if self._contacts[address] == message.ticket:
                    del self._contacts[address]

    # --- time

    def tick(self, now: float) -> None:
        """Says what is to be said once in a heartbeat; takes out who has been dead for too long."""
        if self._detector.tick(now):
            self._informed.clear()
            self._heartbeat(now)
            self._expire(now)
            if not self._identity.cluster:
                self._maybe_found(now)
        if self._leaving is not None:
            self._maybe_left(now, self._leaving)

    def tell_all(self) -> None:
        """Tells the others what this node has decided."""
        for peer in self._membership.others:
            self._outbox.send(peer, self._membership.message(asks=False))

    def say_stopped(self) -> None:
        """This node ends, and stays a member."""
        for peer in self._detector.up:
            self._outbox.send(peer, Heartbeat(self._membership.digest, stops=True))

    def say_alive(self, peer: str, now: float) -> None:
        """One heartbeat: with the others', and first of all to who was not heard of until now."""
        heartbeat = self._detector.round_trips.heartbeat(peer, self._membership.digest, now)
        heartbeat.address = self._membership.address
        self._outbox.send(peer, heartbeat)

    def _heartbeat(self, now: float) -> None:
        # Who is silent may never have heard of this node, if the one that took it in died with the news.
        # But it says no more than where it is as long as it may have been taken out, and does not know.
        introduces = self._heartbeats % _KNOCK == _KNOCK - 1 and not self._identity.former
        for peer in self._membership.others:
            if introduces and not self._detector.is_up(peer):
                self._outbox.send(peer, self._membership.message(asks=True))
            else:
                self.say_alive(peer, now)
        self._say_goodbye()
        for address in sorted(self._contacts):
            self._knock(address)
        self._seek()
        self._heartbeats += 1
        if self._heartbeats % _KNOCK == 0 and self._membership.belongs:
            for address in _in_turn(self._membership.expired, self._heartbeats // _KNOCK):
                self._knock(address)

    def _seek(self) -> None:
        """Knocks where a member may be that is missed: with each of the first heartbeats, then now and then."""
        is_due = self._heartbeats < _KNOCK or self._heartbeats % _KNOCK == 0
        if is_due and self._detector.down and self._membership.belongs:
            known = set(self._membership.addresses().values())
            hints = [each for each in self._hints if each not in known]
            for address in _in_turn(hints, self._heartbeats):
                self._knock(address)

    def _inform(self, peer: str, address: str = "") -> None:
        """Tells a peer, which says that it is there, all members, and asks for its own, once between two heartbeats."""
        if peer not in self._informed:
            self._informed.add(peer)
            self._tell(peer, self._membership.message(asks=True), address)

    def _tell(self, peer: str, message: Members, address: str) -> None:
        """Tells a peer, where it says that it is if that is news: of a stranger no other word is believed."""
        is_member = peer in self._membership.others
        if address and (not is_member or address != self._membership.addresses()[peer]):
            self._outbox.knock(address, message)
        else:
            self._outbox.send(peer, message)

    def _knock(self, address: str) -> None:
        ticket = self._contacts.get(address, 0)
        self._outbox.knock(address, self._membership.message(asks=True, ticket=ticket))

    def _expire(self, now: float) -> None:
        """Takes out who has been dead for too long, unless this node's side is the smaller one."""
        if len(self._detector.down) > len(self._detector.up) + 1:
            return
        dead = self._detector.dead(now)
        # Unless it was removed just now.
        expired = [peer for peer in dead if self._membership.incarnation(peer)]
        for peer in expired:
            self._membership.exclude(peer, Status.EXPIRED)
        if expired:
            self.tell_all()

    def _maybe_left(self, now: float, deadline: float) -> None:
        """LEAVING becomes LEFT when another has everything, and the end is when one of them knows."""
        late = now > deadline
        if self._membership.belongs and self._membership.own.status == Status.JOINED:
            # It was taken for dead, or had forgotten writes: it leaves in its new incarnation as well.
            self._membership.leave(Status.LEAVING)
            self.tell_all()
        if self._membership.own.status == Status.LEAVING:
            if not late and not self._is_handed_over():
                return
            self._farewell = set(self._detector.up)
            self._membership.leave(Status.LEFT)
            self._say_goodbye()
        if late or not self._farewell:
            self._leaving = None
            has_left = self._membership.own.status == Status.LEFT
            self._outbox.emit(Left(complete=has_left and not late))

    def _say_goodbye(self) -> None:
        for peer in sorted(self._farewell):
            self._outbox.send(peer, self._membership.message(asks=True))


def _in_turn(addresses: list[str], turn: int) -> list[str]:
    """As many of them as are knocked at at a time, the next ones in each turn."""
    first = turn * KNOCKS % max(len(addresses), 1)
    return [*addresses[first:], *addresses[:first]][:KNOCKS]


def _address_in(frame: Frame) -> str | None:
    """Where the sender of a frame says that it is."""
    for message in frame.messages:
        if isinstance(message, Members) and (address := _address_of(frame.sender, message)):
            return address
    return None


def _address_of(name: str, message: Members) -> str:
    """Where a node is by a list of members; "": it is not among them."""
    return next((each.address for each in message.records if each.name == name), "")


def _address_of_heartbeat(frame: Frame) -> str | None:
    for message in frame.messages:
        if isinstance(message, Heartbeat) and message.address:
            return message.address
    return None

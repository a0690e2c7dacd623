"""A whole node without input and output: the machines of this package put together.

Whoever drives it (a `ClusterNode`, the simulator) calls it with frames and with the time, and carries out the
effects that each call returns, in order:

    effects = machine.start(now)            once, first
    effects = machine.receive(frame, now)   for each frame that the link decoded
    effects = machine.tick(now)             a few times in the shortest interval of the options
    effects = machine.flush(now)            after `join`, `metadata.put`, `channels.send` and the like
    effects = machine.stop(now)             once, last: nothing may be called any more

`now` is in seconds and never goes back; `wall` answers with the wall clock's milliseconds and may be wrong. What a
call wrote is in the storage before its effects are returned, so that no other node hears of a write that this one
may forget.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from vmq_cluster.broadcasts import Broadcasts
from vmq_cluster.channels import Channels
from vmq_cluster.clocks import FAR_AHEAD, HybridClock
from vmq_cluster.collector import Collector
from vmq_cluster.detector import Detector
from vmq_cluster.effects import Contact, Effect, Left, Misbehaved, Outbox, Renewed, Transmit
from vmq_cluster.errors import ClusterError, MalformedError
from vmq_cluster.exchange import Exchange
from vmq_cluster.identity import Identity
from vmq_cluster.membership import Membership, Status
from vmq_cluster.messages import (
    FORMAT,
    MAX_VALUE,
    AnyMessage,
    Frame,
    Gossip,
    Graft,
    Heartbeat,
    IHave,
    Members,
    Prune,
    Received,
    Reliable,
    StaleEpoch,
    SyncBatch,
    SyncRequest,
    Unreliable,
)
from vmq_cluster.metadata import STREAM as METADATA
from vmq_cluster.metadata import Metadata
from vmq_cluster.options import Options
from vmq_cluster.order import FrameOrder
from vmq_cluster.plumtree import Plumtree, Stream
from vmq_cluster.storage import Storage, Transaction

if TYPE_CHECKING:
    from random import Random

#: The stream of plumtree for the application's own broadcasts.
APPLICATION: Final = 1

#: A frame ends at the message with which it grows larger than this.
_FRAME_BYTES: Final = 1024 * 1024
_FRAME_MESSAGES: Final = 10_000

#: With every so many heartbeats one goes to those that were taken for dead as well.
_KNOCK_AT_EXPIRED: Final = 10


class Machine:
    """One node of the cluster."""

    def __init__(
        self,
        name: str,
        address: str,
        storage: Storage,
        options: Options,
        random: "Random",
        wall: Callable[[], int],
        boot: bytes = b"",
    ) -> None:
        """`address` is where the others reach this node; `boot` tells boots of the machine apart.

        Raises:
            ClusterError: the name is none, or the storage is another node's, or damaged.
        """
        self.name = name
        self.options = options
        self._address = address
        self._wall = wall
        self._outbox = outbox = Outbox()
        self._transaction = transaction = Transaction(storage)
        self.identity = identity = Identity(transaction, name, boot, wall(), random)
        self.membership = Membership(identity, transaction, outbox)
        self.detector = Detector(options, outbox)
        self.metadata = Metadata(identity, transaction, HybridClock(wall), outbox)
        self.broadcasts = Broadcasts(random.getrandbits(62) + 1, options, outbox)
        streams: dict[int, Stream] = {METADATA: self.metadata, APPLICATION: self.broadcasts}
        self.plumtree = Plumtree(name, streams, options, outbox)
        self.metadata.use(self.plumtree)
        self.collector = Collector(identity, self.membership, self.metadata, options)
        self.exchange = Exchange(
            identity, self.membership, self.metadata, self.collector, options, random, outbox
        )
        self.channels = Channels(identity, options, outbox)
        self._order = FrameOrder()
        self._frames = 0
        #: Where to knock until somebody answers, and the tickets by which answers are known.
        self._contacts: dict[str, int] = {}
        self._tickets = 0
        self._heartbeats = 0
        #: Who was sent the members since the last heartbeat.
        self._informed: set[str] = set()
        #: What the machines were last told, to see when it changes.
        self._others: list[str] | None = None
        self._up: list[str] = []
        self._incarnation = identity.incarnation
        #: Since when this node has been leaving, and who is to hear that it has left.
        self._leaving: float | None = None
        self._farewell: list[str] = []

    # --- the life of the node

    def start(self, now: float) -> list[Effect]:
        """Begins to take part."""
        self.membership.start(self._address)
        return self._finish(now)

    def stop(self, now: float) -> list[Effect]:
        """Ends in order: the next life knows that nothing is missing."""
        self.identity.stopped()
        return self._finish(now)

    def tick(self, now: float) -> list[Effect]:
        """Does what is due."""
        if self.detector.tick(now):
            self._informed.clear()
            self._heartbeat()
            self._expire(now)
        if self._leaving is not None:
            self._maybe_left(now, self._leaving)
        self._settle(now)
        self.plumtree.tick(now)
        self.exchange.tick(now)
        self.collector.tick(now)
        self.channels.tick(now)
        return self._finish(now)

    def flush(self, now: float) -> list[Effect]:
        """The effects of what was asked since the last call."""
        return self._finish(now)

    def receive(self, frame: Frame, now: float) -> list[Effect]:
        """Takes in a frame; a peer's nonsense ends in `Misbehaved`, never in an exception."""
        peer = frame.sender
        if peer == self.name:
            return []
        if frame.epoch > self._wall() + FAR_AHEAD:
            self._outbox.emit(Misbehaved(peer, "a frame from the far future"))
            return self._finish(now)
        if frame.epoch < self._order.epoch(peer):
            self._refuse_stale(frame)
            return self._finish(now)
        if not self._order.accepts(frame):
            return []
        try:
            for message in frame.messages:
                if peer in self.membership.others:
                    self.detector.heard(peer, now)
                    self._settle(now)
                    self._handle(peer, message, now)
                else:
                    self._handle_stranger(peer, message)
        except MalformedError as error:
            self._outbox.emit(Misbehaved(peer, str(error)))
        return self._finish(now)

    def lost(self, peer: str, reason: str, now: float) -> list[Effect]:
        """The link to a peer broke."""
        self.detector.lost(peer, reason, now)
        return self._finish(now)

    # --- what an operator or the application may ask; `flush` sends it

    def join(self, address: str) -> None:
        """Asks the node at an address to be taken in; repeated until it answers."""
        if not self.membership.belongs:
            self.membership.rejoin(self._wall(), 0)
            self._leaving = None
        self._tickets += 1
        self._contacts[address] = self._tickets
        self._knock(address)

    def leave(self, now: float) -> None:
        """Begins to leave; `Left` says when it is done.

        Raises:
            ClusterError: this node does not belong to the cluster.
        """
        if not self.membership.belongs:
            raise ClusterError("this node does not belong to the cluster")
        if self._leaving is None:
            self._leaving = now
            self._contacts.clear()
            self.membership.leave(Status.LEAVING)
            self._push_members()

    def remove(self, name: str, force: bool = False) -> None:
        """Takes a dead member out.

        Raises:
            ClusterError: it is no other member, or (unless `force`) it is alive.
        """
        if self.detector.is_up(name) and not force:
            raise ClusterError(f"{name!r} is alive: let it leave")
        self.membership.exclude(name, Status.REMOVED)
        self._push_members()

    def broadcast(self, payload: bytes) -> None:
        """Sends bytes to every other node that is up, at most once.

        Raises:
            ClusterError: they are too many.
        """
        if len(payload) > MAX_VALUE:
            raise ClusterError(f"a broadcast of {len(payload)} bytes; the limit is {MAX_VALUE}")
        dot = self.broadcasts.next(payload)
        self.plumtree.broadcast((APPLICATION, *dot), payload)

    # --- messages

    def _handle(self, peer: str, message: AnyMessage, now: float) -> None:
        match message:
            case Gossip():
                self.plumtree.on_gossip(peer, message)
            case Reliable():
                self.channels.on_reliable(peer, message)
            case Received():
                self.channels.on_received(peer, message)
            case Unreliable():
                self.channels.on_unreliable(peer, message)
            case Heartbeat():
                if message.digest != self.membership.digest:
                    self._inform(peer)
            case IHave():
                self.plumtree.on_i_have(peer, message, now)
            case Graft():
                self.plumtree.on_graft(peer, message)
            case Prune():
                self.plumtree.on_prune(peer)
            case SyncRequest():
                self.exchange.on_request(peer, message, now)
            case SyncBatch():
                self.exchange.on_batch(peer, message, now)
            case Members():
                self._on_members(peer, message)
            case StaleEpoch():
                self._on_stale_epoch(message)

    def _handle_stranger(self, peer: str, message: AnyMessage) -> None:
        """From a node that is no member only its word on members counts; it is told ours."""
        match message:
            case Members():
                self._on_members(peer, message)
            case StaleEpoch():
                self._on_stale_epoch(message)
            case Heartbeat() if self.membership.belongs:
                self._inform(peer)

    def _on_members(self, peer: str, message: Members) -> None:
        before = set(self.membership.others)
        self.membership.merge(message.records, peer, self._wall())
        others = self.membership.others
        if message.asks:
            self._outbox.send(peer, self.membership.message(asks=False, ticket=message.ticket))
        else:
            self._on_answer(peer, message)
        for name in others:
            if name not in before and name != peer:
                self._outbox.send(name, self.membership.message(asks=True))

    def _on_answer(self, peer: str, message: Members) -> None:
        """A peer may know now what this node said of itself."""
        if self._farewell and any(
            each.name == self.name and each.status == Status.LEFT for each in message.records
        ):
            self._farewell.clear()
        if message.ticket and peer in self.membership.others:
            for address in list(self._contacts):
                if self._contacts[address] == message.ticket:
                    del self._contacts[address]

    def _refuse_stale(self, frame: Frame) -> None:
        """Tells a node that it counts its lives too low, where it says it is if it does."""
        answer = StaleEpoch(self._order.epoch(frame.sender))
        for message in frame.messages:
            if isinstance(message, Members):
                for record in message.records:
                    if record.name == frame.sender:
                        self._outbox.emit(Contact(record.address, self._frame([answer])))
                        return
        self._outbox.send(frame.sender, answer)

    def _on_stale_epoch(self, message: StaleEpoch) -> None:
        if message.epoch > self._wall() + FAR_AHEAD:
            raise MalformedError("an epoch from the far future")
        if message.epoch > self.identity.epoch:
            self.identity.outlive(message.epoch)

    # --- members

    def _inform(self, peer: str) -> None:
        """Tells a peer all members and asks for its own, once between two heartbeats."""
        if peer not in self._informed:
            self._informed.add(peer)
            self._outbox.send(peer, self.membership.message(asks=True))

    def _push_members(self) -> None:
        for peer in self.membership.others:
            self._outbox.send(peer, self.membership.message(asks=False))

    def _heartbeat(self) -> None:
        heartbeat = Heartbeat(self.membership.digest)
        for peer in self.membership.others:
            self._outbox.send(peer, heartbeat)
        for peer in self._farewell:
            self._outbox.send(peer, self.membership.message(asks=True))
        for address in sorted(self._contacts):
            self._knock(address)
        self._heartbeats += 1
        if self._heartbeats % _KNOCK_AT_EXPIRED == 0 and self.membership.belongs:
            # A side of a split that took the other for dead has to find it again by itself.
            for address in self.membership.expired:
                self._knock(address)

    def _knock(self, address: str) -> None:
        ticket = self._contacts.get(address, 0)
        message = self.membership.message(asks=True, ticket=ticket)
        frame = self._frame([message])
        self._outbox.emit(Contact(address, frame))

    def _expire(self, now: float) -> None:
        """Takes out who has been dead for too long, unless this node's side is the smaller one."""
        limit = self.options.dead_node_timeout
        down = self.detector.down
        if not limit or len(down) > len(self.detector.up) + 1:
            return
        expired = [peer for peer, since in down.items() if now - since > limit]
        for peer in expired:
            self.membership.exclude(peer, Status.EXPIRED)
        if expired:
            self._push_members()

    def _maybe_left(self, now: float, since: float) -> None:
        """LEAVING becomes LEFT when another has everything, and the end is when one of them knows."""
        late = now - since > self.options.leave_timeout
        if self.membership.own.status == Status.LEAVING:
            if not late and not self._is_handed_over():
                return
            self._farewell = self.detector.up
            self.membership.leave(Status.LEFT)
            for peer in self._farewell:
                self._outbox.send(peer, self.membership.message(asks=True))
        if late or not self._farewell:
            self._leaving = None
            self._outbox.emit(Left(complete=not late))

    def _is_handed_over(self) -> bool:
        """Whether another has all metadata of this node, and those that are up all that was sent to them."""
        up = self.detector.up
        if any(self.channels.waiting(peer)[0] for peer in up):
            return False
        clocks = [self.collector.clocks.get(self.membership.incarnation(peer)) for peer in up]
        own = self.metadata.clock
        alone = not self.membership.others
        return alone or any(clock is not None and clock.dominates(own) for clock in clocks)

    # --- the end of a pass

    def _settle(self, now: float) -> None:
        """Tells the machines of members that came and went, and of peers that are up or down."""
        if self.metadata.outrun:
            # The storage is older than what others have heard from here: its next dots would not be new.
            self.membership.rejoin(self._wall(), 0)
            self._push_members()
            self.metadata.outrun = 0
        if self.identity.incarnation != self._incarnation:
            self._incarnation = self.identity.incarnation
            self._outbox.emit(Renewed(self._incarnation))
            self._others = None
        if self.membership.others is not self._others:
            self._others = self.membership.others
            self.detector.watch(self._others, now)
            self.channels.set_members(self._others)
            self.collector.members_changed()
        up = self.detector.up
        if up is not self._up:
            self._up = up
            self.plumtree.set_peers(up)
            self.channels.set_peers(up)
            self.exchange.set_peers(up, now)

    def _finish(self, now: float) -> list[Effect]:
        self._settle(now)
        self.channels.flush(now)
        self.metadata.save()
        self._transaction.commit()
        outbox = self._outbox
        effects = outbox.effects
        outbox.effects = []
        for peer, messages in outbox.messages.items():
            for part in _frames(messages):
                effects += self._addressed(peer, self._frame(part))
        outbox.messages = {}
        return effects

    def _addressed(self, peer: str, frame: Frame) -> list[Effect]:
        """To members there are links; a past member is reached at its last address, a stranger not at all."""
        if peer in self.membership.others:
            return [Transmit(peer, frame)]
        record = self.membership.record(peer)
        return [] if record is None else [Contact(record.address, frame)]

    def _frame(self, messages: list[AnyMessage]) -> Frame:
        self._frames += 1
        return Frame(FORMAT, self.name, self.identity.epoch, self._frames, messages)


def _frames(messages: list[AnyMessage]) -> list[list[AnyMessage]]:
    """Messages in portions that a frame can hold."""
    if len(messages) == 1:
        return [messages]
    parts: list[list[AnyMessage]] = [[]]
    size = 0
    for message in messages:
        if size > _FRAME_BYTES or len(parts[-1]) >= _FRAME_MESSAGES:
            parts.append([])
            size = 0
        parts[-1].append(message)
        match message:
            case Gossip():
                size += len(message.payload)
            case Reliable() | Unreliable():
                size += sum(map(len, message.payloads))
            case SyncBatch():
                size += _FRAME_BYTES // 4
            case _:
                size += 256
    return parts

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

from vmq_cluster.channels import Channels
from vmq_cluster.clocks import FAR_AHEAD, HybridClock
from vmq_cluster.detector import Detector
from vmq_cluster.effects import Contact, Effect, Misbehaved, Outbox, Renewed, Transmit
from vmq_cluster.errors import MalformedError
from vmq_cluster.identity import Identity
from vmq_cluster.membership import Membership
from vmq_cluster.messages import (
    FORMAT,
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
from vmq_cluster.metadata.collector import Collector
from vmq_cluster.metadata.exchange import Exchange
from vmq_cluster.metadata.metadata import STREAM as METADATA
from vmq_cluster.metadata.metadata import Metadata
from vmq_cluster.metadata.versions import Dialects, Versions
from vmq_cluster.options import Options
from vmq_cluster.order import FrameOrder
from vmq_cluster.plumtree import Plumtree, Stream
from vmq_cluster.rollcall import RollCall
from vmq_cluster.storage import Storage, Transaction

if TYPE_CHECKING:
    from random import Random

#: A frame ends at the message with which it grows larger than this.
_FRAME_BYTES: Final = 1024 * 1024
_FRAME_MESSAGES: Final = 10_000


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
        versions: Versions = Versions(),  # noqa: B008 - it is immutable
        siblings: frozenset[str] = frozenset(),
    ) -> None:
        """`address` is where the others reach this node; `boot` tells boots of the machine apart; `siblings` are nodes
        that make no cluster with this one as long as they are among themselves.

        `versions` are those of all that is said between nodes, by the application too.

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
        streams: dict[int, Stream] = {METADATA: self.metadata}
        self.plumtree = Plumtree(name, streams, options, outbox)
        self.metadata.use(self.plumtree)
        self.collector = Collector(identity, self.membership, self.metadata, options)
        self.exchange = Exchange(
            identity, self.membership, self.metadata, self.collector, options, random, outbox
        )
        self.channels = Channels(identity, options, outbox)
        self.dialects = Dialects(versions, outbox)
        self._order = FrameOrder()
        self._frames = 0
        parts = identity, self.membership, self.detector, options, wall
        self._rollcall = RollCall(*parts, self._is_handed_over, outbox, siblings)
        #: What the machines were last told, to see when it changes.
        self._others: list[str] | None = None
        self._up: list[str] = []
        self._leaving: list[str] = []
        self._incarnation = identity.incarnation

    # --- the life of the node

    def start(self, now: float) -> list[Effect]:
        """Begins to take part."""
        self.membership.start(self._address)
        return self._finish(now)

    def stop(self, now: float) -> list[Effect]:
        """Ends in order: the next life knows that nothing is missing, and the others that this one is over."""
        self._rollcall.say_stopped()
        self.identity.stopped()
        return self._finish(now)

    def tick(self, now: float) -> list[Effect]:
        """Does what is due."""
        self._rollcall.tick(now)
        self._settle(now)
        if self.detector.was_away:
            # To whom is down nobody tells anything; what this node says next shows them that it is there.
            self.detector.was_away = False
            self.exchange.catch_up(now)
        self.plumtree.tick(now)
        self.exchange.tick(now)
        self.collector.tick(now)
        self.channels.tick(now)
        return self._finish(now)

    def flush(self, now: float) -> list[Effect]:
        """The effects of what was asked since the last call."""
        return self._finish(now)

    def write_again(self, now: float) -> list[Effect]:
        """Writes first what a call could not (`UnwrittenError`); the effects of that call are among those returned."""
        self._transaction.commit()
        return self._finish(now)

    def receive(self, frame: Frame, now: float) -> list[Effect]:
        """Takes in a frame; a peer's nonsense ends in `Misbehaved`, never in an exception."""
        peer = frame.sender
        if peer == self.name:
            self._rollcall.on_namesake(frame)
            return self._finish(now)
        if frame.epoch > self._wall() + FAR_AHEAD:
            self._outbox.emit(Misbehaved(peer, "its clock is 100 years ahead of this node's"))
            return self._finish(now)
        if self._rollcall.turns_away(frame):
            return self._finish(now)
        last = self._order.epoch(peer)
        if frame.epoch < last:
            self._rollcall.refuse_stale(frame, last)
            return self._finish(now)
        if last and frame.epoch > last and self._rollcall.refuses(frame):
            return self._finish(now)
        if not self._order.accepts(frame):
            return []
        if not self.dialects.accepts(frame):
            self.detector.lost(peer, "it cannot be talked with", now)
            self._rollcall.show_own(frame)
            return self._finish(now)
        try:
            for message in frame.messages:
                if peer in self.membership.others:
                    if not self.detector.is_up(peer):
                        self._rollcall.say_alive(peer, now)
                    self.detector.heard(peer, now)
                    self._settle(now)
                    self._handle(peer, message, now)
                else:
                    self._rollcall.on_stranger(peer, message)
                    if (
                        peer in self.membership.others
                    ):  # it is none any more, and here is a word of it
                        self._settle(now)
                        self.detector.heard(peer, now)
            self._rollcall.learn_cluster(frame)
        except MalformedError as error:
            self._outbox.emit(Misbehaved(peer, str(error)))
        return self._finish(now)

    def hears(self, peer: str, epoch: int, now: float) -> bool:
        """Whether what came without a frame counts: its sender is up, and frames of the same life were accepted."""
        if self._order.epoch(peer) != epoch or not self.detector.is_up(peer):
            return False
        self.detector.heard(peer, now)
        return True

    def takes(self, peer: str, epoch: int, now: float) -> bool:
        """Whether what is reliable and came without a frame counts: also if its sender has ended since."""
        if self._order.epoch(peer) != epoch or peer not in self.membership.others:
            return False
        if self.detector.is_up(peer):
            self.detector.heard(peer, now)
        return True

    def lost(self, peer: str, reason: str, now: float) -> list[Effect]:
        """The link to a peer broke."""
        self.detector.lost(peer, reason, now)
        return self._finish(now)

    # --- what an operator or the application may ask; `flush` sends it

    def join(self, address: str, is_hint: bool = False) -> None:
        """Asks the node at an address to be taken in, until it answers; or whether it is a member that is missed."""
        self._rollcall.join(address, is_hint)

    @property
    def contacts(self) -> list[str]:
        """The addresses that were to be joined and have not answered."""
        return self._rollcall.contacts

    def leave(self, now: float, timeout: float | None = None) -> None:
        """Begins to leave; `Left` says when it is done: after `timeout` (or `leave_timeout`) at the latest.

        Raises:
            ClusterError: this node does not belong to the cluster.
        """
        limit = self.options.leave_timeout if timeout is None else timeout
        self._rollcall.leave(now, limit)

    def remove(self, name: str, force: bool = False) -> None:
        """Takes a dead member out.

        Raises:
            ClusterError: it is no other member, or (unless `force`) it is alive.
        """
        self._rollcall.remove(name, force)

    # --- messages

    def _handle(self, peer: str, message: AnyMessage, now: float) -> None:
        match message:
            case Reliable():  # in the order of how often they come
                self.channels.on_reliable(peer, message)
            case Received():
                self.channels.on_received(peer, message)
            case Unreliable():
                self.channels.on_unreliable(peer, message)
            case Gossip():
                self.plumtree.on_gossip(peer, message)
            case Heartbeat():
                self._rollcall.on_heartbeat(peer, message, now)
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
                self._rollcall.on_members(peer, message)
            case StaleEpoch():
                self._rollcall.on_stale_epoch(message)

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
            self._rollcall.tell_all()
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
        leaving = self.membership.leaving
        if leaving is not self._leaving:
            self._leaving = leaving
            self.exchange.hurry(leaving, now)

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
        for address, message in outbox.knocks:
            effects.append(Contact(address, self._frame([message])))
        outbox.knocks = []
        return effects

    def _addressed(self, peer: str, frame: Frame) -> list[Effect]:
        """To members there are links; a past member is reached at its last address, a stranger not at all."""
        if peer in self.membership.others:
            return [Transmit(peer, frame)]
        record = self.membership.record(peer)
        return [] if record is None else [Contact(record.address, frame)]

    def _frame(self, messages: list[AnyMessage]) -> Frame:
        self._frames += 1
        own, me = self.dialects.own, self.identity
        head = FORMAT, self.name, me.epoch, self._frames
        tail = own.speaks, own.reads, own.alike, me.cluster, me.store
        return Frame(*head, messages, *tail)


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
        size += _size(message)
    return parts


def _size(message: AnyMessage) -> int:
    """About how long a message is in a frame."""
    match message:
        case Gossip():
            return len(message.payload)
        case Reliable() | Unreliable():
            return sum(map(len, message.payloads))
        case SyncBatch():
            values = [sibling[3] for each in message.entries for sibling in each.siblings]
            return sum(len(value) for value in values if value is not None)
        case IHave():
            return 24 * len(message.ids)
        case Members():
            return 128 * len(message.records)
        case _:
            return 256

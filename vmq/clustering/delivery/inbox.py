"""What comes from other nodes: each message handled once and in order, and confirmed when what became of it is safe.

A node whose own store is behind or cannot write takes nothing from its peers until it can; a node whose store is new
takes nothing before it is `open`. What is under way to it then is limited by the channel's window, and waits at its
sender.

A confirmation costs a commit here and a frame that wakes the peer, together as much as the message itself. So what was
handled without a trace in the store, as is what went to clean sessions, is confirmed once in a while for all that came.
If this node dies before, it comes again, but those sessions died as well. A batch says whether somebody waits for its
confirmation, or it has messages of QoS 2.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Set
from functools import partial
from typing import Any, TypeVar

from vmq.clustering.delivery.outbox_storage import Place, TakenPlaces, full_place_of
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.codec import AnyMessage, WireError, decode, decode_parcel
from vmq.core.context import Core
from vmq.core.on_commit import OnCommit
from vmq_cluster.effects import Arrived
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

# Not final, for tests set them otherwise: a compiled module has constants in its code.
#: Seconds after which is confirmed what nobody waits for, and the bytes that may wait for that: few beside those that a
#: peer has in memory and under way.
LATE = 0.02
LATE_BYTES = 512 * 1024
#: Seconds after which a peer that takes this store for another is told again which it is.
TELL_AGAIN = 1.0

M = TypeVar("M", bound=NodeMessage)


class Inbox:
    """What a node takes from its peers. The node is given before its start.

    Args:
        core: the broker's, with its store.
        node: this node.
        name: the name of the store.
        tell_store: tells a peer the name, which takes this store for another.
    """

    def __init__(
        self, core: Core, node: ClusterNode, name: int, tell_store: Callable[[str], None]
    ) -> None:
        assert core.store is not None, "a node has a store"
        self._core = core
        self._store = store = core.store
        self._node = node
        self._name = name
        self._tell_store = tell_store
        self._handlers: dict[type[NodeMessage], Callable[[str, Any], None]] = {}
        self._for_streams: set[type[NodeMessage]] = set()
        self._is_open = False
        #: What came while the store could take nothing, in order.
        self._untaken: deque[Arrived] = deque()
        #: Peers that take this store for another: what they sent is passed over until they send it to this one.
        self._mistaken: set[str] = set()
        self._tells_again = False
        #: Peers of which it is known that they say more than this broker understands.
        self._newer: set[str] = set()
        self._taken = TakenPlaces(store)
        #: What is to be confirmed late, the last of each peer, and the bytes of all.
        self._late: dict[str, tuple[Arrived, Place | None]] = {}
        self._late_bytes = 0
        self._is_late_due = False
        #: Confirms to each peer what the store and the streams have of what it sent. Nothing else waits with it, as it
        #: may wait for long.
        self._confirming: dict[str, OnCommit] = {}
        #: Goes on when the store, or the streams, have room again.
        self._room = OnCommit(core.outbox, store, self._go_on)
        #: Nothing more is taken from peers: this broker ends, and what comes is for its next life.
        self.is_closed = False
        node.on(Arrived, self._on_arrived)

    def on(self, kind: type[M], handle: Callable[[str, M], None], *, for_streams: bool) -> None:
        """Gives a kind of message its handler; see `vmq.clustering.delivery.outboxes.Outboxes.on`."""
        assert kind not in self._handlers, f"{kind.__name__} has a handler"
        self._handlers[kind] = handle
        if for_streams:
            self._for_streams.add(kind)

    def open(self) -> None:
        """What comes is taken from now on: the sessions that it is for are here."""
        self._is_open = True
        self._go_on()

    def close(self) -> None:
        """What comes waits until it is open again, or its sender is no member any more."""
        self._is_open = False

    def end(self) -> None:
        """Nothing more is taken. The next life knows what was."""
        self.is_closed = True
        self._confirm_late()

    async def settled(self) -> None:
        """Returns when what became of all that was taken is safe."""
        self._confirm_late()
        for confirming in [*self._confirming.values(), self._room]:
            is_safe = asyncio.Event()
            confirming.after(is_safe.set)
            self._core.outbox.flush()
            await is_safe.wait()

    def confirming(self, peer: str) -> OnCommit:
        """Confirms a peer's batches: who handles one has that wait for what it wrote elsewhere (`answer_after`)."""
        confirming = self._confirming.get(peer)
        if confirming is None:
            self._confirming[peer] = confirming = OnCommit(self._core.outbox, self._store)
        return confirming

    def last_taken(self, origin: str, store: int) -> tuple[int, int]:
        """The life and number of the last batch that was taken of a store of another node."""
        return self._taken.last(origin, store)

    def keep(self, peers: Set[str]) -> None:
        """What came of others than these is not taken any more: they are no members."""
        self._untaken = deque(each for each in self._untaken if each.peer in peers)
        for peer in self._late.keys() - peers:
            del self._late[peer]
        for peer in self._confirming.keys() - peers:
            del self._confirming[peer]
        self._newer &= peers
        self._mistaken &= peers

    def _on_arrived(self, effect: Arrived) -> None:
        if not effect.reliable:
            self._take_quick(effect)
        elif self._untaken or not self._is_open:
            self._untaken.append(effect)
        else:
            self._take(effect)
        self._core.outbox.flush()

    def _take_quick(self, effect: Arrived) -> None:
        for raw in effect.payloads:
            try:
                self._handle(effect.peer, [decode(raw)])
            except WireError as error:
                if not self._passes_over(effect.peer, str(error)):
                    self._node.drop(effect.peer, str(error))
                    return

    def _take(self, effect: Arrived) -> None:
        """Handles batches, as far as the store has room for what becomes of them."""
        peer = effect.peer
        confirming = self.confirming(peer)
        faults = []
        taken, place = self._taken, None
        hurries = False
        writes = self._store.writes
        for at, raw in enumerate(effect.payloads):
            if self._is_behind():
                rest = effect.payloads[at:]
                self._untaken.appendleft(Arrived(peer, True, rest, effect.receipt))
                self._wait_for_room()
                break
            try:
                parcel, fault = decode_parcel(raw)
                if parcel.target != self._name:
                    self._tell_store(peer)
                if parcel.target not in (0, self._name):
                    self._tell_until_known(peer)
                    break  # it stays where it is, and what is behind it as well, until the peer knows
                self._mistaken.discard(peer)
                place = full_place_of(parcel)
                hurries = hurries or parcel.hurries
                if taken.is_new(peer, parcel):
                    self._handle(peer, parcel.messages)
                elif taken.is_lacking(peer, parcel):
                    again = [each for each in parcel.messages if type(each) in self._for_streams]
                    self._handle(peer, again)
            except WireError as error:
                fault = str(error)
            if (
                fault
            ):  # it is passed over: it would come again and again, and hold up what is behind it
                faults.append(fault)
        else:
            is_trace = self._store.writes != writes
            if not (hurries or faults or is_trace) and self._may_be_late(effect, confirming):
                self._late[peer] = effect, place
                return
            self._late.pop(peer, None)
            confirming.after(partial(self._confirm, effect, place))
        taken.save(streams_lack=confirming.needs_more())
        if faults and not self._passes_over(peer, faults[0]):
            self._node.drop(peer, faults[0])

    def _tell_until_known(self, peer: str) -> None:
        """A peer may not have heard which store this is, as it did not know this life of the node yet."""
        self._mistaken.add(peer)
        if not self._tells_again and self._core.call_later is not None:
            self._tells_again = True
            self._core.call_later(TELL_AGAIN, self._tell_again)

    def _tell_again(self) -> None:
        self._tells_again = False
        for peer in sorted(self._mistaken):
            self._tell_store(peer)
            self._tell_until_known(peer)

    def _may_be_late(self, effect: Arrived, confirming: OnCommit) -> bool:
        """Whether what left no trace may be confirmed together with what comes next; that is going to be done then."""
        core = self._core
        call_later = core.call_later
        if call_later is None or confirming.needs_more():
            return False
        self._late_bytes += sum(map(len, effect.payloads))
        if self._late_bytes > LATE_BYTES:
            self._confirm_late()
            return False
        if not self._is_late_due:
            self._is_late_due = True
            call_later(LATE, self._on_late)
        return True

    def _on_late(self) -> None:
        self._is_late_due = False
        self._confirm_late()
        self._core.outbox.flush()

    def _confirm_late(self) -> None:
        self._taken.save()
        for peer, (effect, place) in self._late.items():
            self.confirming(peer).after(partial(self._confirm, effect, place))
        self._late.clear()
        self._late_bytes = 0

    def _passes_over(self, peer: str, fault: str) -> bool:
        """Whether what cannot be read is what a later version has to say besides; that is logged once."""
        if self._node.spoken_by(peer) <= self._node.versions.speaks:
            return False
        if peer not in self._newer:
            self._newer.add(peer)
            log.info("passes over what node %s says in a later version: %s", peer, fault)
        return True

    def _is_behind(self) -> bool:
        """Whether publishers would have to wait for the store, or for the streams."""
        store, core = self._store, self._core
        return (
            self.is_closed
            or store.failing
            or core.streams_are_behind
            or store.gathered > core.options.max_uncommitted_writes
        )

    def _wait_for_room(self) -> None:
        core = self._core
        behind = core.waiting_for_streams if core.streams_are_behind else core.waiting_for_store
        behind.append(self._room)

    def _go_on(self) -> None:
        """The store has committed something."""
        if not self._is_open:
            return
        untaken, self._untaken = self._untaken, deque()
        while untaken and not self._untaken:
            self._take(untaken.popleft())
        self._untaken += untaken
        self._core.outbox.flush()

    def _handle(self, peer: str, messages: list[AnyMessage]) -> None:
        handlers = self._handlers
        for message in messages:
            handle = handlers.get(type(message))
            if handle is None:
                log.error("nobody handles a %s of %s", type(message).__name__, peer)
                continue
            try:
                handle(peer, message)
            except Exception:  # a defect here, which the peer must not pay for
                log.exception("cannot handle a %s of %s", type(message).__name__, peer)

    def _confirm(self, effect: Arrived, place: Place | None) -> None:
        """This store and the streams have all that was made of it: the peer may forget it."""
        if place is not None:
            self._taken.streamed(effect.peer, place)
        self._node.confirm(effect)

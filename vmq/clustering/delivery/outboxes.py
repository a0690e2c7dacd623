"""Outboxes: messages to another node, each handled there once and in order, whatever dies in between.

A message goes into this broker's store first, and leaves when that has committed it; some pass it by
(`vmq.clustering.delivery.passing`). The peer handles it once, by its place (`vmq.clustering.delivery.outbox_storage`),
and says so when its own store has that and what the handler wrote. What either side had not committed when it died
comes again, and is not handled again if it had been.

    outboxes.on(Publish, lambda peer, publish: ...)
    outboxes.send("b", publish, done=lambda arrived: ...)

**Bounds.** What waits for one peer is limited in bytes, a window of them in memory. What does not fit is dropped,
counted, and told to plugins; or publishers read no more until there is room, if the peer is up and the options say so.

**Nodes that are gone.** What waits for a node that is no member any more is for others, if for anybody
(`vmq.clustering.delivery.redirect`). A member with another store has lost its disk, and sessions; it gets what waits.
"""

import asyncio
import sys
from collections.abc import Callable, Iterable, Set
from typing import Final

from mypy_extensions import mypyc_attr

from vmq.clustering.delivery.dispatch import BatchDispatch
from vmq.clustering.delivery.dropped import BUFFER_FULL, Dropped
from vmq.clustering.delivery.inbox import Inbox, M
from vmq.clustering.delivery.outbox import Done, PeerOutbox
from vmq.clustering.delivery.outbox_storage import (
    LIFE,
    begin_life,
    born_in,
    outgoing_key,
    stored_lanes,
)
from vmq.clustering.delivery.passing import Passing
from vmq.clustering.delivery.peers import forget_name, put_name, stored_names
from vmq.clustering.messages.codec import AnyMessage, encode
from vmq.clustering.messages.farewell import Farewell
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.store_id import StoreName
from vmq.clustering.messages.streams import Append
from vmq.core.context import Core
from vmq.core.output import Output
from vmq.core.ports import Peers
from vmq.core.queue import LONGEST_PAUSE
from vmq.disk.durable import Confirmations
from vmq_cluster.effects import MembersChanged, PeerDown, PeerUp
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode

#: Seconds between two looks whether other nodes have all that this one has sent.
_LOOK: Final = 0.02


@mypyc_attr(allow_interpreted_subclasses=True)  # those of tests
class Outboxes(Peers):
    """The outboxes from and to this node. The node is given before its start, and tells of its members."""

    def __init__(
        self, core: Core, node: ClusterNode, buffer_bytes: int, ack_remote: bool = False
    ) -> None:
        """Reads what an earlier life left. What this writes has to be committed before the node starts.

        Args:
            core: the broker's, with its store.
            node: this node, not started.
            buffer_bytes: what may wait for one peer.
            ack_remote: publishers are acknowledged when peers have what they `forward`.

        Raises:
            StoreError: the store is damaged.
        """
        assert core.store is not None, "a node has a store"
        self._core = core
        self._store = store = core.store
        self._node = node
        self._buffer_bytes = buffer_bytes
        self._ack_remote = ack_remote
        self._outboxes: dict[str, PeerOutbox] = {}
        self._up: set[str] = set()
        #: The names of the peers' stores, as far as they are known.
        self._names: dict[str, int] = dict(stored_names(store))
        #: Peers that are no members any more, each with the last batch that is for others; it may rise.
        self.lost: dict[str, bytes] = {}
        #: Told of each that is added.
        self.on_lost: Callable[[str], None] = lambda peer: None
        #: Whether the store has not been a node's before.
        self.is_new = store.get(LIFE) is None
        self._name, self._life = begin_life(store, int(core.wall_clock() * 1000), core.choose)
        self.born = born_in(store)
        if self.is_new:
            # By their numbers others tell this node's sessions apart, also from those of a store that it lost.
            store.next_session = max(store.next_session, self._life << 20)
        #: The last batch's number: one for all outboxes, so that a peer that comes back sees it rise, too.
        self._number = 0
        self.dispatch = BatchDispatch(core, node, self._outboxes, buffer_bytes // 4)
        self._passing = Passing(core, node, self.dispatch.begin, self.dispatch.after)
        self.arrivals = Inbox(core, node, self._name, self._tell_store)
        self.dropped = Dropped(core)
        for peer, last, messages, size in stored_lanes(store):
            self._outbox(peer).restore(last, messages, size)
        for peer, name in self._names.items():
            self._outbox(peer).target = name
        if ack_remote:
            core.peers = self
        node.hold()
        node.on(MembersChanged, self._on_members)
        node.on(PeerUp, lambda effect: self._on_up(effect.peer))
        node.on(PeerDown, self._on_down)
        self.on(StoreName, self._on_store)
        self.on(Farewell, self._on_farewell)

    def open(self) -> None:
        """What comes is taken from now on."""
        self.arrivals.open()

    # --- for those who have something to say

    def on(
        self, kind: type[M], handle: Callable[[str, M], None], *, for_streams: bool = False
    ) -> None:
        """Gives a kind of message its handler, which is called with the peer's name and the message.

        It is synchronous: what it writes to the store is committed together with the fact that it was called. One that
        writes to streams instead has `arrivals.confirming(peer)` wait for their commit, and is called again for what a
        crash took.
        """
        self.arrivals.on(kind, handle, for_streams=for_streams)

    def send(self, peer: str, message: AnyMessage, done: Done | None = None) -> bool:
        """Sends a message; returns whether it was taken, and will be handled once and in order.

        `done` is called with True when it was handled and the peer has committed that, with False when it was dropped:
        before this returns if there is no room, later if the peer is no member any more. It is not called any more
        after this broker has died: the message survives, its sender does not.
        """
        outbox = self._outboxes.get(peer)
        size = 0
        if outbox is not None and outbox.takes:
            self._passing.hand_over(outbox)
            before, size = outbox.key, outbox.add(message, self._buffer_bytes)
            if outbox.key is not before:
                self.dispatch.begin(outbox)
        if outbox is None or size <= 0:
            if size:
                self.dropped.add(peer, [message], -size, BUFFER_FULL)
            else:
                self.dropped.messages += 1  # nobody is meant, so there is nobody to tell of
            if done is not None:
                done(False)
            return False
        if done is not None:
            outbox.on_done(done)
        return True

    def move(self, peer: str, message: AnyMessage, wait: Confirmations | None = None) -> bool:
        """Sends what waited elsewhere, whatever waits already; returns whether the peer is a member.

        Acknowledgements that still `wait` do so until the peer has it, too, if the options say so and it is up.
        """
        outbox = self._outboxes.get(peer)
        if outbox is None or not outbox.takes:
            return False
        self._passing.hand_over(outbox)
        before, size = outbox.key, outbox.add(message, sys.maxsize)
        if size <= 0:
            return False
        if outbox.key is not before:
            self.dispatch.begin(outbox)
        if wait is not None and self._ack_remote and peer in self._up:
            outbox.add_to(wait)
        return True

    def forward(
        self, peer: str, message: RemotePublish | Append, qos: int, publisher: Output | None
    ) -> bool:
        """Sends what was published here at `qos`, whose publisher has a connection or not.

        Its acknowledgements wait until it is safe here, or, by the options, until a peer that is up has it. And while
        too much waits for a peer that is up, the client may be read no further.
        """
        core, taken = self._core, False
        outbox = self._outboxes.get(peer)
        is_up = outbox is not None and peer in self._up
        if outbox is not None and publisher is not None and is_up:
            taken = self._passing.take(outbox, message, self._buffer_bytes, publisher)
        taken = taken or self.send(peer, message)
        if outbox is not None and qos == 2:
            outbox.hurry()  # lest a crash there has it come twice to clients whose sessions it ended
        if publisher is None or outbox is None or not is_up:
            return taken
        if taken and self._ack_remote:
            outbox.wait(publisher)
        if core.options.pause_publisher and outbox.size > self._buffer_bytes // 2:
            if outbox.pause(publisher) and core.call_later is not None:
                core.call_later(LONGEST_PAUSE, outbox.resume)
        return taken

    async def say_farewell(self) -> None:
        """Takes nothing more from others, and tells each that is up how far it did: this node leaves, or stops.

        Then they know what they may give to others, and what this node has had.
        """
        self.arrivals.close()
        await self.arrivals.settled()
        for peer in sorted(self._up):
            name = self._names.get(peer)
            if name is None:
                continue
            life, number = self.arrivals.last_taken(peer, name)
            if life:
                self.move(peer, Farewell(name, life, number))
        self.flush()

    async def sent_all(self) -> None:
        """Returns when all peers that are up have confirmed what waits for them."""
        while any(self.has_any(peer) for peer in self._up):  # noqa: ASYNC110 - none of the outboxes tells
            await asyncio.sleep(_LOOK)

    def flush(self) -> None:
        """Ends the pass of who sends outside of any."""
        self._core.outbox.flush()

    def has_room(self, peer: str, size: int) -> bool:
        """Whether a message of about so many bytes is taken, if it is the next one."""
        outbox = self._outboxes.get(peer)
        is_small = outbox is not None and outbox.size + size <= self._buffer_bytes
        return outbox is not None and outbox.takes and (is_small or not outbox.has_any())

    def has_any(self, peer: str) -> bool:
        """Whether anything waits for a peer."""
        outbox = self._outboxes.get(peer)
        return outbox is not None and outbox.has_any()

    def close(self, peer: str) -> PeerOutbox | None:
        """Sends a peer nothing more: this node leaves, and somebody looks through what waits. None: nothing does."""
        outbox = self._outboxes.get(peer)
        if outbox is not None:
            self._passing.keep_all(outbox)
            outbox.seal()
            outbox.settle()
            outbox.rewind()
            outbox.takes = False
        return outbox

    def send_quick(self, peer: str, message: AnyMessage) -> bool:
        """Sends a message at most once; returns whether the peer is up and there was room."""
        try:
            return self._node.send_unreliable(peer, encode(message))
        except ClusterError:
            return False

    def send_at_once(self, peer: str, message: AnyMessage) -> bool:
        """As `send_quick`, in the order of all that is sent so, but not behind what else was said in this pass."""
        try:
            return self._node.send_at_once(peer, encode(message))
        except ClusterError:
            return False

    def is_filling(self, peer: str) -> bool:
        """Whether so much waits for a peer that what can wait elsewhere should."""
        outbox = self._outboxes.get(peer)
        return outbox is not None and outbox.size > self._buffer_bytes // 4

    def waiting(self) -> tuple[int, int]:
        """How many messages wait for peers or for their confirmations, and their bytes."""
        each = self._outboxes.values()
        return sum(outbox.messages for outbox in each), sum(outbox.size for outbox in each)

    def waiting_for(self, peer: str) -> tuple[int, int]:
        """How many messages wait for one peer or for its confirmations, and their bytes."""
        outbox = self._outboxes.get(peer)
        return (0, 0) if outbox is None else (outbox.messages, outbox.size)

    @property
    def life(self) -> int:
        """The number of this life of the broker, which every later one exceeds."""
        return self._life

    @property
    def up(self) -> Set[str]:
        """The peers that can be reached."""
        return self._up

    # --- sending

    def _outbox(self, peer: str) -> PeerOutbox:
        outbox = self._outboxes.get(peer)
        if outbox is None:
            self._outboxes[peer] = outbox = PeerOutbox(peer, self._store, self._next_place)
        return outbox

    def _next_place(self) -> tuple[int, int, int]:
        self._number += 1
        return self._name, self._life, self._number

    def _on_farewell(self, peer: str, message: Farewell) -> None:
        outbox = self._outboxes.get(peer)
        if outbox is not None and message.store == self._name:
            outbox.confirm_up_to(outgoing_key(peer, message.life, message.number))
            self.dispatch.tidy_soon(outbox)

    def wait_for_all(self, output: Output) -> None:
        """Has the answers of an output's pass wait until the peers that are up have all that waits for them."""
        for peer, outbox in self._outboxes.items():
            if outbox.has_any() and peer in self._up:
                outbox.wait(output)

    # --- members

    def _on_members(self, effect: MembersChanged) -> None:
        others = set(effect.members) - {self._node.name}
        belongs = self._node.machine.membership.belongs
        self.arrivals.keep(others)
        for peer in sorted(self._outboxes.keys() - others):
            self._up.discard(peer)
            outbox = self._outboxes[peer]
            if peer in self.lost:
                if outbox.takes:
                    self._lose(outbox)  # it was let in, and is gone again
            elif belongs:
                self._lose(outbox)
            else:
                self.close(peer)  # this node is out: when it is back, what waits goes on
        for peer in sorted(others):
            outbox = self._outbox(peer)
            if not outbox.takes or not outbox.is_open:
                outbox.takes = True
                self._maybe_open(outbox)
        self._core.outbox.flush()

    def _maybe_open(self, outbox: PeerOutbox) -> None:
        if outbox.peer not in self.lost:
            outbox.is_open = True
            self.dispatch.hand_over(outbox)

    def _lose(self, outbox: PeerOutbox) -> None:
        """A peer is no member any more: what waits for it goes to others."""
        self._passing.keep_all(outbox)
        outbox.lose()
        outbox.takes = False
        is_new = outbox.peer not in self.lost
        self.lost[outbox.peer] = outbox.key
        self.dispatch.changed(outbox)
        if is_new:
            self.on_lost(outbox.peer)

    def lose_others(self, members: Iterable[str]) -> None:
        """What waits for peers that were no members any more when this life began goes to others."""
        for peer in sorted(self._outboxes.keys() - set(members) - self.lost.keys()):
            self._lose(self._outboxes[peer])

    # --- which store a peer has

    def _on_up(self, peer: str) -> None:
        self._up.add(peer)
        self._tell_store(peer, True)

    def _tell_store(self, peer: str, asks: bool = False) -> None:
        self.send_quick(peer, StoreName(self._name, asks))

    def _on_store(self, peer: str, message: StoreName) -> None:
        if message.asks:
            self._tell_store(peer)
        outbox = self._outboxes.get(peer)
        before = self._names.get(peer)
        if outbox is None or before == message.name:
            return
        outbox.target = self._names[peer] = message.name
        put_name(self._store, peer, message.name)
        if before is not None:
            self._passing.keep_all(outbox)
            self._node.forget(peer)
            outbox.rewind()
            if outbox.takes:
                self._maybe_open(outbox)

    # --- for who looks through what waited for one that is gone

    def outbox(self, peer: str) -> PeerOutbox:
        """The outbox of a peer that is lost."""
        return self._outboxes[peer]

    def given(self, peer: str) -> None:
        """What waited is with others: what waits now is for the peer, if it is a member again."""
        del self.lost[peer]
        outbox = self._outboxes[peer]
        if outbox.takes:
            outbox.rewind()  # it may remember what is with others now
            self._maybe_open(outbox)
            self._core.outbox.flush()
            return
        del self._outboxes[peer]
        self._names.pop(peer, None)
        forget_name(self._store, peer)
        outbox.messages = outbox.size = 0  # whatever was said of what an earlier life left
        outbox.is_changed = True
        outbox.save_total()

    def _on_down(self, effect: PeerDown) -> None:
        self._up.discard(effect.peer)
        outbox = self._outboxes.get(effect.peer)
        if outbox is not None:
            outbox.settle()
            self._passing.keep_all(outbox)
        self._core.outbox.flush()

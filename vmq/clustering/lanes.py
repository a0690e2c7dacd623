"""Lanes: messages to another node, each handled there once and in order, whatever dies in between.

A message goes into this broker's store first, and leaves when that has committed it. The peer handles it once, by its
place (`vmq.clustering.spool`), and says so when its own store has committed what the handler wrote and the place with
it. Then the message is deleted here. What either side had not committed when it died comes again, and is not handled
again if it had been.

    lanes.on(Publish, lambda peer, publish: ...)
    lanes.send("b", publish, done=lambda arrived: ...)

**Bounds.** What waits for one peer is limited in bytes, of which a window is in memory (`vmq.clustering.lane`). What
does not fit is dropped, counted, and told to plugins; or publishers read no more until there is room, as they do for a
full queue, if the peer is up and the options say so. A node whose own store is behind or cannot write takes nothing
from its peers until it can: what is under way to it then is limited by the channel's window, and waits at its sender.
"""

import logging
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from vmq_hooks.types import DropReason, SubscriberId
from vmq_hooks.types import Message as SeenMessage

from vmq.checkpoint import Checkpoint
from vmq.clustering.lane import Done, Entry, Lane
from vmq.clustering.message import Message
from vmq.clustering.publishes import Publish
from vmq.clustering.spool import Place, Taken, begin_life, place_of, stored_lanes
from vmq.clustering.wire import AnyMessage, WireError, decode, decode_parcel, encode
from vmq.core import Core
from vmq.output import Output, Wait
from vmq.queue import LONGEST_PAUSE
from vmq_cluster.effects import Acknowledged, Arrived, MembersChanged, PeerDown, PeerUp
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

# The reasons of on_message_drop.
BUFFER_FULL: Final = "cluster_buffer_full"
NODE_REMOVED: Final = "cluster_node_removed"

#: Parcels of a removed member that are dropped at once; those behind them wait for the next commit.
DROP_STEP: Final = 64

#: Seconds until the store is read again that could not be, or until what it has can be taken back.
READ_AGAIN: Final = 1.0

M = TypeVar("M", bound=Message)

#: Takes back what waited for a node that is no member any more; returns what it did not take, and the commit of the
#: streams that has the rest (0: the store's has it).
TakeBack = Callable[[list[AnyMessage]], tuple[list[AnyMessage], int]]


def _takes_nothing_back(messages: list[AnyMessage]) -> tuple[list[AnyMessage], int]:
    return messages, 0


class Lanes:
    """The lanes from and to this node. The node is given before its start, and tells of its members."""

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
        self._handlers: dict[type[Message], Callable[[str, Any], None]] = {}
        self._for_streams: set[type[Message]] = set()
        self._lanes: dict[str, Lane] = {}
        #: Those with something that the next commit has to have whole.
        self._changed: set[Lane] = set()
        self._up: set[str] = set()
        #: What came while the store could take nothing, in order.
        self._untaken: deque[Arrived] = deque()
        self._taken = Taken(store)
        self._name, self._life = begin_life(store, int(core.wall_clock() * 1000), core.choose)
        #: The last parcel's number: one for all lanes, so that a peer that comes back sees it rise, too.
        self._number = 0
        #: Runs what has to wait for the store, the streams' and the replicas' gates included.
        self.checkpoint = Checkpoint(core.outbox, store, self._go_on)
        self._disk = Checkpoint(core.outbox, store, on_disk=True)
        #: The same of what is confirmed to peers, which may wait for the streams, too; they hold up nothing else.
        self.confirming = Checkpoint(core.outbox, store, self._go_on)
        #: Nothing more is taken from peers: this broker ends, and what comes is for its next life.
        self.is_closed = False
        #: Asked before anything of a lane that ends is dropped; nothing is while it is not there yet.
        self.take_back: TakeBack | None = _takes_nothing_back
        #: Lanes that have ended, and are not empty yet.
        self.drops = 0
        #: Messages for lanes that were dropped since the start, and their bytes.
        self.dropped = 0
        self.dropped_bytes = 0
        for peer, last, messages, size in stored_lanes(store):
            self._lane(peer).restore(last, messages, size)
        if ack_remote:
            core.wait_for_nodes = self._wait_for_all
        node.hold()
        node.on(MembersChanged, self._on_members)
        node.on(PeerUp, lambda effect: self._up.add(effect.peer))
        node.on(PeerDown, self._on_down)
        node.on(Arrived, self._on_arrived)
        node.on(Acknowledged, self._on_acknowledged)

    # --- for those who have something to say

    def on(
        self, kind: type[M], handle: Callable[[str, M], None], *, for_streams: bool = False
    ) -> None:
        """Gives a kind of message its handler, which is called with the peer's name and the message.

        It is synchronous: what it writes to the store is committed together with the fact that it was called. One that
        writes to streams instead has `confirming` wait for their commit, and is called again for what a crash took.
        """
        assert kind not in self._handlers, f"{kind.__name__} has a handler"
        self._handlers[kind] = handle
        if for_streams:
            self._for_streams.add(kind)

    def send(self, peer: str, message: AnyMessage, done: Done | None = None) -> bool:
        """Sends a message; returns whether it was taken, and will be handled once and in order.

        `done` is called with True when it was handled and the peer has committed that, with False when it was dropped:
        before this returns if there is no room, later if the peer is no member any more. It is not called any more
        after this broker has died: the message survives, its sender does not.
        """
        lane = self._lanes.get(peer)
        size = 0
        if lane is not None and lane.is_open:
            before = lane.key
            size = lane.add(message, self._buffer_bytes)
            if lane.key is not before:
                self._begin(lane)
        if lane is None or size <= 0:
            self._count_dropped(1, -size)
            if size:
                self._tell_dropped(peer, message, BUFFER_FULL)
            if done is not None:
                done(False)
            return False
        if done is not None:
            lane.on_done(done)
        return True

    def move(self, peer: str, message: AnyMessage, wait: Wait | None = None) -> bool:
        """Sends what waited elsewhere, whatever waits already; returns whether the peer is a member.

        Acknowledgements that still `wait` do so until the peer has it, too, if the options say so and it is up.
        """
        lane = self._lanes.get(peer)
        if lane is None or not lane.is_open:
            return False
        before = lane.key
        if lane.add(message, sys.maxsize) <= 0:
            return False
        if lane.key is not before:
            self._begin(lane)
        if wait is not None and self._ack_remote and peer in self._up:
            lane.add_to(wait)
        return True

    def forward(self, peer: str, message: AnyMessage) -> bool:
        """Sends what the client published whose packets are handled now.

        By the options its acknowledgements wait until the peer has it, or is down: then this store has it. And while
        too much waits for a peer that is up, the client may be read no further.
        """
        taken = self.send(peer, message)
        core = self._core
        publisher = core.publisher
        if publisher is None or peer not in self._up:
            return taken
        lane = self._lanes[peer]
        if taken and self._ack_remote:
            lane.wait(publisher)
        if core.options.pause_publisher and lane.size > self._buffer_bytes // 2:
            if lane.pause(publisher) and core.call_later is not None:
                core.call_later(LONGEST_PAUSE, lane.resume)
        return taken

    def flush(self) -> None:
        """Ends the pass of who sends outside of any."""
        self._core.outbox.flush()

    def has_room(self, peer: str, size: int) -> bool:
        """Whether a message of about so many bytes is taken, if it is the next one."""
        lane = self._lanes.get(peer)
        if lane is None or not lane.is_open:
            return False
        return lane.size + size <= self._buffer_bytes or not lane.has_any()

    def has_any(self, peer: str) -> bool:
        """Whether anything waits for a peer."""
        lane = self._lanes.get(peer)
        return lane is not None and lane.has_any()

    def give_up(self, peer: str) -> None:
        """This node leaves, and sends a peer nothing more that is down: what waits for it is taken back, or dropped."""
        lane = self._lanes.pop(peer, None)
        if lane is not None:
            self._end(lane)

    def send_quick(self, peer: str, message: AnyMessage) -> bool:
        """Sends a message at most once; returns whether the peer is up and there was room."""
        try:
            return self._node.send_unreliable(peer, encode(message))
        except ClusterError:
            return False

    def is_filling(self, peer: str) -> bool:
        """Whether so much waits for a peer that what can wait elsewhere should."""
        lane = self._lanes.get(peer)
        return lane is not None and lane.size > self._buffer_bytes // 4

    def waiting(self) -> tuple[int, int]:
        """How many messages wait for peers or for their confirmations, and their bytes."""
        lanes = self._lanes.values()
        return sum(lane.messages for lane in lanes), sum(lane.size for lane in lanes)

    def before_commit(self) -> None:
        """Puts everything into the commit that belongs to it; to be called before each."""
        for lane in self._changed:
            lane.seal()
            lane.save_total()
        self._changed.clear()

    @property
    def life(self) -> int:
        """The number of this life of the broker, which every later one exceeds."""
        return self._life

    # --- sending

    def _lane(self, peer: str) -> Lane:
        lane = self._lanes.get(peer)
        if lane is None:
            self._lanes[peer] = lane = Lane(peer, self._store, self._next_place)
        return lane

    def _next_place(self) -> tuple[int, int, int]:
        self._number += 1
        return self._name, self._life, self._number

    def _begin(self, lane: Lane) -> None:
        """A lane has a new parcel: it goes into this commit, and then to the peer.

        Not before: a peer must not have what this broker, started again, would take anew from its publisher.
        """
        key = lane.key
        self._changed.add(lane)
        self.checkpoint.after(partial(self._on_safe, lane, key))
        self._disk.after(partial(self._on_written, lane, key))

    def _on_safe(self, lane: Lane, key: bytes) -> None:
        lane.seal()  # where nobody waits for commits
        lane.safe(key)
        self._hand_over(lane)

    def _on_written(self, lane: Lane, key: bytes) -> None:
        lane.written(key)
        self._hand_over(lane)

    def _hand_over(self, lane: Lane) -> None:
        """What this store has may go."""
        if not lane.is_open:
            return
        if not self._node.is_running:
            lane.settle()  # the node failed, and nobody tells of its peers any more
            return
        try:
            for entry in lane.take():
                self._node.send(lane.peer, entry.payload, entry)
        except ClusterError:
            return  # it is no member any more, which `_on_members` is about to hear
        except Exception:
            log.exception("cannot read what waits for %s; it is tried again", lane.peer)
            if self._core.call_later is not None:
                self._core.call_later(READ_AGAIN, partial(self._hand_over, lane))

    def _on_acknowledged(self, effect: Acknowledged) -> None:
        lane = self._lanes.get(effect.peer)
        if lane is None:
            return
        for entry in effect.tickets:
            lane.confirm(entry)
        self._changed.add(lane)
        if lane.size <= self._buffer_bytes // 4:
            lane.resume()
        self._hand_over(lane)
        self._core.outbox.flush()

    def _wait_for_all(self, output: Output) -> None:
        for peer in self._up:
            lane = self._lanes.get(peer)
            if lane is not None and lane.has_any():
                lane.wait(output)

    def _count_dropped(self, messages: int, size: int) -> None:
        self.dropped += messages
        self.dropped_bytes += size

    def _tell_dropped(self, peer: str, message: Message, reason: DropReason) -> None:
        core = self._core
        hook = core.hooks.on_message_drop
        if hook is None or not isinstance(message, Publish):
            return
        seen = SeenMessage(message.topic.decode(), message.payload, message.qos, message.retain)
        # The subscriber is the node: who of its clients misses the message only that one knows.
        subscriber = SubscriberId(client_id=peer, mountpoint=message.mountpoint)
        core.tell("on_message_drop", hook, subscriber, lambda: seen, reason)

    # --- members

    def _on_members(self, effect: MembersChanged) -> None:
        others = set(effect.members) - {self._node.name}
        self._taken.forget_others(others)
        self._untaken = deque(each for each in self._untaken if each.peer in others)
        for peer in sorted(self._lanes.keys() - others):
            self._end(self._lanes.pop(peer))
        for peer in sorted(others):
            lane = self._lane(peer)
            if not lane.is_open:
                lane.is_open = True
                self._hand_over(lane)
        self._core.outbox.flush()

    def _on_down(self, effect: PeerDown) -> None:
        self._up.discard(effect.peer)
        lane = self._lanes.get(effect.peer)
        if lane is not None:
            lane.settle()
            self._core.outbox.flush()

    def _end(self, lane: Lane) -> None:
        """A peer is no member any more: nobody will ask for what waits for it, which may be a lot."""
        self._up.discard(lane.peer)
        lane.end()
        self.drops += 1
        self._disk.after(partial(self._drop, lane))

    def _drop(self, lane: Lane) -> None:
        """Has a step of what waited for a peer that is no member any more taken back or dropped, and the rest later."""
        if self.is_closed:
            return
        if self.take_back is None:
            if self._core.call_later is not None:
                self._core.call_later(READ_AGAIN, partial(self._drop, lane))
            return
        entries: list[Entry] = []
        commit = 0
        try:
            for entry in lane.drop(DROP_STEP):
                entries.append(entry)
                parcel, _ = decode_parcel(entry.payload)
                left, number = self.take_back(parcel.messages)
                commit = max(commit, number)
                self._count_dropped(len(left), sum(len(encode(each)) for each in left))
                for message in left:
                    self._tell_dropped(lane.peer, message, NODE_REMOVED)
        except Exception:
            log.exception("cannot drop all that waited for %s", lane.peer)
            return
        if commit:  # not before the streams have it: they have commits of their own
            self.confirming.stream_barrier = max(self.confirming.stream_barrier, commit)
            self.confirming.after(partial(lane.forget, entries))
        else:
            lane.forget(entries)
        if entries:
            self._disk.after(partial(self._drop, lane))
            return
        self.drops -= 1
        if lane.peer not in self._lanes:
            lane.save_total()

    # --- receiving

    def _on_arrived(self, effect: Arrived) -> None:
        if effect.reliable:
            if self._untaken:
                self._untaken.append(effect)
            else:
                self._take(effect)
        else:
            self._take_quick(effect)
        self._core.outbox.flush()

    def _take_quick(self, effect: Arrived) -> None:
        for raw in effect.payloads:
            try:
                self._handle(effect.peer, [decode(raw)])
            except WireError as error:
                self._node.drop(effect.peer, str(error))
                return

    def _take(self, effect: Arrived) -> None:
        """Handles parcels, as far as the store has room for what becomes of them."""
        peer = effect.peer
        faults = []
        taken, place = self._taken, None
        for at, raw in enumerate(effect.payloads):
            if self._is_behind():
                rest = effect.payloads[at:]
                self._untaken.appendleft(Arrived(peer, True, rest, effect.receipt))
                self._wait_for_room()
                break
            try:
                parcel, fault = decode_parcel(raw)
                place = place_of(parcel)
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
            self.confirming.after(partial(self._confirm, effect, place))
        streams = self._core.outbox.streams_committed
        taken.save(streams_lack=self.confirming.stream_barrier > streams)
        if faults:
            self._node.drop(peer, faults[0])

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
        if core.streams_are_behind:
            core.waiting_for_streams.append(self.checkpoint)
        else:
            core.waiting_for_store.append(self.checkpoint)

    def _go_on(self) -> None:
        """The store has committed something."""
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
        if self._node.is_running:
            self._node.confirm(effect)

"""Lanes: messages to another node, each handled there once and in order, whatever dies in between.

A message goes into this broker's store first, and leaves when that has committed it. The peer handles it once, by its
place (`vmq.clustering.spool`), and says so when its own store has committed what the handler wrote and the place with
it. Then the message is deleted here. What either side had not committed when it died comes again, and is not handled
again if it had been.

    lanes.on(Publish, lambda peer, publish: ...)
    lanes.send("b", publish, done=lambda arrived: ...)

What waits for one peer is bounded; what does not fit is dropped, counted, and told to plugins.
"""

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from vmq_hooks.types import Message as SeenMessage
from vmq_hooks.types import SubscriberId

from vmq.checkpoint import Checkpoint
from vmq.clustering.message import Message
from vmq.clustering.publishes import Publish
from vmq.clustering.spool import Taken, begin_life, outgoing_key, stored_outgoing
from vmq.clustering.wire import AnyMessage, Parcel, WireError, decode, decode_parcel, encode
from vmq.core import Core
from vmq_cluster.channels import OVERHEAD
from vmq_cluster.effects import Acknowledged, Arrived, MembersChanged
from vmq_cluster.errors import ClusterError
from vmq_cluster.messages import MAX_PAYLOAD
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

#: The reason of on_message_drop.
BUFFER_FULL: Final = "cluster_buffer_full"

M = TypeVar("M", bound=Message)
Done = Callable[[bool], None]


class Entry:
    """A message that a peer has not confirmed."""

    __slots__ = ("done", "key", "payload")

    def __init__(self, key: bytes, payload: bytes, done: Done | None) -> None:
        self.key = key
        self.payload = payload
        self.done = done


class Lane:
    """What waits for one peer."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque()
        self.size = 0
        self.last_number = 0
        #: Whether the peer was seen to be a member in this life.
        self.is_open = False

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self.size += len(entry.payload) + OVERHEAD

    def pop(self) -> Entry:
        entry = self.entries.popleft()
        self.size -= len(entry.payload) + OVERHEAD
        return entry


class Lanes:
    """The lanes from and to this node. The node is given before its start, and tells of its members."""

    def __init__(self, core: Core, node: ClusterNode, buffer_bytes: int) -> None:
        """Reads what an earlier life left. What this writes has to be committed before the node starts.

        Args:
            core: the broker's, with its store.
            node: this node, not started.
            buffer_bytes: what may wait for one peer.

        Raises:
            StoreError: the store is damaged.
        """
        assert core.store is not None, "a node has a store"
        self._core = core
        self._store = store = core.store
        self._node = node
        self._buffer_bytes = buffer_bytes
        self._handlers: dict[type[Message], Callable[[str, Any], None]] = {}
        self._lanes: dict[str, Lane] = {}
        self._taken = Taken(store)
        self._name, self._life = begin_life(store, int(core.wall_clock() * 1000), core.choose)
        #: Runs what has to wait for the store, the streams' and the replicas' gates included.
        self.checkpoint = Checkpoint(core.outbox, store)
        #: Messages for lanes that were dropped since the start, and their bytes.
        self.dropped = 0
        self.dropped_bytes = 0
        for peer, key, payload in stored_outgoing(store):
            self._lanes.setdefault(peer, Lane()).add(Entry(key, payload, None))
        node.hold()
        node.on(MembersChanged, self._on_members)
        node.on(Arrived, self._on_arrived)
        node.on(Acknowledged, self._on_acknowledged)

    # --- for those who have something to say

    def on(self, kind: type[M], handle: Callable[[str, M], None]) -> None:
        """Gives a kind of message its handler, which is called with the peer's name and the message.

        It is synchronous: what it writes to the store is committed together with the fact that it was called.
        """
        assert kind not in self._handlers, f"{kind.__name__} has a handler"
        self._handlers[kind] = handle

    def send(self, peer: str, message: AnyMessage, done: Done | None = None) -> bool:
        """Sends a message; returns whether it was taken, and will be handled once and in order.

        `done` is called with True when it was handled and the peer has committed that, with False when it was dropped:
        before this returns if there is no room, later if the peer is no member any more. It is not called any more
        after this broker has died: the message survives, its sender does not.
        """
        lane = self._lanes.get(peer)
        payload, key = b"", b""
        if lane is not None and lane.is_open:
            number = lane.last_number + 1
            payload = encode(Parcel(self._name, self._life, number, message))
            key = outgoing_key(peer, self._life, number)
        if lane is None or not key or not self._has_room(lane, payload):
            self._drop(peer, message, len(payload), is_full=bool(key))
            if done is not None:
                done(False)
            return False
        lane.last_number += 1
        entry = Entry(key, payload, done)
        lane.add(entry)
        self._store.put(key, payload)
        # Not before: a peer must not have what this broker, started again, would take anew from its publisher.
        self.checkpoint.after(partial(self._hand_over, peer, lane, entry))
        return True

    def send_quick(self, peer: str, message: AnyMessage) -> bool:
        """Sends a message at most once; returns whether the peer is up and there was room."""
        try:
            return self._node.send_unreliable(peer, encode(message))
        except ClusterError:
            return False

    def waiting(self) -> tuple[int, int]:
        """How many messages wait for peers or for their confirmations, and what they count in bytes."""
        lanes = self._lanes.values()
        return sum(len(lane.entries) for lane in lanes), sum(lane.size for lane in lanes)

    # --- sending

    def _has_room(self, lane: Lane, payload: bytes) -> bool:
        """Whether a message can wait; one alone may be as long as a channel allows."""
        if len(payload) > MAX_PAYLOAD:
            return False
        return not lane.entries or lane.size + len(payload) + OVERHEAD <= self._buffer_bytes

    def _hand_over(self, peer: str, lane: Lane, entry: Entry) -> None:
        """This store has it: it may go."""
        if self._lanes.get(peer) is lane and self._node.is_running:
            self._node.send(peer, entry.payload, entry)

    def _on_acknowledged(self, effect: Acknowledged) -> None:
        lane = self._lanes.get(effect.peer)
        for entry in effect.tickets:
            if lane is None or not lane.entries or lane.entries[0] is not entry:
                continue  # the peer was no member meanwhile
            lane.pop()
            self._store.delete(entry.key)
            if entry.done is not None:
                entry.done(True)
        self._core.outbox.flush()

    def _drop(self, peer: str, message: Message, size: int, is_full: bool) -> None:
        self.dropped += 1
        self.dropped_bytes += size
        core = self._core
        hook = core.hooks.on_message_drop
        if not is_full or hook is None or not isinstance(message, Publish):
            return
        seen = SeenMessage(message.topic.decode(), message.payload, message.qos, message.retain)
        # The subscriber is the node: who of its clients misses the message only that one knows.
        subscriber = SubscriberId(client_id=peer, mountpoint=message.mountpoint)
        core.tell("on_message_drop", hook, subscriber, lambda: seen, BUFFER_FULL)

    # --- members

    def _on_members(self, effect: MembersChanged) -> None:
        others = set(effect.members) - {self._node.name}
        self._taken.forget_others(others)
        for peer in sorted(self._lanes.keys() - others):
            self._end(self._lanes.pop(peer))
        for peer in sorted(others):
            lane = self._lanes.setdefault(peer, Lane())
            if not lane.is_open:
                lane.is_open = True
                for entry in lane.entries:
                    self._hand_over(peer, lane, entry)
        self._core.outbox.flush()

    def _end(self, lane: Lane) -> None:
        """A peer is no member any more: nobody will ask for what waited for it."""
        while lane.entries:
            entry = lane.pop()
            self._store.delete(entry.key)
            self.dropped += 1
            self.dropped_bytes += len(entry.payload)
            if entry.done is not None:
                entry.done(False)

    # --- receiving

    def _on_arrived(self, effect: Arrived) -> None:
        fault = ""
        for raw in effect.payloads:
            try:
                if effect.reliable:
                    parcel = decode_parcel(raw)
                    if self._taken.is_new(effect.peer, parcel):
                        self._handle(effect.peer, parcel.message)
                else:
                    self._handle(effect.peer, decode(raw))
            except WireError as error:
                # It is passed over: it would come again and again, and hold up what is behind it.
                fault = fault or str(error)
        if effect.reliable:
            self._taken.save()
            self.checkpoint.after(partial(self._confirm, effect))
        if fault:
            self._node.drop(effect.peer, fault)
        self._core.outbox.flush()

    def _handle(self, peer: str, message: AnyMessage) -> None:
        handle = self._handlers.get(type(message))
        if handle is None:
            log.error("nobody handles a %s of %s", type(message).__name__, peer)
            return
        try:
            handle(peer, message)
        except Exception:  # a defect here, which the peer must not pay for
            log.exception("cannot handle a %s of %s", type(message).__name__, peer)

    def _confirm(self, effect: Arrived) -> None:
        """This store has all that was made of it: the peer may forget it."""
        if self._node.is_running:
            self._node.confirm(effect)

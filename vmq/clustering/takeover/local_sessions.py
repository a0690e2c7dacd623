"""What moving asks of this node's sessions: to take one apart, to put one together, and to wait at its gate.

What leaves a session leaves the store with the commit that has it in the outbox, and what comes is stored with the
commit that takes it off: see `vmq.clustering.delivery.outboxes`. A ghost keeps its session record, so that it is a
session again after a restart, which the same rules hand over.

Held messages are stored as well (`h`), since their publishers' nodes forget them. After a restart they just wait.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, Final

from vmq.clustering.messages.takeover import RELEASED, RETAIN, SessionMessage, Who
from vmq.clustering.routing.stale_routes_stored import StoredStaleRoutes
from vmq.clustering.takeover.port import BufferVerdict, SessionKind, SessionUnreadableError
from vmq.core.context import Core
from vmq.core.detached import adopt, attach, detach, forget
from vmq.core.ports import SessionListener
from vmq.core.queue import Queue
from vmq.core.registry import Registry
from vmq.core.source import Source
from vmq.core.subscriber import Subscriber
from vmq.core.waiting import QUEUE_FULL
from vmq.mqtt.message import NO_MESSAGE, Delivery, Message
from vmq.store.lines import is_end, scan
from vmq.store.store import DAMAGED, Store, StoreError

log = logging.getLogger("vmq.cluster")

HELD: Final = b"h"

#: So much of a session goes in one message; one entry goes whatever its size is.
BATCH_ENTRIES: Final = 500
BATCH_BYTES: Final = 256 * 1024


class BufferedMessage:
    """A message that waits at a gate."""

    __slots__ = ("delivery", "key", "origin")

    def __init__(self, origin: str, key: bytes, delivery: Delivery) -> None:
        self.origin = origin
        self.key = key
        self.delivery = delivery


class LocalSessions:
    """The sessions of one broker that is a node; half of `vmq.clustering.takeover.port.TakeoverPort`.

    Args:
        core: the broker's, with its store.
        registries: the topic trees that there are.
        find: the topic tree of a mountpoint, made when first asked for.
    """

    def __init__(
        self, core: Core, registries: Mapping[str, Registry], find: Callable[[str], Registry]
    ) -> None:
        assert core.store is not None, "a node has a store"
        self._core = core
        self._store: Store = core.store
        self._registries = registries
        self._find = find
        self._ghosts: dict[Who, Subscriber] = {}
        self._held: dict[Who, list[BufferedMessage]] = {}
        self._held_bytes: dict[Who, int] = {}
        self._last_held = 0
        #: Which nodes route which sessions elsewhere.
        self.passing = StoredStaleRoutes(self._store)
        #: Sessions that went to other nodes since the start, and that came from them.
        self.handed_over = 0
        self.taken_in = 0

    # --- to be said by whoever drives the moves

    def verdict(self, who: Who, origin: str) -> BufferVerdict:
        """What becomes of a message at a session's gate."""
        raise NotImplementedError

    def haunts(self, who: Who, origin: str) -> bool:
        """Whether a ghost takes a message."""
        raise NotImplementedError

    def user(self, who: Who) -> str:
        """The user whose session it is, by what is known of it everywhere; "" if nobody knows."""
        raise NotImplementedError

    def ghost_took(self, who: Who) -> None:
        """It has one to send on."""
        raise NotImplementedError

    # --- what is here

    def kind(self, who: Who) -> SessionKind:
        """What is here of a session."""
        subscriber = self._subscriber(who)
        if subscriber is None:
            return SessionKind.NONE
        return SessionKind.DURABLE if subscriber.queue.durable else SessionKind.CLEAN

    def _subscriber(self, who: Who) -> Subscriber | None:
        registry = self._registries.get(who[0])
        return None if registry is None else registry.subscribers.get(who[1])

    def close_client(self, who: Who) -> None:
        """Ends the session's connection, if it has one."""
        subscriber = self._subscriber(who)
        if subscriber is not None and subscriber.output is not None:
            self._core.counters.takeovers += 1
            subscriber.output.close("taken over by a connection to another node [MQTT-3.1.4-2]")

    def is_damaged(self, who: Who) -> bool:
        """Whether something of a durable session here, or of its ghost, cannot be read."""
        subscriber = self._subscriber(who) or self._ghosts.get(who)
        if subscriber is None or not subscriber.queue.durable:
            return False
        return self._store.refuses_session(subscriber.queue.session)

    def ghosts(self) -> Iterable[tuple[Registry, Subscriber]]:
        """What is kept apart of sessions on their way to other nodes."""
        return [(self._find(who[0]), ghost) for who, ghost in self._ghosts.items()]

    def cut_off(self, who: Who, node: str) -> None:
        """Ends the connection of a session of which another node's store has a part, damaged."""
        subscriber = self._subscriber(who)
        if subscriber is not None and subscriber.output is not None:
            log.error("client=%s is refused: node %r: %s", who[1], node, DAMAGED)
            subscriber.output.close(f"node {node!r}: {DAMAGED} [MQTT-4.8.0-2]")

    # --- a session is put together

    def build(self, who: Who, subscriptions: dict[str, int]) -> None:
        """Makes a durable session that subscribes to just this; its record is the caller's business."""
        registry = self._find(who[0])
        core = self._core
        told, core.sessions = core.sessions, SessionListener()
        try:
            subscriber = registry.subscribers.get(who[1])
            if subscriber is None:
                subscriber = adopt(registry, who[1], subscriptions, self.user(who) or None)
                self.taken_in += 1
                self._begin_anywhere(subscriber.queue)
                return
            for topic_filter in list(subscriber.subscriptions):
                if topic_filter not in subscriptions:
                    registry.unsubscribe(subscriber, topic_filter)
            for topic_filter, qos in subscriptions.items():
                registry.subscribe(subscriber, topic_filter, qos)
        finally:
            core.sessions = told

    def _begin_anywhere(self, queue: Queue) -> None:
        """Its client may have packet ids open that are out of reach: new ones shall be others."""
        queue.inflight.last_packet_id = self._core.choose(65_535)

    def receive(self, who: Who, packet_ids: list[int]) -> None:
        """Gives a session the QoS 2 packet ids that it received elsewhere, in place of its own."""
        subscriber = self._subscriber(who)
        if subscriber is None:
            return
        received = subscriber.received_ids(self._core)
        session = subscriber.queue.session
        for packet_id in set(received).difference(packet_ids):
            self._store.remove_received(session, packet_id)
        for packet_id in packet_ids:
            self._store.put_received(session, packet_id)
        received.clear()
        received.update(packet_ids)

    def add(self, who: Who, entries: list[SessionMessage]) -> None:
        """Gives a session, or its ghost, messages that it had elsewhere."""
        subscriber = self._subscriber(who) or self._ghosts.get(who)
        if subscriber is None:
            return
        queue = subscriber.queue
        queue.load_inflight()
        for each in entries:
            if each.packet_id and each.packet_id not in queue.inflight:
                self._put_in_flight(queue, each)
            elif not each.released and not self._is_revoked(who, each):
                message = Message(each.topic, each.payload, each.qos, each.retain)
                queue.let_in(message, each.qos, each.retain, each.group)

    def _is_revoked(self, who: Who, entry: SessionMessage) -> bool:
        """Whether a message on its way here is for a subscription that was taken away meanwhile."""
        subscriber = self._subscriber(who)
        if subscriber is None:
            return False
        if self._core.options.sessions_are_users and not subscriber.queue.revoked:
            return False  # else it may be of another user's session
        return not self._find(who[0]).wants(subscriber.queue, entry.topic, entry.group)

    def give_deliveries(self, who: Who, deliveries: list[Delivery]) -> None:
        """The same of messages that are not from afar."""
        self.add(who, [_entry_of(each) for each in deliveries])

    def _put_in_flight(self, queue: Queue, entry: SessionMessage) -> None:
        message = NO_MESSAGE
        if not entry.released:
            message = Message(entry.topic, entry.payload, entry.qos, entry.retain)
        delivery = Delivery(message, entry.qos, entry.retain, entry.group)
        delivery.packet_id = entry.packet_id
        delivery.released = entry.released
        delivery.order = queue.next_order
        queue.next_order += 1
        queue.inflight.put(delivery)
        self._store.put_inflight(queue.session, delivery)
        queue.count_inflight()
        if queue.online:
            queue.output.deliver_after(queue.output.outbox.stored, self._store.barrier())
            queue.send_again(delivery)

    # --- who routes it elsewhere

    def elsewhere(self, who: Who) -> Set[str]:
        """The nodes that route a session, or its ghost, elsewhere."""
        return self.passing.nodes(who)

    def set_elsewhere(self, who: Who, nodes: Set[str]) -> None:
        """These are they from now on."""
        subscriber = self._subscriber(who)
        if subscriber is None or not subscriber.queue.durable:
            subscriber = self._ghosts.get(who)
        if subscriber is None:
            self.passing.remove(who)
        else:
            self.passing.set(who, subscriber.queue.session, nodes)

    def all_elsewhere(self) -> Iterable[Who]:
        """The sessions of which there are such nodes."""
        return self.passing

    # --- its gate

    def open_gate(self, who: Who) -> None:
        """Asks for a verdict on each message for the session from now on."""
        subscriber = self._subscriber(who)
        if subscriber is None:
            return
        queue = subscriber.queue

        def admits(message: Message, qos: int, retain: bool, source: Source) -> bool:
            verdict = self.verdict(who, source.node)
            if verdict is BufferVerdict.TAKE_FROM_LANE:
                return qos > 0
            # At QoS 0 nothing comes by way of the former owner, so that nothing has to be waited for.
            if verdict is BufferVerdict.HOLD and qos:
                self._hold(who, queue, Delivery(message, qos, retain, ""), source.node)
                return False
            return verdict is not BufferVerdict.DROP

        queue.set_gate(admits)

    def _hold(self, who: Who, queue: Queue, delivery: Delivery, origin: str) -> None:
        held = self._held.setdefault(who, [])
        limit, most = queue.options.max_offline_messages, queue.options.max_bytes
        size = self._held_bytes.get(who, 0) + delivery.message.length()
        if 0 <= limit <= len(held) or 0 <= most < size:
            queue.drop(delivery, QUEUE_FULL)
            return
        self._held_bytes[who] = size
        self._last_held += 1
        key = HELD + queue.session + self._last_held.to_bytes(8, "big")
        held.append(BufferedMessage(origin, key, delivery))
        self._store.put(key, origin.encode() + b"\0" + self._store.entry(delivery))

    def release(self, who: Who, origin: str) -> None:
        """Gives the session what was held of an origin's messages."""
        held = self._held.get(who)
        if held:
            self._let_in(who, [each for each in held if each.origin == origin])
            self._held[who] = rest = [each for each in held if each.origin != origin]
            self._held_bytes[who] = sum(each.delivery.message.length() for each in rest)

    def close_gate(self, who: Who) -> None:
        """Gives it all that was held, and asks no more."""
        self._let_in(who, self._held.pop(who, []))
        self._held_bytes.pop(who, None)
        subscriber = self._subscriber(who)
        if subscriber is not None:
            subscriber.queue.set_gate(None)

    def _let_in(self, who: Who, held: list[BufferedMessage]) -> None:
        subscriber = self._subscriber(who)
        for each in held:
            self._store.delete(each.key)
            if subscriber is not None:
                delivery = each.delivery
                subscriber.queue.let_in(delivery.message, delivery.qos, delivery.retain, "")

    def load(self) -> None:
        """Goes on with what an earlier life of this broker has left: sessions get what it held for them."""
        store = self._store
        queues = {
            subscriber.queue.session: subscriber.queue
            for registry in self._registries.values()
            for subscriber in registry.subscribers.values()
        }
        for key, value in list(scan(store.db, HELD)):
            if is_end(key):
                continue
            queue = queues.get(key[1:9])
            delivery = store.read_entry(value.partition(b"\0")[2])
            if queue is not None and delivery is not None:
                queue.let_in(delivery.message, delivery.qos, delivery.retain, "")
            store.delete(key)
        self.passing.load(
            {self._find(who[0]).subscribers[who[1]].queue.session: who for who in self.durable()}
        )

    # --- a session is taken apart

    def make_ghost(self, who: Who) -> None:
        """Keeps a session's subscriptions and messages apart."""
        subscriber = self._subscriber(who)
        assert subscriber is not None, "only what is here can go"
        self.handed_over += 1
        detach(self._find(who[0]), subscriber)
        self._ghosts[who] = subscriber

        def admits(_message: Message, qos: int, _retain: bool, source: Source) -> bool:
            if not qos or not self.haunts(who, source.node):
                return False
            self.ghost_took(who)
            return True

        subscriber.queue.set_gate(admits)

    def revive(self, who: Who) -> None:
        """Makes the ghost the session again."""
        subscriber = self._ghosts.pop(who)
        attach(self._find(who[0]), subscriber)
        subscriber.queue.set_gate(None)
        self._begin_anywhere(subscriber.queue)

    def end_ghost(self, who: Who) -> None:
        """Forgets the ghost."""
        self.passing.remove(who)
        forget(self._find(who[0]), self._ghosts.pop(who))

    def state(self, who: Who) -> tuple[dict[str, int], list[int]]:
        """The ghost's subscriptions, and the QoS 2 packet ids that it received."""
        ghost = self._ghosts[who]
        self._core.jobs.on_moving(ghost.queue.session)
        subscriptions = {name: each.qos for name, each in ghost.subscriptions.items()}
        try:
            return subscriptions, ghost.known_ids(self._core)
        except StoreError as error:
            raise _unreadable(who, error) from error

    def forget_received(self, who: Who) -> None:
        """These packet ids are another node's business now."""
        ghost = self._ghosts[who]
        received = ghost.received_ids(self._core)
        for packet_id in received:
            self._store.remove_received(ghost.queue.session, packet_id)
        received.clear()

    def take_inflight(self, who: Who) -> list[SessionMessage]:
        """Takes the next of what was in flight out of the ghost."""
        queue = self._ghosts[who].queue
        try:
            queue.load_inflight()
        except StoreError as error:
            raise _unreadable(who, error) from error
        entries: list[SessionMessage] = []
        size = 0
        for delivery in queue.inflight.values():
            if len(entries) >= BATCH_ENTRIES or size >= BATCH_BYTES:
                break
            queue.inflight.remove(delivery)
            self._store.remove_inflight(queue.session, delivery)
            entries.append(_entry_of(delivery))
            size += len(delivery.message.payload)
        queue.count_inflight()
        return entries

    def take_waiting(self, who: Who) -> list[SessionMessage]:
        """The same with what waits."""
        queue = self._ghosts[who].queue
        entries: list[SessionMessage] = []
        size = 0
        try:
            for delivery in self._waiting(who):
                self._store.remove_waiting(queue.session, delivery)
                entries.append(_entry_of(delivery))
                size += len(delivery.message.payload)
                if len(entries) >= BATCH_ENTRIES or size >= BATCH_BYTES:
                    break
        except StoreError as error:
            if not entries:
                raise _unreadable(who, error) from error
        return entries

    def _waiting(self, who: Who) -> Iterator[Delivery]:
        queue = self._ghosts[who].queue
        while queue.backlog:
            delivery = self._store.load_waiting(queue.session, queue.first)
            queue.step_backlog(True, delivery is not None)
            if delivery is not None and (not queue.checks or self._wants(who, delivery)):
                yield delivery

    def _wants(self, who: Who, delivery: Delivery) -> bool:
        """Whether the subscriptions of a ghost still ask for a message; else it goes."""
        ghost = self._ghosts[who]
        if delivery.group:
            # The ghost is a member of no share group any more.
            is_wanted = delivery.group in ghost.subscriptions
        else:
            is_wanted = self._find(who[0]).wants(ghost.queue, delivery.message.topic, "")
        if not is_wanted:
            self._store.remove_waiting(ghost.queue.session, delivery)
            ghost.queue.pass_on(delivery)
        return is_wanted

    def put_back(self, who: Who, entries: list[SessionMessage]) -> None:
        """What was taken last could not be sent."""
        queue = self._ghosts[who].queue
        waiting = [each for each in entries if not each.packet_id]
        later = queue.inflight.values()
        queue.inflight.clear()
        for each in entries:
            if each.packet_id:
                self._put_in_flight(queue, each)
        for delivery in later:
            queue.inflight.put(delivery)
        queue.count_inflight()
        # The places before the first are those from which they were taken.
        place = (queue.first or queue.next_seq) - len(waiting)
        for each in waiting:
            message = Message(each.topic, each.payload, each.qos, each.retain)
            delivery = Delivery(message, each.qos, each.retain, each.group)
            delivery.seq = place
            self._store.put_waiting(queue.session, delivery)
            queue.leave_to_store(place)
            place += 1

    def has_shipped(self, who: Who, place: int) -> bool:
        """Whether all that waited in the ghost up to a place has been taken."""
        queue = self._ghosts[who].queue
        return queue.backlog == 0 or queue.first >= place

    def place(self, who: Who) -> int:
        """The place behind all that waits in the ghost now."""
        return self._ghosts[who].queue.next_seq

    def durable(self) -> list[Who]:
        """The durable sessions that are here."""
        return [
            (registry.mountpoint, client_id)
            for registry in self._registries.values()
            for client_id, subscriber in registry.subscribers.items()
            if subscriber.queue.durable
        ]


def _unreadable(who: Who, error: StoreError) -> SessionUnreadableError:
    """The rest stays, and so does the ghost."""
    log.error("cannot hand over the rest of the session of client=%s: %s", who[1], error)
    return SessionUnreadableError()


def _entry_of(delivery: Delivery) -> SessionMessage:
    message: Any = delivery.message
    flags = delivery.qos
    if delivery.retain:
        flags |= RETAIN
    if delivery.released:
        return SessionMessage(b"", b"", flags | RELEASED, delivery.packet_id)
    return SessionMessage(message.topic, message.payload, flags, delivery.packet_id, delivery.group)

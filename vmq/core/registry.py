"""Who is registered, and what a publish does: take over, subscribe, retain, route, choose a share group's member."""

import logging
from collections.abc import Callable
from itertools import islice, takewhile

from vmq_hooks.types import SubscriberId

from vmq.core.away import AwaySessions
from vmq.core.context import CHANGED, CLAIMED, ENDED, Core
from vmq.core.leaving import EndingShares, EndingSubscriptions
from vmq.core.limits import Flapping
from vmq.core.output import Output
from vmq.core.queue import Queue
from vmq.core.retained import RetainedMessages, RetainedWalk
from vmq.core.retained_burst import allowance_for
from vmq.core.route_cache import RouteCache
from vmq.core.source import Source
from vmq.core.subscriber import OURS, Subscriber
from vmq.core.subscription_set import Group, Subscription
from vmq.core.trie import Route, Trie
from vmq.mqtt.message import Delivery, Message
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.runs import split_run
from vmq.mqtt.special import is_served
from vmq.mqtt.topics import decode_topic_name, split_shared
from vmq.store.entries import StoredSession
from vmq.store.store import StoreError

log = logging.getLogger("vmq.registry")


class Registry(AwaySessions):
    """All subscribers, subscriptions and retained messages of one mountpoint."""

    def __init__(
        self,
        core: Core,
        wake: Callable[[Queue], None],
        purge: Callable[[bytes], None],
        mountpoint: str = "",
    ) -> None:
        """`wake` is handed to the queues; `purge` is told of ended durable sessions."""
        super().__init__(core, mountpoint)
        self.raw_scope = self.scope.encode()
        self.wake = wake
        self.purge = purge
        self.trie = Trie()
        self.trie.core = core
        self.trie.remote = core.elsewhere.targets(mountpoint)
        self.routes = RouteCache(self.trie, core.options.topic_cache)
        self.retained = RetainedMessages()
        options = core.options
        self.flapping = Flapping(
            options.flapping_limit, options.flapping_window, options.flapping_ban
        )

    def named(self, client_id: str) -> tuple[str, tuple[str, ...]]:
        """How the log names a client: a template, and its values. The default mountpoint goes without saying."""
        if not self.mountpoint:
            return "client=%s", (client_id,)
        return "client=%s mountpoint=%s", (client_id, self.mountpoint)

    # Sessions

    def register(
        self, client_id: str, clean: bool, output: Output, user: str = ""
    ) -> tuple[Subscriber, bool]:
        """Gives a connection its session (section 3.1.4), which is the user's from now on.

        Returns the subscriber and whether a session was present. The caller sends the CONNACK and
        then calls `subscriber.queue.go_online`.
        """
        existing = self.subscribers.get(client_id)
        if existing is not None and existing.output is not None:
            self.core.counters.takeovers += 1
            existing.output.close("taken over by a new connection of the client id [MQTT-3.1.4-2]")
            existing = self.subscribers.get(client_id)
        has_ended = existing is not None and clean and existing.queue.durable
        if existing is not None and clean:
            self.end_session(existing)
            existing = None
        present = existing is not None
        if existing is None:
            existing = self.create(client_id, clean, user)
        else:
            self.offline.pop(client_id, None)
        existing.owner = user
        existing.output = output
        store = self.core.store
        if existing.queue.durable and store is not None:
            store.put_session(self.scope + client_id, existing.queue.session, 0, user)
        if (existing.queue.durable or has_ended) and store is not None:
            # CONNACK says what is there: else a session that has ended could be back [MQTT-3.1.2-6].
            output.write_after(output.outbox.stored, store.barrier())
        self.core.sessions.on_subscriber(CLAIMED, self, existing, "")
        return existing, present

    def refuses(self, client_id: str) -> bool:
        """Whether a client's durable session is one of which something cannot be read, or may be."""
        store = self.core.store
        if store is None or (store.damage is None and not store.refused):
            return False
        existing = self.subscribers.get(client_id)
        if existing is not None:
            return existing.queue.durable and store.refuses_session(existing.queue.session)
        damage = store.damage
        return damage is not None and damage.covers(b"s" + self.raw_scope + client_id.encode())

    def create(self, client_id: str, clean: bool, owner: str | None = None) -> Subscriber:
        store = self.core.store
        number = b""
        if not clean and store is not None:
            number = store.create_session(self.scope + client_id, owner)
        queue = Queue(client_id, self.core, number, self.wake)
        queue.mountpoint = self.mountpoint
        subscriber = Subscriber(client_id, queue)
        self.own(subscriber, owner)
        self.subscribers[client_id] = subscriber
        self.core.counters.queue_setup += 1
        return subscriber

    def own(self, subscriber: Subscriber, owner: str | None) -> None:
        """A session is this user's from now on; who stores it is the caller's business."""
        subscriber.owner = owner
        subscriber.queue.username = owner if owner and owner != OURS else None

    def restore(self, stored: StoredSession) -> None:
        """Brings back a durable session at the start of the broker."""
        queue = Queue(stored.client_id, self.core, stored.number, self.wake)
        queue.mountpoint = self.mountpoint
        queue.restore(stored.first, stored.last, stored.last_order, stored.first_order or 1)
        subscriber = Subscriber(stored.client_id, queue)
        subscriber.received_is_stored = True
        self.own(subscriber, stored.owner)
        self.subscribers[stored.client_id] = subscriber
        for topic_filter, qos in stored.subscriptions:
            asked = stored.asked.get(topic_filter, "")
            self.add_subscription(subscriber, topic_filter, qos, asked)
        self.offline[stored.client_id] = stored.offline_at or self.now_ms()

    def unregister(self, subscriber: Subscriber) -> None:
        """The subscriber's connection ended."""
        subscriber.output = None
        queue = subscriber.queue
        groups = self.groups_with_others(subscriber, not queue.durable)
        shared = queue.take_shared(groups) if groups else []
        if queue.durable:
            queue.go_offline()
            self.offline[subscriber.client_id] = self.now_ms()
            self.write_away(subscriber.client_id)
            if subscriber.is_shared():
                self.core.sessions.on_subscriber(CHANGED, self, subscriber, "")
            hook = self.core.hooks.on_client_offline
            if hook is not None:
                self.core.tell("on_client_offline", hook, queue.subscriber_id())
        else:
            queue.leave_output()
            self.end_session(subscriber)
            gone = self.core.hooks.on_client_gone
            if gone is not None:
                self.core.tell("on_client_gone", gone, queue.subscriber_id())
        for delivery in shared:
            self.redeliver(delivery)

    def groups_with_others(self, subscriber: Subscriber, is_over: bool) -> set[str]:
        """The subscriber's share groups in which another member can take its place now.

        That is a connected one, or, if the subscriber's session is over, a durable one that is away.
        """
        queue = subscriber.queue
        elsewhere = self.core.elsewhere
        names: set[str] = set()
        for topic_filter, subscription in subscriber.subscriptions.items():
            group = self.trie.find_group(topic_filter) if subscription.group else None
            if group is None:
                continue
            if elsewhere.has_member(self, topic_filter, is_over):
                names.add(topic_filter)
                continue
            for member in group.order:
                other = member.queue
                if other is queue or other.ended or not other.is_for(member.qos):
                    continue
                if other.online or is_over:
                    names.add(topic_filter)
                    break
        return names

    def end_session(self, subscriber: Subscriber, is_moved: bool = False) -> None:
        """Forgets a session with its subscriptions and messages; `is_moved`: it is somewhere else now."""
        client_id = subscriber.client_id
        queue = subscriber.queue
        is_left = queue.durable and not is_moved
        groups = self.groups_with_others(subscriber, True) if is_left else set()
        filters = list(subscriber.subscriptions)
        queue.end()
        subscriber.take_all()
        self.offline.pop(client_id, None)
        self.core.counters.queue_teardown += 1
        if self.subscribers.get(client_id) is subscriber:
            del self.subscribers[client_id]
        store = self.core.store
        if queue.durable and store is not None:
            first, order = queue.stored_from()
            store.end_session(self.scope + client_id, queue.session, first, order)
        self.core.sessions.on_subscriber(ENDED, self, subscriber, "")
        if filters:
            EndingSubscriptions(self.core, self.trie, self.routes, queue, filters).step()
        if queue.durable:
            EndingShares(self.core, queue, groups, self.purge).step()

    def expire(self, most: int = 250) -> int:
        """Ends durable sessions that were away too long, so many in one go; returns how many: 0 once there are none."""
        limit = self.core.options.persistent_client_expiration
        if limit <= 0:
            return 0
        oldest = self.now_ms() - int(limit * 1000)
        # Who left first stands in front: those who may stay are not looked through.
        over = takewhile(lambda away: away[1] <= oldest, self.offline.items())
        expired = [client_id for client_id, _ in islice(over, most)]
        for client_id in expired:
            self.end_session(self.subscribers[client_id])
            self.core.counters.client_expired += 1
            hook = self.core.hooks.on_session_expired
            if hook is not None:
                self.core.tell("on_session_expired", hook, SubscriberId(client_id, self.mountpoint))
        return len(expired)

    # Subscriptions

    def subscribe(
        self, subscriber: Subscriber, topic_filter: str, qos: int, asked: str = ""
    ) -> None:
        """Adds or replaces a subscription [MQTT-3.8.4-3]; `asked`: what the client asked for, if another filter."""
        self.add_subscription(subscriber, topic_filter, qos, asked)
        store = self.core.store
        queue = subscriber.queue
        if queue.durable and store is not None:
            store.put_subscription(queue.session, topic_filter, qos, asked)
            output = subscriber.output
            if output is not None:
                output.write_after(output.outbox.stored, store.barrier())
        self.core.sessions.on_subscriber(CHANGED, self, subscriber, topic_filter)

    def add_subscription(
        self, subscriber: Subscriber, topic_filter: str, qos: int, asked: str = ""
    ) -> None:
        subscriber.note_asked(topic_filter, asked)
        present = subscriber.find(topic_filter)
        if present is not None:
            present.renewed += 1
            if present.qos == qos:
                return
            present.qos = qos  # the trie and the group hold the same object
        else:
            group, _ = split_shared(topic_filter)
            subscription = Subscription(subscriber.queue, qos, topic_filter if group else "")
            subscriber.put(topic_filter, subscription)
            if is_served(topic_filter):
                service = self.core.service_of(topic_filter)
                service.on_subscribed(subscriber.queue, topic_filter)
                return
            before = self.trie.size()
            self.trie.subscribe(topic_filter, subscription)
            self.core.memory_grown += self.trie.size() - before
        self.routes.filter_changed(topic_filter)

    def unsubscribe(self, subscriber: Subscriber, topic_filter: str) -> bool:
        """Removes the subscription to exactly this filter [MQTT-3.10.4-1]; False if none."""
        if not subscriber.take(topic_filter):
            return False
        if is_served(topic_filter):
            self.core.service_of(topic_filter).on_unsubscribed(subscriber.queue, topic_filter)
        self.trie.unsubscribe(topic_filter, subscriber.client_id)
        self.routes.filter_changed(topic_filter)
        store = self.core.store
        queue = subscriber.queue
        if queue.burst is not None:
            queue.deliver_retained(topic_filter, [], 0, 0)
        if queue.durable and store is not None:
            store.remove_subscription(queue.session, topic_filter)
            output = subscriber.output
            if output is not None:
                output.write_after(output.outbox.stored, store.barrier())
        self.core.sessions.on_subscriber(CHANGED, self, subscriber, topic_filter)
        return True

    def walk_retained(self, topic_filter: str) -> RetainedWalk | None:
        """Goes over the retained messages that a new subscription brings: a shared one none."""
        return None if split_shared(topic_filter)[0] else self.retained.walk(topic_filter)

    def send_retained(
        self, subscriber: Subscriber, topic_filter: str, found: list[Message], qos: int, first: bool
    ) -> None:
        """Sends some of what a new subscription brings, the `first` of it in place of what an earlier one left."""
        allowance = allowance_for(self.retained.count)
        subscriber.queue.deliver_retained(topic_filter, found, qos, allowance, not first)

    def wants(self, queue: Queue, topic: bytes, group: str) -> bool:
        """Whether a session is subscribed to a topic; to the share group, of what that has chosen it for."""
        if not group:
            return self.trie.has(topic.decode(), queue.client_id)
        found = self.trie.find_group(group)
        return found is not None and queue.client_id in found.members

    # Messages

    def route(self, topic: bytes) -> Route:
        """The route of a topic's raw bytes, validated and up to date.

        Raises:
            ProtocolError: the bytes are no topic name.
        """
        route = self.routes.find(topic)
        if route is None:
            text = decode_topic_name(topic)
            limit = self.core.options.topic_max_depth
            if limit and text.count("/") >= limit:
                raise ProtocolError("topic of more levels than topic_max_depth", "MQTT-4.8.0-1")
            route = Route(topic, text)
            if not self.mountpoint:
                route.taps = self.core.stream_finder.appenders(text)
            mapped = self.core.mappings.taps(self.mountpoint, text)
            if mapped:
                route.taps = [*route.taps, *mapped]
            self.trie.resolve(route)
            if not is_served(text):
                self.routes.keep(route)
        return route

    def publish(self, route: Route, message: Message, source: Source) -> None:
        """Keeps a retained message, then hands the message to every matching queue and to other nodes."""
        if message.retain:
            self.retain(route.text, message)
        self.deliver(route, message, source)
        groups = route.groups
        if groups:
            self.core.counters.router_matches_local += len(groups)
            self.core.work += len(groups)
            for group in groups:
                self.deliver_to_member(group, message, source)
        if route.nodes or route.shared:
            self.core.elsewhere.forward(self, route, message, source)

    def deliver(self, route: Route, message: Message, source: Source) -> None:
        """Hands a message to the queues of this broker that it is for, share groups apart."""
        options = self.core.options
        published = message.qos
        count = len(route.targets)
        self.core.counters.router_matches_local += count
        self.core.work += count
        if route.stored_copies > 1 and (published or options.upgrade_outgoing_qos):
            message.share = True
        for target in route.targets:
            qos = target.qos
            if published < qos and not target.queue.options.upgrade_outgoing_qos:
                qos = published
            queue = target.queue
            if qos == 0 and queue.fast:
                queue.send_quick(message, False)
            else:
                queue.deliver(message, qos, False, "", source)

    def deliver_run(self, route: Route, frames: bytes, count: int, source: Source) -> None:
        """Delivers a run of PUBLISH packets at QoS 0 on one topic.

        Raises:
            StoreError: some of them concern the store, which cannot write or is far behind.
        """
        core = self.core
        counters = core.counters
        targets = route.targets
        counters.router_matches_local += len(targets) * count
        core.work += len(targets)
        messages: list[Message] | None = None
        for target in targets:
            queue = target.queue
            if queue.fast:
                queue.output.gather().append(frames)
                counters.mqtt_publish_sent += count
                counters.queue_message_in += count
            else:
                if messages is None:
                    if core.options.upgrade_outgoing_qos:
                        self.check_store(route, False)
                    messages = split_run(frames, route.topic)
                qos = target.qos if queue.options.upgrade_outgoing_qos else 0
                for message in messages:
                    queue.deliver(message, qos, False, "", source)

    def check_store(self, route: Route, retain: bool) -> None:
        """Refuses what would have to be stored while it cannot be [MQTT-4.8.0-2].

        Taken and never acknowledged, it would be sent again and again, and be kept each time.

        Raises:
            StoreError: the message concerns the store, which cannot write or is far behind.
        """
        store = self.core.store
        if store is not None and store.refuses(self.core.options.max_uncommitted_writes):
            if retain or route.is_stored():
                raise StoreError(store.why_refused())

    def retain(self, topic: str, message: Message) -> None:
        """Keeps the message, or erases the topic's if the payload is empty [MQTT-3.3.1-10]: here and on all nodes."""
        before = self.retained.count
        if self.keep_retained(topic, message):
            self.core.retained_listener.on_retained(self, message)
        elif self.retained.count < before:
            self.core.retained_listener.on_retained(self, Message(message.topic, b"", 0, True))

    def keep_retained(self, topic: str, message: Message) -> bool:
        """Keeps or erases a retained message on this node alone.

        False if the limits leave no room: then the topic has none, for an older one is not its last value any more.
        """
        store = self.core.store
        has_room = not message.payload or self.may_retain(topic, message)
        if message.payload and has_room:
            before = self.retained.size()
            self.retained.keep(message)
            self.core.memory_grown += max(0, self.retained.size() - before)
            if store is not None:
                store.put_retained(message, self.raw_scope)
        elif self.retained.clear(topic) and store is not None:
            store.remove_retained(message.topic, self.raw_scope)
        return has_room

    def may_retain(self, topic: str, message: Message) -> bool:
        """Whether the limits on retained messages leave room; else it is only handed on."""
        options = self.core.options
        longest = self.core.retained_listener.longest
        if longest and len(message.payload) > longest:
            self.core.counters.retain_refused += 1
            text = 'not retained topic="%s": its payload has %d bytes, a cluster keeps up to %d'
            log.warning(text, topic[:200], len(message.payload), longest)
            return False
        count, size = options.max_retained_messages, options.max_retained_bytes
        if not self.retained.has_room(topic, len(message.payload), count, size):
            self.core.counters.retain_refused += 1
            log.warning(
                'not retained topic="%s": max_retained_messages or max_retained_bytes is reached',
                topic,
            )
            return False
        return True

    def deliver_to_member(self, group: Group, message: Message, source: Source) -> bool:
        """Gives a message to one member of a share group; False if it has none.

        A connected member with nothing waiting is preferred, then any connected one, then a durable session that is
        away; of either those with room. On one node every policy but the choice among nodes is the same.
        """
        members = group.order
        count = len(members)
        start = self.core.choose(count) if count > 1 else 0
        chosen: Subscription | None = None
        best = 0
        for offset in range(count):
            member = members[(start + offset) % count]
            queue = member.queue
            qos = min(message.qos, member.qos)
            if not queue.is_for(qos) or queue.sent(source) or (queue.ended and not queue.online):
                continue
            if queue.online and queue.is_idle():
                chosen = member
                break
            rank = 3 if queue.online else 1
            if rank >= best and queue.has_room(qos, message.length()):
                rank += 1
            if rank > best:
                chosen, best = member, rank
        if chosen is None:
            return False
        qos = chosen.qos
        if message.qos < qos and not chosen.queue.options.upgrade_outgoing_qos:
            qos = message.qos
        chosen.queue.deliver(message, qos, False, group.name, source)
        return True

    def redeliver(self, delivery: Delivery) -> None:
        """Another member of the share group gets what its first choice can no longer handle.

        A connected one here, or on another node; else one that is away, here or there.
        """
        name = delivery.group
        message = delivery.message
        group = self.trie.find_group(name)
        if group is None or not group.is_online(message.qos):
            if self.core.elsewhere.give(self, name, message, group is None):
                return
        if group is not None:
            self.deliver_to_member(group, message, self.core.nobody)

"""The publishing half of a session: what a client's PUBLISH and PUBREL do (sections 3.3 and 3.6)."""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64
from vmq_hooks.modifiers import PublishModifiers
from vmq_hooks.types import Message as SeenMessage
from vmq_hooks.verdicts import Refuse

from vmq.core.hook_sites import AcceptedUntil, Answer, Pending
from vmq.core.output import Output
from vmq.core.queue import Queue
from vmq.core.registry import Registry
from vmq.core.route_cache import LONGEST_KEPT
from vmq.core.states import FAILED
from vmq.core.stream_feed import feed_streams, feed_streams_run
from vmq.core.trie import Route
from vmq.disk.durable import Durable
from vmq.mqtt.decoder import packet_id_at, packet_id_in
from vmq.mqtt.encoder import PACKET_IDS, PUBACK_HEAD, PUBREC_HEAD, remaining_length
from vmq.mqtt.message import Message, Sourced
from vmq.mqtt.packet_ids import PacketIds
from vmq.mqtt.packets import LEVEL_3_1, MAX_REMAINING_LENGTH, PUBREL, PacketTooLarge, ProtocolError
from vmq.mqtt.runs import payloads_of
from vmq.mqtt.special import is_served
from vmq.mqtt.topics import decode_topic_name
from vmq.protocol.changes import changed_message
from vmq.protocol.client import Client
from vmq.protocol.refusals import SPLIT, tell_of_publish, tell_of_split
from vmq.store.store import StoreError

#: Topics of one session whose verdict is kept; beyond that all are asked about anew.
KEPT_TOPICS: Final = 1024

#: What is kept for whoever was never asked about.
NOTHING_KEPT: Final[list[set[bytes]]] = []


class Publisher(Client):
    """One connection's client as a publisher; `vmq.protocol.session.Session` is the whole of it."""

    def __init__(self, registry: Registry, output: Output, anonymous: bool, new_id: str) -> None:
        super().__init__(registry, output, anonymous, new_id)
        #: Topics that may be published to without asking, by QoS and RETAIN; of one generation of the hooks.
        self.kept = NOTHING_KEPT
        self.kept_generation: int = -1
        #: When the first of these verdicts runs out. Looked at once for each chunk of bytes.
        self.kept_until: float = 0.0

    # PUBLISH

    def topic_end(self) -> i64:
        """Where the topic of the present PUBLISH ends."""
        decoder = self.decoder
        body: i64 = decoder.body
        if body + 2 > decoder.end:
            raise ProtocolError("PUBLISH without a topic", "MQTT-3.3.2-1")
        data = decoder.data
        length: i64 = data[body]
        length = length << 8 | data[body + 1]
        end = body + 2 + length
        if end > decoder.end:
            raise ProtocolError("PUBLISH with a cut topic", "MQTT-3.3.2-1")
        return end

    def on_quick_publish(self) -> None:
        """PUBLISH at QoS 0 without RETAIN: subscribers get the bytes that came in.

        A run of packets on one topic is handed on as one slice.
        """
        decoder = self.decoder
        registry = self.registry
        data = decoder.data
        topic_end = self.topic_end()
        topic = data[decoder.body + 2 : topic_end]
        route = registry.routes.find(topic)
        if route is None:
            if topic[:1] == b"$" and self.publish_to_service(topic, topic_end, 0):
                return
            route = registry.route(topic)
        core = self.core
        if (
            route.groups
            or route.shared
            or (self.hooks.in_publish_path and not self.may_pass(route))
            or core.hooks.on_deliver is not None
        ):
            limit = self.options.max_message_size
            if limit and decoder.end - topic_end > limit:
                self.refuse_message()
            core.counters.mqtt_publish_received += 1
            route.messages += 1
            self.publish(route, Message(route.topic, data[topic_end : decoder.end], 0, False), 0)
            return
        limit = self.options.max_message_size
        longest = MAX_REMAINING_LENGTH
        if limit:
            if decoder.end - topic_end > limit:
                self.refuse_message()
            longest = limit + 2 + len(route.topic)
        start = decoder.start
        shortest = decoder.body - start == 2 or decoder.is_shortest()
        count = decoder.run(data[decoder.body : topic_end], longest) if shortest else 1
        counters = core.counters
        counters.mqtt_publish_received += count
        route.messages += count
        if core.cluster_is_split and self.is_cut_off(self.options.allow_publish_during_netsplit):
            self.refuse_cut_off(route, 0, count)
            return
        if not route.targets and not route.taps and not route.nodes:
            return
        if shortest:
            frames = data[start : decoder.end]
        else:
            body = data[decoder.body : decoder.end]
            frames = b"\x30" + remaining_length(len(body)) + body
        if route.taps:
            payloads = (
                [data[topic_end : decoder.end]] if count == 1 else payloads_of(frames, route.topic)
            )
            feed_streams_run(core, route, payloads, self)
        if route.nodes:
            core.elsewhere.forward_run(registry.mountpoint, route, frames, count)
        registry.deliver_run(route, frames, count, self)

    def on_publish(self) -> None:
        """PUBLISH at any QoS (section 3.3)."""
        decoder = self.decoder
        data = decoder.data
        head: i64 = decoder.head
        qos: i64 = head >> 1 & 3
        topic_end = self.topic_end()
        topic = data[decoder.body + 2 : topic_end]
        route = self.registry.routes.find(topic)
        if route is None:
            if topic[:1] == b"$" and self.publish_to_service(topic, topic_end, qos):
                return
            route = self.registry.route(topic)
        end: i64 = decoder.end
        retain = head & 1 != 0
        limit = self.options.max_message_size
        if limit and end - topic_end - (2 if qos else 0) > limit:
            self.refuse_message()
        self.core.counters.mqtt_publish_received += 1
        route.messages += 1
        if qos or retain or self.core.options.upgrade_outgoing_qos:
            self.registry.check_store(route, retain)
        if qos == 0:
            self.publish(route, self.message_of(route, data[topic_end:end], 0, retain), 0)
            return
        packet_id = packet_id_in(data, topic_end, end)
        message = self.message_of(route, data[topic_end + 2 : end], qos, retain)
        if not head & 9 and decoder.is_shortest():
            length: i64 = end - topic_end - 2
            if route.head_length != length or route.head_qos != qos:
                route.head = data[decoder.start : topic_end]
                route.head_qos = qos
                route.head_length = length
            message.cut = route.head
        if qos == 2 and self.received_ids().has(packet_id) and not self.is_doubtful(packet_id):
            self.wait_for_all(route)
            self.acknowledge(2, packet_id)
            return
        self.publish(route, message, packet_id)

    def publish_to_service(self, topic: bytes, topic_end: i64, qos: i64) -> bool:
        """PUBLISH of which a service has the say, if it is one."""
        text = decode_topic_name(topic)
        if not is_served(text):
            return False
        decoder, limit = self.decoder, self.options.max_message_size
        start = topic_end + (2 if qos else 0)
        if limit and decoder.end - start > limit:
            self.refuse_message()
        self.core.counters.mqtt_publish_received += 1
        packet_id = packet_id_in(decoder.data, topic_end, decoder.end) if qos else 0
        retain = decoder.head & 1 != 0
        message = self.message_of(
            Route(topic, text), decoder.data[start : decoder.end], qos, retain
        )
        self.core.service_of(text).publish(self, text, message, packet_id)
        return True

    def message_of(self, route: Route, payload: bytes, qos: int, retain: bool) -> Message:
        """What the client publishes; what is to be retained knows its source."""
        if retain and not self.is_ours:
            return Sourced(route.topic, payload, qos, retain, self.client_id, self.username)
        return Message(route.topic, payload, qos, retain)

    def refuse_message(self) -> None:
        """A payload above max_message_size ends the connection: 3.1.1 has no other refusal."""
        self.core.counters.mqtt_publish_error += 1
        raise PacketTooLarge("payload is above max_message_size", "MQTT-3.3.5-2")

    def refuse_cut_off(self, route: Route, qos: int, count: int) -> None:
        """A message that may not be taken now: unacknowledged, it comes again [MQTT-4.8.0-2]."""
        self.core.counters.mqtt_publish_error += count
        if qos:
            self.output.finish(SPLIT + " (allow_publish_during_netsplit) [MQTT-4.8.0-2]", FAILED)
        else:
            tell_of_split(self.registry, self.client_id, "publish dropped", "topic", route.text)

    def received_ids(self) -> PacketIds:
        subscriber = self.subscriber
        assert subscriber is not None
        return subscriber.received_ids(self.core)

    def is_doubtful(self, packet_id: int) -> bool:
        """Whether a stream lacks a message that sessions have: the broker ended between its commits and the store's."""
        return self.core.receipts.lacks(self.queue_of().session, packet_id)

    def wait_for_all(self, route: Route) -> None:
        """The answer to a message sent again waits for what the first one may still wait for."""
        output, core = self.output, self.core
        for tap in route.taps:
            safe: Durable = tap.safe_of(route.topic, self.client_id)
            output.answer_after(safe, safe.wanted)
        if core.store is not None:
            output.answer_after(output.outbox.stored, core.store.last_barrier())
        core.peers.wait_for_all(output)

    def may_pass(self, route: Route) -> bool:
        """Whether publishes at QoS 0 need not be seen by any hook."""
        hooks = self.hooks
        return (
            not hooks.sees_each
            and self.kept_generation == hooks.generation
            and route.topic in self.kept[0]
        )

    def keep(self, route: Route, kind: int, until: float) -> None:
        """Lets such publishes pass unasked for a while; not those to long topics, which would fill the memory."""
        if len(route.topic) > LONGEST_KEPT:
            return
        generation = self.hooks.generation
        if self.kept_generation != generation:
            self.kept = [set(), set(), set(), set(), set(), set()]
            self.kept_generation = generation
            self.kept_until = until
        elif until < self.kept_until:
            self.kept_until = until
        topics = self.kept[kind]
        if len(topics) >= KEPT_TOPICS:
            topics.clear()
        topics.add(route.topic)

    def look_at_clock(self, now: float) -> None:
        """Ends what was kept once the first of it has run out."""
        if self.kept_generation >= 0 and now >= self.kept_until:
            self.kept_generation = -1

    def publish(self, route: Route, message: Message, packet_id: int) -> None:
        """Asks whether the client may; goes on now, or when the verdict is there."""
        if self.is_cut_off(self.options.allow_publish_during_netsplit):
            self.refuse_cut_off(route, message.qos, 1)
            return
        hooks = self.hooks
        hook = hooks.auth_on_publish
        if hook is None or (
            self.kept_generation == hooks.generation and route.topic in self.kept[kind_of(message)]
        ):
            self.finish_publish(self.registry, route, message, message.qos, packet_id)
        else:
            self.ask_to_publish(hook, route, message, packet_id)

    # Apart from `publish`, which would else make the closure's variables for each message.
    def ask_to_publish(
        self, hook: "Callable[..., Answer]", route: Route, message: Message, packet_id: int
    ) -> None:
        """Asks the plugins; goes on with their verdict, now or when it is there."""
        generation = self.hooks.generation
        seen = SeenMessage(route.text, message.payload, message.qos, message.retain)
        answer = self.ask("auth_on_publish", hook, self.username, self.subscriber_id(), seen)
        if isinstance(answer, Pending):
            self.suspend(
                answer,
                lambda later: self.on_late_verdict(message, packet_id, generation, later),
            )
        else:
            self.on_publish_verdict(route, message, packet_id, generation, answer)

    def on_late_verdict(
        self, message: Message, packet_id: int, generation: int, answer: Answer
    ) -> None:
        """Goes on with a verdict that took time: whoever subscribed or left meanwhile did so before the message."""
        route = self.registry.route(message.topic)
        if (message.qos or message.retain) and not isinstance(answer, Refuse):
            self.registry.check_store(route, message.retain)
        self.on_publish_verdict(route, message, packet_id, generation, answer)

    def on_publish_verdict(
        self,
        route: Route,
        message: Message,
        packet_id: int,
        generation: int,
        answer: Answer,
    ) -> None:
        """Publishes with the changes that plugins want, or refuses [MQTT-3.3.5-2]."""
        asked: int = message.qos
        registry = self.registry
        if isinstance(answer, Refuse):
            self.refuse_publish(route.text, answer, asked, packet_id)
            return
        if isinstance(answer, AcceptedUntil):
            if generation == self.hooks.generation:
                self.keep(route, kind_of(message), answer.until)
        elif isinstance(answer, PublishModifiers):
            if answer.mountpoint is not None:
                registry = self.core.registries.find(answer.mountpoint) or registry
            message = changed_message(message, answer)
            route = registry.route(message.topic)
            if message.qos or message.retain:
                self.registry.check_store(route, message.retain)
            if answer.throttle:
                self.throttle(float(answer.throttle))
        self.finish_publish(registry, route, message, asked, packet_id)

    def refuse_publish(self, topic: str, answer: Refuse, asked: int, packet_id: int) -> None:
        """The client may not publish that [MQTT-3.3.5-2]."""
        self.core.counters.mqtt_publish_auth_error += 1
        tell_of_publish(self.registry, self.client_id, self.username, topic, answer)
        if answer.unavailable:
            # Unacknowledged, it comes again; what may be lost anyway is worth no connection.
            if asked:
                self.output.finish("publish refused: " + answer.reason + " [MQTT-4.8.0-2]", FAILED)
            return
        # MQTT 3.1 clients are acknowledged and the message goes nowhere, unless the options say otherwise.
        if self.level != LEVEL_3_1 or self.core.options.disconnect_on_unauthorized_publish_v3:
            self.output.close("publish refused: " + answer.reason + " [MQTT-3.3.5-2]")
        elif asked:
            self.acknowledge(asked, packet_id)

    def finish_publish(
        self, registry: Registry, route: Route, message: Message, asked: int, packet_id: int
    ) -> None:
        """Routes the message and acknowledges it at the QoS that the client asked for.

        What had to be stored is committed before the acknowledgement leaves.
        """
        if asked == 2 and self.comes_again(registry, route, message, packet_id):
            return
        if route.taps:
            self.tap(route, message, asked, packet_id)
        if asked == 2 and not self.remember(route, packet_id):
            self.acknowledge(2, packet_id)
            return
        store = self.core.store
        before = 0 if store is None else store.writes
        registry.publish(route, message, self)
        if asked == 2:
            self.queue_of().on_routed(message, self)
        if asked and store is not None and store.writes != before:
            self.output.answer_after(self.output.outbox.stored, store.barrier())
        hook = self.hooks.on_publish
        if hook is not None:
            seen = SeenMessage(route.text, message.payload, message.qos, message.retain)
            self.core.tell("on_publish", hook, self.username, self.subscriber_id(), seen)
        if asked and not self.output.closing:
            self.acknowledge(asked, packet_id)

    def comes_again(
        self, registry: Registry, route: Route, message: Message, packet_id: int
    ) -> bool:
        """A QoS 2 message that an earlier connection brought: its slots alone are asked whether they have it."""
        queue = self.queue_of()
        if not queue.came_before(packet_id, message, self.decoder.head & 8 != 0):
            return False
        self.received_ids().add(packet_id)
        queue.on_received(packet_id, True)
        self.core.elsewhere.forward_again(registry, route, message, self)
        queue.on_routed(message, self)
        self.wait_for_all(route)
        self.acknowledge(2, packet_id)
        return True

    def tap(self, route: Route, message: Message, asked: int, packet_id: int) -> None:
        """Has streams keep the message; an acknowledgement waits until they have it safe.

        First of all: what a stream cannot take is not known to anybody, and comes again.
        """
        store = self.core.store
        before = 0 if store is None else store.writes
        receipts = self.core.receipts
        waiter = self.output if asked else None
        names: frozenset[str] | None
        if asked == 2 and receipts.gives and self.queue_of().durable:
            if store is not None and store.failing:
                raise StoreError(store.why_refused())  # a crash would leave it to the streams alone
            came_before = self.received_ids().has(packet_id)
            names = receipts.begin(self.queue_of().session, packet_id, came_before)
            try:
                feed_streams(self.core, route, message, self, waiter, names)
            except Exception:
                receipts.cancel()
                raise
            receipts.end()
        else:
            is_once = asked == 2 and message.qos == 2
            names = self.queue_of().reserve_rows(route.taps, message) if is_once else None
            feed_streams(self.core, route, message, self, waiter, names)
        if waiter is not None and store is not None and store.writes != before:
            # Another node keeps it, and gets it from the store.
            waiter.answer_after(waiter.outbox.stored, store.barrier())

    def remember(self, route: Route, packet_id: int) -> bool:
        """QoS 2: delivers at once and remembers the id until PUBREL [MQTT-4.3.3-2].

        False: it was delivered before the broker's start, and is new to the streams at most.
        """
        received = self.received_ids()
        queue = self.queue_of()
        store = self.core.store
        if received.has(packet_id):
            self.core.receipts.forget(queue.session, packet_id)
            self.wait_for_all(route)
            return False
        received.add(packet_id)
        if queue.durable and store is not None:
            store.put_received(queue.session, packet_id)
            self.output.answer_after(self.output.outbox.stored, store.barrier())
        else:
            queue.on_received(packet_id, self.decoder.head & 8 != 0)
        return True

    def acknowledge(self, qos: int, packet_id: int) -> None:
        """PUBACK or PUBREC."""
        pieces = self.output.gather()
        counters = self.core.counters
        if qos == 1:
            counters.mqtt_puback_sent += 1
            pieces.append(PUBACK_HEAD)
        else:
            counters.mqtt_pubrec_sent += 1
            pieces.append(PUBREC_HEAD)
        pieces.append(PACKET_IDS[packet_id])

    def on_pubrels(self, run: bytes) -> None:
        """QoS 2: forgets the ids, so that they may mean something new; unknown ones are answered, too."""
        subscriber = self.subscriber
        assert subscriber is not None
        received = subscriber.received_ids(self.core)
        subscriber.queue.on_pubrels(run, self.output)
        for index in range(0, len(run), 4):
            packet_id = packet_id_at(run, index, PUBREL)
            if self.core.jobs.is_on:
                self.core.jobs.on_pubrel(self, packet_id)
            if received.has(packet_id):
                received.discard(packet_id)
                self.forget_received(subscriber.queue, packet_id)
            elif not subscriber.queue.release_earlier(packet_id):
                self.core.counters.mqtt_pubrel_invalid_error += 1
                subscriber.queue.tell_unknown("PUBREL", packet_id)

    def forget_received(self, queue: Queue, packet_id: int) -> None:
        """A packet id is released: streams and store need not know it any more."""
        self.core.receipts.forget(queue.session, packet_id)
        store = self.core.store
        if queue.durable and store is not None:
            store.remove_received(queue.session, packet_id)
            self.output.answer_after(self.output.outbox.stored, store.barrier())


def kind_of(message: Message) -> int:
    """Which of the verdicts that are kept concerns a message: by its QoS and RETAIN."""
    return message.qos << 1 | (1 if message.retain else 0)

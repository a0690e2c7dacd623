"""The publishing half of a session: what a client's PUBLISH and PUBREL do (sections 3.3 and 3.6)."""

from vmq.hooks import Refused
from vmq.message import Message
from vmq.mqtt.decoder import Decoder
from vmq.mqtt.encoder import PACKET_IDS, PUBACK_HEAD, PUBCOMP_HEAD, PUBREC_HEAD, remaining_length
from vmq.mqtt.packets import LEVEL_3_1, LEVEL_3_1_1, MAX_REMAINING_LENGTH, ProtocolError
from vmq.output import Output
from vmq.registry import Registry, Subscriber
from vmq.store import StoreError
from vmq.trie import Route


class Publisher:
    """One connection's client as a publisher; `vmq.session.Session` is the whole of it."""

    def __init__(self, registry: Registry, output: Output, decoder: Decoder) -> None:
        self.registry = registry
        self.core = registry.core
        self.output = output
        self.decoder = decoder
        #: None until CONNECT was accepted.
        self.subscriber: Subscriber | None = None
        self.client_id = ""
        self.username: str | None = None
        self.level: int = LEVEL_3_1_1

    def topic_end(self) -> int:
        """Where the topic of the present PUBLISH ends."""
        decoder = self.decoder
        body = decoder.body
        if body + 2 > decoder.end:
            raise ProtocolError("PUBLISH without a topic", "MQTT-3.3.2-1")
        data = decoder.data
        end = body + 2 + ((data[body] << 8) | data[body + 1])
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
            route = registry.route(topic)
        core = self.core
        if route.groups or core.hooks.in_publish_path:
            core.counters.mqtt_publish_received += 1
            self.publish(route, Message(route.topic, data[topic_end : decoder.end], 0, False))
            return
        limit = core.options.max_message_size
        longest = MAX_REMAINING_LENGTH
        if limit:
            if decoder.end - topic_end > limit:
                self.refuse_message()
            longest = limit + len(route.field)
        start = decoder.start
        shortest = decoder.body - start == 2 or decoder.is_shortest()
        count = decoder.run(route.field, longest) if shortest else 1
        counters = core.counters
        counters.mqtt_publish_received += count
        targets = route.targets
        counters.router_matches_local += len(targets) * count
        if not targets:
            return
        if shortest:
            frames = data[start : decoder.end]
        else:
            body = data[decoder.body : decoder.end]
            frames = b"\x30" + remaining_length(len(body)) + body
        messages: list[Message] | None = None
        for target in targets:
            queue = target.queue
            if queue.fast:
                output = queue.output
                output.pieces.append(frames)
                counters.mqtt_publish_sent += count
                counters.queue_message_in += count
                if not output.touched:
                    output.touched = True
                    output.outbox.touched.append(output)
            else:
                if messages is None:
                    if core.options.upgrade_outgoing_qos:
                        self.check_store(route, False)
                    messages = split_run(frames, route)
                qos = target.qos if core.options.upgrade_outgoing_qos else 0
                for message in messages:
                    queue.deliver(message, qos, False, "")

    def on_publish(self) -> None:
        """PUBLISH at any QoS (section 3.3)."""
        decoder = self.decoder
        data = decoder.data
        head: int = decoder.head
        qos = head >> 1 & 3
        if qos == 3:
            raise ProtocolError("QoS 3 in PUBLISH", "MQTT-3.3.1-4")
        if qos == 0 and head & 8 and self.level != LEVEL_3_1:
            raise ProtocolError("DUP in a PUBLISH at QoS 0", "MQTT-3.3.1-2")
        topic_end = self.topic_end()
        route = self.registry.route(data[decoder.body + 2 : topic_end])
        end: int = decoder.end
        retain = head & 1 != 0
        limit = self.core.options.max_message_size
        if limit and end - topic_end - (2 if qos else 0) > limit:
            self.refuse_message()
        self.core.counters.mqtt_publish_received += 1
        if qos or retain or self.core.options.upgrade_outgoing_qos:
            self.check_store(route, retain)
        if qos == 0:
            self.publish(route, Message(route.topic, data[topic_end:end], 0, retain))
            return
        if topic_end + 2 > end:
            raise ProtocolError("PUBLISH without a packet id", "MQTT-2.3.1-1")
        packet_id = data[topic_end] << 8 | data[topic_end + 1]
        if packet_id == 0:
            raise ProtocolError("packet id 0 in PUBLISH", "MQTT-2.3.1-1")
        message = Message(route.topic, data[topic_end + 2 : end], qos, retain)
        if not head & 9 and decoder.is_shortest():
            message.cut = data[decoder.start : topic_end]
            message.cut_qos = qos
        if qos == 1:
            self.publish_stored(route, message)
            if self.output.closing:
                return
            pieces = self.output.pieces
            self.core.counters.mqtt_puback_sent += 1
            pieces.append(PUBACK_HEAD)
        else:
            self.on_publish_twice(route, message, packet_id)
            if self.output.closing:
                return
            pieces = self.output.pieces
            self.core.counters.mqtt_pubrec_sent += 1
            pieces.append(PUBREC_HEAD)
        pieces.append(PACKET_IDS[packet_id])
        self.output.touch()

    def refuse_message(self) -> None:
        """A payload above max_message_size ends the connection: 3.1.1 has no other refusal."""
        self.core.counters.mqtt_publish_error += 1
        raise ProtocolError("payload is above max_message_size", "MQTT-3.3.5-2")

    def on_publish_twice(self, route: Route, message: Message, packet_id: int) -> None:
        """QoS 2: delivers at once and remembers the id until PUBREL [MQTT-4.3.3-2]."""
        subscriber = self.subscriber
        assert subscriber is not None
        received = subscriber.received_ids(self.core)
        if packet_id in received:
            return
        received.add(packet_id)
        store = self.core.store
        if subscriber.queue.durable and store is not None:
            store.put_received(subscriber.queue.session, packet_id)
            self.output.barrier = store.barrier()
        self.publish_stored(route, message)

    def check_store(self, route: Route, retain: bool) -> None:
        """Refuses what would have to be stored while it cannot be [MQTT-4.8.0-2].

        Taken and never acknowledged, it would be sent again and again, and be kept each time.

        Raises:
            StoreError: the message concerns the store, which cannot write or is far behind.
        """
        store = self.core.store
        if store is not None and store.refuses(self.core.options.max_uncommitted_writes):
            if retain or route.stored_copies:
                raise StoreError("the store cannot write")

    def publish_stored(self, route: Route, message: Message) -> None:
        """Publishes at QoS 1 or 2; the acknowledgement waits for what had to be stored."""
        store = self.core.store
        if store is None:
            self.publish(route, message)
            return
        before = store.writes
        self.publish(route, message)
        if store.writes != before:
            self.output.barrier = store.barrier()

    def publish(self, route: Route, message: Message) -> None:
        """Hands a message to the registry, past the hooks."""
        hooks = self.core.hooks
        if hooks.auth_on_publish is not None:
            try:
                hooks.auth_on_publish(
                    self.username,
                    self.client_id,
                    message.qos,
                    route.text,
                    message.payload,
                    message.retain,
                )
            except Refused as refused:
                self.core.counters.mqtt_publish_auth_error += 1
                # MQTT 3.1 clients are acknowledged and the message goes nowhere [MQTT-3.3.5-2].
                if self.level != LEVEL_3_1:
                    self.output.close("publish refused: " + refused.reason + " [MQTT-3.3.5-2]")
                return
            except Exception as error:  # noqa: BLE001 - a plugin may raise anything
                self.core.hook_failed("auth_on_publish", error)
                self.core.counters.mqtt_publish_auth_error += 1
                self.output.close("publish refused: the hook failed [MQTT-3.3.5-2]")
                return
        self.registry.publish(route, message)
        if hooks.on_publish is not None:
            self.core.tell(
                "on_publish",
                hooks.on_publish,
                self.username,
                self.client_id,
                message.qos,
                route.text,
                message.payload,
                message.retain,
            )

    def on_pubrel(self, packet_id: int) -> None:
        """QoS 2: forgets the id, so that it may mean something new; an unknown one is answered."""
        subscriber = self.subscriber
        assert subscriber is not None
        received = subscriber.received_ids(self.core)
        if packet_id in received:
            received.discard(packet_id)
            store = self.core.store
            if subscriber.queue.durable and store is not None:
                store.remove_received(subscriber.queue.session, packet_id)
                self.output.barrier = store.barrier()
        pieces = self.output.pieces
        self.core.counters.mqtt_pubcomp_sent += 1
        pieces.append(PUBCOMP_HEAD)
        pieces.append(PACKET_IDS[packet_id])
        self.output.touch()


def split_run(frames: bytes, route: Route) -> list[Message]:
    """The messages of a run of PUBLISH packets at QoS 0 on one topic."""
    decoder = Decoder()
    decoder.feed(frames)
    skip = len(route.field)
    messages: list[Message] = []
    while decoder.next():
        payload = decoder.data[decoder.body + skip : decoder.end]
        messages.append(Message(route.topic, payload, 0, False))
    return messages

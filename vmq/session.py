"""One connection's protocol state machine: bytes in, pieces of packets out.

`Session.receive` handles everything in a chunk in one synchronous pass. What a packet may do at
which moment stands in `Session.handle`; nothing a peer sends raises out of `receive`.
"""

import logging
from typing import Final

from vmq.hooks import Refused
from vmq.message import Message
from vmq.mqtt.decoder import (
    Decoder,
    read_connect,
    read_packet_id,
    read_subscribe,
    read_unsubscribe,
)
from vmq.mqtt.encoder import (
    PACKET_IDS,
    PINGRESP,
    PUBACK_HEAD,
    PUBCOMP_HEAD,
    PUBREC_HEAD,
    UNSUBACK_HEAD,
    connack,
    suback,
)
from vmq.mqtt.packets import (
    ACCEPTED,
    CONNECT,
    DISCONNECT,
    LEVEL_3_1,
    LEVEL_3_1_1,
    MAX_REMAINING_LENGTH,
    PACKET_NAMES,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    REFUSED_CLIENT_ID,
    REFUSED_CREDENTIALS,
    REFUSED_NOT_AUTHORISED,
    REFUSED_PROTOCOL_LEVEL,
    REFUSED_UNAVAILABLE,
    SUBSCRIBE,
    SUBSCRIPTION_FAILED,
    UNSUBSCRIBE,
    Connect,
    ConnectRefused,
    ProtocolError,
)
from vmq.output import Output
from vmq.queue import Queue
from vmq.registry import Registry, Subscriber
from vmq.store import StoreError
from vmq.trie import Route
from vmq.will import will_of

log = logging.getLogger("vmq.session")

#: The longest CONNECT: fixed part and five fields of 65,535 bytes. Until CONNECT is accepted
#: nothing larger is kept in memory.
MAX_CONNECT: Final = 10 + 5 * 65_537

#: The low four bits of each packet type's first byte [MQTT-2.2.2-1]; PUBLISH has its own.
RESERVED_FLAGS: Final = (0, 0, 0, 0, 0, 0, 2, 0, 2, 0, 2, 0, 0, 0, 0, 0)

#: Who breaks the flags of these packets breaks a statement of the packet's own section.
FLAG_STATEMENTS: Final = {
    PUBREL: "MQTT-3.6.1-1",
    SUBSCRIBE: "MQTT-3.8.1-1",
    UNSUBSCRIBE: "MQTT-3.10.1-1",
    DISCONNECT: "MQTT-3.14.1-1",
}


#: Levels of MQTT that a session can speak.
ALL_LEVELS: Final = (LEVEL_3_1, LEVEL_3_1_1)


class Session:
    """The state of one connection, from its first byte to its end."""

    def __init__(self, registry: Registry, output: Output, anonymous: bool, new_id: str) -> None:
        """`anonymous`: clients need no auth hook here. `new_id` is for a client that has no id."""
        self.registry = registry
        self.core = registry.core
        self.output = output
        self.anonymous = anonymous
        self.new_id = new_id
        #: The protocol levels that the listener serves.
        self.levels: tuple[int, ...] = ALL_LEVELS
        #: The name in the client's verified certificate, where that is to be its user name.
        self.identity: str | None = None
        self.decoder = Decoder(MAX_CONNECT)
        self.subscriber: Subscriber | None = None
        self.client_id = ""
        self.username: str | None = None
        self.level: int = LEVEL_3_1_1
        self.clean = True
        self.keep_alive: int = 0
        #: When CONNECT was accepted, in seconds of wall clock time.
        self.started_at: float = 0.0
        self.will: Message | None = None
        self.broke_protocol = False
        self.orderly = False

    def receive(self, data: bytes) -> None:
        """Handles a chunk of bytes. Afterwards the caller flushes the outbox."""
        if self.output.closing:
            return
        try:
            self.decoder.feed(data)
            self.handle_packets()
        except ProtocolError as error:
            self.broke_protocol = True
            self.core.counters.protocol_errors += 1
            self.output.close("protocol error: " + str(error))
        except ConnectRefused as refused:
            self.core.counters.mqtt_connect_error += 1
            self.core.counters.mqtt_connack_sent[refused.code] += 1
            self.output.add(connack(False, refused.code))
            self.output.close("refused: " + refused.text)
        except StoreError as error:
            self.output.close(str(error) + " [MQTT-4.8.0-2]")
        except Exception:
            # A defect of ours must not reach other connections.
            log.exception("internal error, client=%s", self.client_id)
            self.output.close("internal error")

    def handle_packets(self) -> None:
        decoder = self.decoder
        output = self.output
        while decoder.next():
            head: int = decoder.head
            if self.subscriber is None:
                self.on_first_packet()
            elif head == 0x30:
                self.on_quick_publish()
            elif head >> 4 == PUBLISH:
                self.on_publish()
            else:
                self.handle(head)
            if output.closing:
                return

    def handle(self, head: int) -> None:
        """Any packet but PUBLISH, on an accepted connection."""
        kind = head >> 4
        if head & 15 != RESERVED_FLAGS[kind]:
            # MQTT 3.1 has DUP, QoS and RETAIN bits everywhere; its clients may repeat with DUP.
            if self.level != LEVEL_3_1 or kind not in (PUBREL, SUBSCRIBE, UNSUBSCRIBE):
                raise ProtocolError(
                    "wrong flags in " + PACKET_NAMES[kind],
                    FLAG_STATEMENTS.get(kind, "MQTT-2.2.2-2"),
                )
        counters = self.core.counters
        if kind == PUBACK:
            counters.mqtt_puback_received += 1
            self.queue_of().on_puback(self.packet_id(kind))
        elif kind == PUBREC:
            counters.mqtt_pubrec_received += 1
            self.queue_of().on_pubrec(self.packet_id(kind))
        elif kind == PUBREL:
            counters.mqtt_pubrel_received += 1
            self.on_pubrel(self.packet_id(kind))
        elif kind == PUBCOMP:
            counters.mqtt_pubcomp_received += 1
            self.queue_of().on_pubcomp(self.packet_id(kind))
        elif kind == SUBSCRIBE:
            counters.mqtt_subscribe_received += 1
            self.on_subscribe()
        elif kind == UNSUBSCRIBE:
            counters.mqtt_unsubscribe_received += 1
            self.on_unsubscribe()
        elif kind == PINGREQ:
            self.check_empty(kind)
            counters.mqtt_pingreq_received += 1
            counters.mqtt_pingresp_sent += 1
            self.output.add(PINGRESP)
        elif kind == DISCONNECT:
            self.check_empty(kind)
            counters.mqtt_disconnect_received += 1
            self.will = None  # [MQTT-3.14.4-3]
            self.orderly = True
            self.output.close("client disconnected")
        elif kind == CONNECT:
            raise ProtocolError("second CONNECT", "MQTT-3.1.0-2")
        else:
            raise ProtocolError(PACKET_NAMES[kind] + " from a client", "MQTT-4.8.0-1")

    def queue_of(self) -> Queue:
        subscriber = self.subscriber
        assert subscriber is not None
        return subscriber.queue

    def packet_id(self, kind: int) -> int:
        decoder = self.decoder
        return read_packet_id(decoder.data, decoder.body, decoder.end, PACKET_NAMES[kind])

    def check_empty(self, kind: int) -> None:
        if self.decoder.body != self.decoder.end:
            raise ProtocolError(PACKET_NAMES[kind] + " of wrong length", "MQTT-4.8.0-1")

    # CONNECT

    def on_first_packet(self) -> None:
        decoder = self.decoder
        head: int = decoder.head
        if head >> 4 != CONNECT:
            raise ProtocolError(PACKET_NAMES[head >> 4] + " as the first packet", "MQTT-3.1.0-1")
        if head & 15:
            raise ProtocolError("wrong flags in CONNECT", "MQTT-2.2.2-2")
        self.core.counters.mqtt_connect_received += 1
        connect = read_connect(decoder.data, decoder.body, decoder.end)
        self.client_id = connect.client_id
        if connect.level not in self.levels:
            raise ConnectRefused(
                "protocol level " + str(connect.level) + " is not allowed at this listener",
                REFUSED_PROTOCOL_LEVEL,
            )
        if self.identity is not None:
            connect.username = self.identity
        self.check_client_id(connect)
        self.check_load()
        self.authorise(connect)
        self.accept(connect)

    def check_client_id(self, connect: Connect) -> None:
        client_id = connect.client_id
        if not client_id:
            if connect.level == LEVEL_3_1:
                raise ConnectRefused("empty client id in MQTT 3.1", REFUSED_CLIENT_ID)
            if not connect.clean_session:
                raise ConnectRefused(
                    "empty client id without clean session [MQTT-3.1.3-8]", REFUSED_CLIENT_ID
                )
            self.client_id = self.new_id
        elif len(client_id.encode()) > self.core.options.max_client_id_size:
            raise ConnectRefused(
                "client id longer than max_client_id_size [MQTT-3.1.3-9]", REFUSED_CLIENT_ID
            )

    def check_load(self) -> None:
        """Refuses a client that connects too often, and everybody while memory is short."""
        core = self.core
        if core.memory_is_high:
            core.counters.memory_refused += 1
            raise ConnectRefused("memory is above max_memory", REFUSED_UNAVAILABLE)
        if self.registry.flapping.is_banned(self.client_id, core.clock()):
            core.counters.flapping_refused += 1
            raise ConnectRefused(
                "the client id connects too often (flapping_limit)", REFUSED_UNAVAILABLE
            )

    def authorise(self, connect: Connect) -> None:
        """Asks the auth hook; without one only listeners for anonymous clients let anyone in.

        A verified certificate needs no hook, though one that there is may refuse its name.
        """
        hook = self.core.hooks.auth_on_register
        if not self.anonymous and (hook is not None or self.identity is None):
            if hook is None:
                raise ConnectRefused(
                    "no authentication is set up and anonymous clients are not allowed here",
                    REFUSED_NOT_AUTHORISED,
                )
            try:
                hook(
                    self.output.describe(),
                    self.client_id,
                    connect.username,
                    connect.password,
                    connect.clean_session,
                )
            except Refused as refused:
                code = REFUSED_CREDENTIALS if refused.bad_credentials else REFUSED_NOT_AUTHORISED
                raise ConnectRefused(refused.reason, code) from None
        if connect.has_will and self.core.hooks.auth_on_publish is not None:
            try:
                self.core.hooks.auth_on_publish(
                    connect.username,
                    self.client_id,
                    connect.will_qos,
                    connect.will_topic.decode(),
                    connect.will_payload,
                    connect.will_retain,
                )
            except Refused as refused:
                raise ConnectRefused(
                    "will not allowed: " + refused.reason, REFUSED_NOT_AUTHORISED
                ) from None

    def accept(self, connect: Connect) -> None:
        """The CONNECT is good: session, CONNACK, then what waits [MQTT-3.2.0-1]."""
        core = self.core
        if not connect.clean_session and core.store is not None and core.store.failing:
            raise ConnectRefused("the store cannot write", REFUSED_UNAVAILABLE)
        self.level = connect.level
        self.clean = connect.clean_session
        self.username = connect.username
        self.keep_alive = connect.keep_alive
        self.started_at = core.wall_clock()
        output = self.output
        subscriber, present = self.registry.register(self.client_id, self.clean, output)
        self.subscriber = subscriber
        self.will = will_of(connect)
        self.decoder.max_remaining_length = core.options.max_packet_size
        core.counters.mqtt_connack_sent[ACCEPTED] += 1
        # MQTT 3.1 has no session-present flag.
        output.add(connack(present and self.level != LEVEL_3_1, ACCEPTED))
        hook = core.hooks.on_register
        if hook is not None:
            hook(output.describe(), self.client_id, self.username)
        subscriber.queue.go_online(output)
        wakeup = core.hooks.on_client_wakeup
        if wakeup is not None:
            wakeup(self.client_id)
        if log.isEnabledFor(logging.DEBUG):
            log.debug(
                "connected client=%s peer=%s clean=%d keep_alive=%d session_present=%d",
                self.client_id,
                output.describe(),
                self.clean,
                self.keep_alive,
                present,
            )

    # PUBLISH

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
        """PUBLISH at QoS 0 without RETAIN: subscribers get the very bytes that came in.

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
        count = decoder.run(route.field, longest)
        counters = core.counters
        counters.mqtt_publish_received += count
        targets = route.targets
        counters.router_matches_local += len(targets) * count
        if not targets:
            return
        frames = data[start : decoder.end]
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
        if qos == 0:
            self.publish(route, Message(route.topic, data[topic_end:end], 0, retain))
            return
        if topic_end + 2 > end:
            raise ProtocolError("PUBLISH without a packet id", "MQTT-2.3.1-1")
        packet_id = data[topic_end] << 8 | data[topic_end + 1]
        if packet_id == 0:
            raise ProtocolError("packet id 0 in PUBLISH", "MQTT-2.3.1-1")
        message = Message(route.topic, data[topic_end + 2 : end], qos, retain)
        if not head & 9:
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
        self.registry.publish(route, message)
        if hooks.on_publish is not None:
            hooks.on_publish(
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

    # SUBSCRIBE, UNSUBSCRIBE

    def on_subscribe(self) -> None:
        """Subscribes filter by filter, answers, then sends retained messages (section 3.8.4)."""
        subscriber = self.subscriber
        assert subscriber is not None
        decoder = self.decoder
        packet_id, requests = read_subscribe(decoder.data, decoder.body, decoder.end)
        wanted = [(request.topic_filter, request.qos) for request in requests]
        granted = [qos for _, qos in wanted]
        hooks = self.core.hooks
        if hooks.auth_on_subscribe is not None:
            try:
                granted = hooks.auth_on_subscribe(self.username, self.client_id, wanted)
            except Refused:
                self.core.counters.mqtt_subscribe_auth_error += 1
                granted = [SUBSCRIPTION_FAILED] * len(wanted)
        codes = bytearray()
        accepted: list[tuple[str, int]] = []
        for index, (topic_filter, asked) in enumerate(wanted):
            qos = granted[index]
            if qos > 2 or not self.registry.may_subscribe(subscriber, topic_filter):
                # An MQTT 3.1 client does not know the failure code.
                codes.append(asked if self.level == LEVEL_3_1 else SUBSCRIPTION_FAILED)
                continue
            self.registry.subscribe(subscriber, topic_filter, qos)
            accepted.append((topic_filter, qos))
            codes.append(qos)
        self.core.counters.mqtt_suback_sent += 1
        self.output.add(suback(packet_id, bytes(codes)))
        if hooks.on_subscribe is not None:
            hooks.on_subscribe(self.username, self.client_id, accepted)
        for topic_filter, qos in accepted:
            self.registry.send_retained(subscriber, topic_filter, qos)

    def on_unsubscribe(self) -> None:
        subscriber = self.subscriber
        assert subscriber is not None
        decoder = self.decoder
        packet_id, filters = read_unsubscribe(decoder.data, decoder.body, decoder.end)
        hooks = self.core.hooks
        if hooks.on_unsubscribe is not None:
            hooks.on_unsubscribe(self.username, self.client_id, filters)
        for topic_filter in filters:
            self.registry.unsubscribe(subscriber, topic_filter)
        self.core.counters.mqtt_unsuback_sent += 1
        self.output.add(UNSUBACK_HEAD + PACKET_IDS[packet_id])
        if hooks.on_topic_unsubscribed is not None:
            hooks.on_topic_unsubscribed(self.client_id, filters)

    # The end

    def end(self, reason: str) -> None:
        """The connection ends, for whatever reason: will, then the session's own end.

        Called once, by the connection.
        """
        self.decoder = Decoder(0)
        level = logging.INFO
        if self.orderly:
            level = logging.DEBUG
        elif self.broke_protocol:
            level = logging.WARNING
        if log.isEnabledFor(level):
            log.log(
                level,
                'closed client=%s peer=%s reason="%s"',
                self.client_id,
                self.output.describe(),
                reason,
            )
        subscriber = self.subscriber
        if subscriber is None:
            return
        self.registry.unregister(subscriber)
        will = self.will
        self.will = None
        if will is None:
            return
        if self.core.options.suppress_lwt_on_session_takeover and reason.startswith("taken over"):
            return
        self.registry.publish(self.registry.route(will.topic), will)


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

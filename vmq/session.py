"""One connection's protocol state machine: bytes in, pieces of packets out.

What CONNECT is checked for stands in `vmq.connecting`, what PUBLISH does in `vmq.publishing`.

`Session.receive` handles everything in a chunk in one synchronous pass. What a packet may do at
which moment stands in `Session.handle`; nothing a peer sends raises out of `receive`.
"""

import logging
from typing import Final

from vmq.connecting import authorise_client, authorise_will, check_client_id, check_load
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
    PACKET_NAMES,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
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
from vmq.publishing import Publisher
from vmq.queue import Queue
from vmq.registry import Registry
from vmq.store import StoreError
from vmq.will import will_of

log = logging.getLogger("vmq.session")

#: The longest CONNECT: headers and five fields of 65,535 bytes. Until CONNECT is accepted nothing
#: larger is kept in memory.
MAX_CONNECT: Final = 4 + 10 + 5 * 65_537

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


class Session(Publisher):
    """The state of one connection, from its first byte to its end."""

    def __init__(self, registry: Registry, output: Output, anonymous: bool, new_id: str) -> None:
        """`anonymous`: clients need no auth hook here. `new_id` is for a client that has no id."""
        super().__init__(registry, output, Decoder(MAX_CONNECT))
        self.anonymous = anonymous
        self.new_id = new_id
        #: The protocol levels that the listener serves.
        self.levels: tuple[int, ...] = ALL_LEVELS
        #: The name in the client's verified certificate, where that is to be its user name.
        self.identity: str | None = None
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
        except StoreError as failure:  # mypyc gives a name one type: not `error` again
            self.output.close(str(failure) + " [MQTT-4.8.0-2]")
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
        check_client_id(connect, self.core.options.max_client_id_size)
        if not self.client_id:
            self.client_id = self.new_id
        check_load(self.registry, self.client_id)
        if not self.anonymous:
            authorise_client(
                self.core,
                connect,
                self.client_id,
                self.output.describe(),
                self.identity is not None,
            )
        authorise_will(self.core, connect, self.client_id)
        self.accept(connect)

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
        self.decoder.max_packet_size = core.options.max_packet_size
        core.counters.mqtt_connack_sent[ACCEPTED] += 1
        # MQTT 3.1 has no session-present flag.
        output.add(connack(present and self.level != LEVEL_3_1, ACCEPTED))
        hook = core.hooks.on_register
        core.tell("on_register", hook, output.describe(), self.client_id, self.username)
        subscriber.queue.go_online(output)
        core.tell("on_client_wakeup", core.hooks.on_client_wakeup, self.client_id)
        if log.isEnabledFor(logging.DEBUG):
            name, values = self.registry.named(self.client_id)
            text = "connected " + name + " peer=%s clean=%d keep_alive=%d session_present=%d"
            log.debug(
                text,
                *values,
                output.describe(),
                self.clean,
                self.keep_alive,
                present,
            )

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
            except Exception as error:  # noqa: BLE001 - a plugin may raise anything
                self.core.hook_failed("auth_on_subscribe", error)
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
        self.core.tell("on_subscribe", hooks.on_subscribe, self.username, self.client_id, accepted)
        for topic_filter, qos in accepted:
            self.registry.send_retained(subscriber, topic_filter, qos)
            if self.output.closing:
                return

    def on_unsubscribe(self) -> None:
        subscriber = self.subscriber
        assert subscriber is not None
        decoder = self.decoder
        packet_id, filters = read_unsubscribe(decoder.data, decoder.body, decoder.end)
        hooks = self.core.hooks
        self.core.tell(
            "on_unsubscribe", hooks.on_unsubscribe, self.username, self.client_id, filters
        )
        for topic_filter in filters:
            self.registry.unsubscribe(subscriber, topic_filter)
        self.core.counters.mqtt_unsuback_sent += 1
        self.output.add(UNSUBACK_HEAD + PACKET_IDS[packet_id])
        self.core.tell(
            "on_topic_unsubscribed", hooks.on_topic_unsubscribed, self.client_id, filters
        )

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
            name, values = self.registry.named(self.client_id)
            text = "closed " + name + ' peer=%s reason="%s"'
            log.log(level, text, *values, self.output.describe(), reason)
        subscriber = self.subscriber
        if subscriber is None:
            return
        # Whatever fails in one step must not keep the next from happening.
        try:
            self.registry.unregister(subscriber)
        except Exception:
            log.exception("internal error at the end of a session, client=%s", self.client_id)
        will = self.will
        self.will = None
        if will is None:
            return
        if self.core.options.suppress_lwt_on_session_takeover and reason.startswith("taken over"):
            return
        try:
            self.publish_will(will)
        except Exception:
            log.exception("internal error at the will of client=%s", self.client_id)

    def publish_will(self, will: Message) -> None:
        """Publishes the will, unless it had to join more than the store can ever take."""
        core = self.core
        route = self.registry.route(will.topic)
        store = core.store
        if store is not None and store.gathered > 2 * core.options.max_uncommitted_writes:
            if will.retain or route.stored_copies:
                core.counters.mqtt_publish_error += 1
                log.warning("will of client=%s is lost: the store cannot write", self.client_id)
                return
        self.registry.publish(route, will)

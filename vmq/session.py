"""One connection's protocol state machine: bytes in, pieces of packets out.

What CONNECT is checked for stands in `vmq.connecting`, what PUBLISH does in `vmq.publishing`.

`Session.receive` handles everything in a chunk in one synchronous pass. What a packet may do at
which moment stands in `Session.handle`; nothing a peer sends raises out of `receive`.
"""

import logging
from typing import Final

from vmq_hooks.modifiers import PublishModifiers, RegisterModifiers
from vmq_hooks.types import REFUSED_QOS, Subscription
from vmq_hooks.verdicts import Refuse

from vmq.connecting import (
    check_client_id,
    check_load,
    no_authentication,
    refuse,
    refuse_will,
    will_seen,
)
from vmq.hooks import Answer, Pending
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
from vmq.publishing import Publisher, changed_message
from vmq.refusing import SPLIT, tell_of_split, tell_of_subscribe
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
        #: Where the will goes, if not to the client's own topic tree.
        self.will_mountpoint: str | None = None
        #: `anonymous` holds only while no plugin knows clients.
        self.anonymous_until_hook = False
        #: Chunks that came while the session was suspended.
        self.unread: list[bytes] | None = None
        #: CONNECT is good, and its session is on its way from another node.
        self.claiming = False
        #: Suspended, and read all the same, until more comes.
        self.listening = False
        self.broke_protocol = False
        self.orderly = False

    def receive(self, data: bytes) -> None:
        """Handles a chunk of bytes. Afterwards the caller flushes the outbox."""
        if self.output.closing:
            return
        if self.suspended:
            # What the transport had read before it was paused, or reads to see whether the client is there.
            if self.listening:
                self.listening = False
                self.output.pause()
            unread = self.unread
            if unread is None:
                self.unread = unread = []
            unread.append(data)
            return
        try:
            self.decoder.feed(data)
            self.handle_packets()
        except Exception as error:  # noqa: BLE001 - sorted out below
            self.fail(error)

    def resume(self) -> None:
        """Goes on with the packet that waited, then with what came behind it."""
        if self.output.closing:
            return
        self.suspended = False
        proceed = self.proceed
        answer = self.answer
        self.proceed = None
        self.answer = None
        try:
            if proceed is not None:
                proceed(answer)
            if self.is_ready():
                self.handle_packets()
            unread = self.unread
            if unread is not None and self.is_ready():
                self.unread = None
                self.decoder.feed(b"".join(unread))
                self.handle_packets()
        except Exception as error:  # noqa: BLE001 - sorted out below
            self.fail(error)

    def is_ready(self) -> bool:
        """Whether packets may be handled now."""
        return not self.suspended and not self.output.closing

    def fail(self, error: Exception) -> None:
        """What ends a connection: the peer's fault, a refusal, the store, or a defect of ours."""
        counters = self.core.counters
        if isinstance(error, ProtocolError):
            self.broke_protocol = True
            counters.protocol_errors += 1
            self.output.close("protocol error: " + str(error))
        elif isinstance(error, ConnectRefused):
            counters.mqtt_connect_error += 1
            counters.mqtt_connack_sent[error.code] += 1
            self.output.add(connack(False, error.code))
            self.output.close("refused: " + error.text)
        elif isinstance(error, StoreError):
            self.output.close(str(error) + " [MQTT-4.8.0-2]")
        else:
            # It must not reach other connections.
            log.error("internal error, client=%s", self.client_id, exc_info=error)
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
            if output.closing or self.suspended:
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
        self.authenticate(connect)

    def authenticate(self, connect: Connect) -> None:
        """Asks the auth hook; without one only anonymous and certified clients may enter.

        A verified certificate needs no hook, though one that there is may refuse its name.
        """
        hook = self.hooks.auth_on_register
        if hook is None:
            if not self.anonymous and self.identity is None:
                raise no_authentication()
            self.authorise_will(connect)
            return
        if self.anonymous and not self.anonymous_until_hook:
            self.authorise_will(connect)
            return
        answer = self.ask(
            "auth_on_register",
            hook,
            self.output.seen_peer(),
            self.subscriber_id(),
            connect.username,
            connect.password,
            connect.clean_session,
        )
        if isinstance(answer, Pending):
            self.suspend(answer, lambda later: self.on_register_verdict(connect, later))
        else:
            self.on_register_verdict(connect, answer)

    def on_register_verdict(self, connect: Connect, answer: Answer) -> None:
        if isinstance(answer, Refuse):
            raise refuse(answer)
        if isinstance(answer, RegisterModifiers):
            self.change(connect, answer)
        self.authorise_will(connect)

    def change(self, connect: Connect, changes: RegisterModifiers) -> None:
        """What a plugin wants different for this session."""
        if changes.username is not None:
            connect.username = changes.username
        if changes.clean_session is not None:
            connect.clean_session = changes.clean_session
        subscriber_id = changes.subscriber_id
        if subscriber_id is not None:
            self.client_id = subscriber_id.client_id
            self.seen_id = subscriber_id
            core = self.core
            if subscriber_id.mountpoint != self.registry.mountpoint:
                assert core.find_registry is not None
                self.registry = core.find_registry(subscriber_id.mountpoint)
        if self.core.own_options is not None:
            self.options = self.core.own_options(changes)
        self.output.limit(changes.max_message_rate, changes.max_connection_lifetime)

    def authorise_will(self, connect: Connect) -> None:
        """Asks whether the client may publish its will, if it has one."""
        hook = self.hooks.auth_on_publish
        if hook is None or not connect.has_will:
            self.claim(connect, will_of(connect))
            return
        answer = self.ask(
            "auth_on_publish", hook, connect.username, self.subscriber_id(), will_seen(connect)
        )
        if isinstance(answer, Pending):
            self.suspend(answer, lambda later: self.on_will_verdict(connect, later))
        else:
            self.on_will_verdict(connect, answer)

    def on_will_verdict(self, connect: Connect, answer: Answer) -> None:
        if isinstance(answer, Refuse):
            raise refuse_will(answer, connect)
        will = will_of(connect)
        if isinstance(answer, PublishModifiers) and will is not None:
            will = changed_message(will, answer)
            self.will_mountpoint = answer.mountpoint
        self.claim(connect, will)

    def claim(self, connect: Connect, will: Message | None) -> None:
        """The CONNECT is good: waits for the session if another node of the cluster has it."""
        claim = self.core.claim
        pending: Pending | None = None
        if claim is not None:
            pending = claim(self.registry, self.client_id, connect.clean_session)
        if pending is None:
            self.accept(connect, will)
            return
        self.claiming = True
        self.suspend(pending, lambda answer: self.on_claimed(connect, will, answer))
        # Whoever is not read could go away unseen, and would be a client with its session in the end.
        self.listening = True
        self.output.resume()

    def on_claimed(self, connect: Connect, will: Message | None, answer: Answer) -> None:
        self.claiming = False
        if self.listening:
            self.listening = False
            self.output.pause()
        if isinstance(answer, Refuse):
            # It was never accepted: no CONNACK says that somebody else has its place.
            self.output.close(answer.reason)
            return
        self.accept(connect, will)

    def accept(self, connect: Connect, will: Message | None) -> None:
        """Session, CONNACK, then what waits [MQTT-3.2.0-1]."""
        core = self.core
        if not connect.clean_session and core.store is not None and core.store.failing:
            raise ConnectRefused("the store cannot write", REFUSED_UNAVAILABLE)
        if self.is_cut_off(self.options.allow_register_during_netsplit):
            raise ConnectRefused(SPLIT + " (allow_register_during_netsplit)", REFUSED_UNAVAILABLE)
        self.level = connect.level
        self.clean = connect.clean_session
        self.username = connect.username
        self.keep_alive = connect.keep_alive
        self.started_at = core.wall_clock()
        output = self.output
        subscriber, present = self.registry.register(self.client_id, self.clean, output)
        self.subscriber = subscriber
        if present and subscriber.queue.username != self.username:
            # The subscriptions were granted to somebody else, or to a user that nobody remembers.
            subscriber.recheck = True
        subscriber.is_known = True
        subscriber.queue.username = self.username
        subscriber.queue.options = self.options
        subscriber.queue.bridge = connect.bridge
        self.will = will
        self.decoder.max_packet_size = core.options.max_packet_size
        core.counters.mqtt_connack_sent[ACCEPTED] += 1
        # MQTT 3.1 has no session-present flag.
        output.add(connack(present and self.level != LEVEL_3_1, ACCEPTED))
        hook = self.hooks.on_register
        if hook is not None:
            core.tell("on_register", hook, output.seen_peer(), self.subscriber_id(), self.username)
        subscriber.queue.go_online(output)
        if subscriber.recheck and core.recheck is not None:
            core.recheck(self.registry, subscriber)
        wakeup = self.hooks.on_client_wakeup
        if wakeup is not None:
            core.tell("on_client_wakeup", wakeup, self.subscriber_id())
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
        wanted = [Subscription(each.topic_filter, each.qos) for each in requests]
        if self.is_cut_off(self.options.allow_subscribe_during_netsplit):
            self.refuse_subscribe(packet_id, wanted)
            return
        hook = self.hooks.auth_on_subscribe
        if hook is None:
            self.finish_subscribe(packet_id, wanted, None)
            return
        answer = self.ask("auth_on_subscribe", hook, self.username, self.subscriber_id(), wanted)
        if isinstance(answer, Pending):
            self.suspend(answer, lambda later: self.finish_subscribe(packet_id, wanted, later))
        else:
            self.finish_subscribe(packet_id, wanted, answer)

    def finish_subscribe(self, packet_id: int, wanted: list[Subscription], answer: Answer) -> None:
        subscriber = self.subscriber
        assert subscriber is not None
        granted = wanted
        if isinstance(answer, Refuse):
            self.core.counters.mqtt_subscribe_auth_error += 1
            granted = [Subscription(each.topic_filter, REFUSED_QOS) for each in wanted]
            tell_of_subscribe(self.registry, self.client_id, self.username, wanted, answer)
        elif isinstance(answer, list):
            granted = answer
            tell_of_subscribe(self.registry, self.client_id, self.username, wanted, answer)
        codes = bytearray()
        accepted: list[Subscription] = []
        for index, each in enumerate(granted):
            topic_filter: str = each.topic_filter
            qos: int = each.qos
            if qos > 2 or not self.registry.may_subscribe(subscriber, topic_filter):
                # An MQTT 3.1 client does not know the failure code.
                asked: int = wanted[index].qos
                codes.append(asked if self.level == LEVEL_3_1 else SUBSCRIPTION_FAILED)
                continue
            self.registry.subscribe(subscriber, topic_filter, qos)
            accepted.append(each)
            codes.append(qos)
        fence = self.core.fence
        if fence is not None and accepted:
            pending = fence(self.registry, subscriber, [each.topic_filter for each in accepted])
            if pending is not None:
                done = bytes(codes)
                self.suspend(pending, lambda _: self.answer_subscribe(packet_id, done, accepted))
                return
        self.answer_subscribe(packet_id, bytes(codes), accepted)

    def answer_subscribe(self, packet_id: int, codes: bytes, accepted: list[Subscription]) -> None:
        subscriber = self.subscriber
        assert subscriber is not None
        self.core.counters.mqtt_suback_sent += 1
        self.output.add(suback(packet_id, codes))
        hook = self.hooks.on_subscribe
        if hook is not None:
            self.core.tell("on_subscribe", hook, self.username, self.subscriber_id(), accepted)
        for each in accepted:
            if each.topic_filter in subscriber.subscriptions:  # it may have been revoked meanwhile
                self.registry.send_retained(subscriber, each.topic_filter, each.qos)
            if self.output.closing:
                return

    def refuse_subscribe(self, packet_id: int, wanted: list[Subscription]) -> None:
        """Subscriptions may not be taken now; an MQTT 3.1 client knows no answer that says so."""
        counters = self.core.counters
        counters.mqtt_subscribe_error += 1
        if self.level == LEVEL_3_1:
            self.output.close(SPLIT + " (allow_subscribe_during_netsplit) [MQTT-4.8.0-2]")
            return
        first = wanted[0].topic_filter
        tell_of_split(self.registry, self.client_id, "subscription refused", "filter", first)
        counters.mqtt_suback_sent += 1
        self.output.add(suback(packet_id, bytes([SUBSCRIPTION_FAILED] * len(wanted))))

    def on_unsubscribe(self) -> None:
        decoder = self.decoder
        packet_id, filters = read_unsubscribe(decoder.data, decoder.body, decoder.end)
        if self.is_cut_off(self.options.allow_unsubscribe_during_netsplit):
            self.core.counters.mqtt_unsubscribe_error += 1
            self.output.close(SPLIT + " (allow_unsubscribe_during_netsplit) [MQTT-4.8.0-2]")
            return
        hook = self.hooks.on_unsubscribe
        answer: Answer = None
        if hook is not None:
            answer = self.ask("on_unsubscribe", hook, self.username, self.subscriber_id(), filters)
        if isinstance(answer, Pending):
            self.suspend(answer, lambda later: self.finish_unsubscribe(packet_id, filters, later))
        else:
            self.finish_unsubscribe(packet_id, filters, answer)

    def finish_unsubscribe(self, packet_id: int, filters: list[str], answer: Answer) -> None:
        subscriber = self.subscriber
        assert subscriber is not None
        if isinstance(answer, list):
            filters = answer
        for topic_filter in filters:
            self.registry.unsubscribe(subscriber, topic_filter)
        self.core.counters.mqtt_unsuback_sent += 1
        self.output.add(UNSUBACK_HEAD + PACKET_IDS[packet_id])
        told = self.hooks.on_topic_unsubscribed
        if told is not None:
            self.core.tell("on_topic_unsubscribed", told, self.subscriber_id(), filters)

    # The end

    def end(self, reason: str) -> None:
        """The connection ends, for whatever reason: will, then the session's own end.

        Called once, by the connection.
        """
        self.decoder = Decoder(0)
        pending = self.pending
        if pending is not None:
            self.pending = None
            pending.then = None
            pending.cancel()
        self.proceed = None
        self.unread = None
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
        registry = self.registry
        if self.will_mountpoint is not None and core.find_registry is not None:
            registry = core.find_registry(self.will_mountpoint)
        route = registry.route(will.topic)
        if self.is_cut_off(self.options.allow_publish_during_netsplit):
            core.counters.mqtt_publish_error += 1
            tell_of_split(registry, self.client_id, "will lost", "topic", route.text)
            return
        store = core.store
        if store is not None and store.gathered > 2 * core.options.max_uncommitted_writes:
            if will.retain or route.is_stored():
                core.counters.mqtt_publish_error += 1
                log.warning("will of client=%s is lost: the store cannot write", self.client_id)
                return
        if route.taps:
            try:
                registry.tap(route, will, self.client_id)
            except StoreError as error:
                # Nobody sends a will again: the others shall have it at least.
                log.warning("will of client=%s is not in its stream: %s", self.client_id, error)
        registry.publish(route, will, self.options.shared_subscription_policy)

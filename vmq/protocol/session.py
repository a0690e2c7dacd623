"""One connection's protocol state machine: bytes in, pieces of packets out.

What CONNECT is checked for stands in `vmq.protocol.connect`, what PUBLISH does in `vmq.protocol.publish`, SUBSCRIBE in
`vmq.protocol.subscribe`.

`Session.receive` handles what is in a chunk in one synchronous pass, whose work is bounded: what is left is a rest, for
which the connection calls `go_further` in later turns of the event loop. What a packet may do at which moment stands in
`Session.handle`; nothing a peer sends raises out of `receive`.
"""

import logging
from collections.abc import Callable
from typing import Final

from mypy_extensions import i64
from vmq_hooks.modifiers import RegisterModifiers
from vmq_hooks.types import Subscription
from vmq_hooks.verdicts import Refuse

from vmq.core.hook_sites import Answer, Pending
from vmq.core.output import Output
from vmq.core.registry import OURS, Registry
from vmq.mqtt.decoder import (
    Decoder,
    is_mqtt31,
    read_connect,
)
from vmq.mqtt.encoder import (
    PINGRESP,
    connack,
)
from vmq.mqtt.message import Message
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
    PUBREL,
    REFUSED_PROTOCOL_LEVEL,
    REFUSED_UNAVAILABLE,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Connect,
    ConnectRefused,
    ProtocolError,
)
from vmq.protocol.acknowledgements import on_acknowledgements
from vmq.protocol.connect import (
    check_ban,
    check_client_id,
    check_flapping,
    check_load,
    check_owner,
    check_page,
    check_will,
    no_authentication,
    refuse,
    refuse_will,
    will_seen,
)
from vmq.protocol.refusals import SPLIT, tell_of_login
from vmq.protocol.rights import STEP as ASKED_AT_ONCE
from vmq.protocol.rights import lapse_of, take_back, tell_of_lost, wanted_of
from vmq.protocol.subscribe import Subscribing
from vmq.protocol.will import will_of
from vmq.protocol.will_publish import publish_will
from vmq.store.store import DAMAGED, StoreError

log = logging.getLogger("vmq.session")

#: What one pass does at most: so many packets, a run of them on one topic being one, and so much work (`Core.work`).
#: The rest waits for the next turn of the event loop, in which others have theirs. With so many, bursts of PUBLISH on
#: many topics are as fast as without a bound.
PACKETS_A_PASS: Final = 1000
WORK_A_PASS: Final = 8192

#: The low four bits of each packet type's first byte [MQTT-2.2.2-1]; PUBLISH has its own.
RESERVED_FLAGS: Final = b"\0\0\0\0\0\0\2\0\2\0\2\0\0\0\0\0"

#: Who breaks the flags of these packets breaks a statement of the packet's own section.
FLAG_STATEMENTS: Final = {
    PUBREL: "MQTT-3.6.1-1",
    SUBSCRIBE: "MQTT-3.8.1-1",
    UNSUBSCRIBE: "MQTT-3.10.1-1",
    DISCONNECT: "MQTT-3.14.1-1",
}


def nothing() -> None:
    """Cancels what needs no cancelling."""


#: Levels of MQTT that a session can speak.
ALL_LEVELS: Final = (LEVEL_3_1, LEVEL_3_1_1)


class Resumed:
    """An accepted CONNECT whose session's subscriptions are asked about: so many of them are done."""

    def __init__(self, wanted: list[Subscription], will: Message | None, present: bool) -> None:
        self.wanted = wanted
        self.will = will
        self.present = present
        self.done: int = 0

    def part(self) -> list[Subscription]:
        """The next of them."""
        return self.wanted[self.done : self.done + ASKED_AT_ONCE]


class Session(Subscribing):
    """The state of one connection, from its first byte to its end."""

    def __init__(self, registry: Registry, output: Output, anonymous: bool, new_id: str) -> None:
        """`anonymous`: clients need no auth hook here. `new_id` is for a client that has no id."""
        super().__init__(registry, output, Decoder(registry.core.options.max_connect_size))
        self.decoder.before_connect = True
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
        #: `anonymous` holds only while no plugin knows clients.
        self.anonymous_until_hook = False
        #: Why the web page whose script this is may not come in without credentials; "" if it may, or is none.
        self.foreign = ""
        #: More is to be handled in a pass of its own, before anything that comes.
        self.has_rest = False
        #: Chunks that came while the session was suspended, or had a rest.
        self.unread: list[bytes] | None = None
        #: CONNECT is good, and its session is on its way from another node.
        self.claiming = False
        #: Suspended, and read all the same, until more comes.
        self.listening = False
        self.refused: ConnectRefused | None = None
        #: When its CONNECT had come, by the core's clock.
        self.connect_at: float = 0.0
        self.broke_protocol = False
        self.orderly = False

    def receive(self, data: bytes) -> None:
        """Handles a chunk of bytes, as far as one pass goes. Afterwards the caller flushes the outbox."""
        if self.output.closing:
            return
        if self.suspended or self.has_rest:
            # What the transport had read before it was paused, or reads to see whether the client is there.
            if self.listening:
                self.listening = False
                self.output.pause()
            self.charge(len(data))
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
        if self.listening:
            self.listening = False
            self.output.pause()
        self.suspended = False
        proceed = self.proceed
        answer = self.answer
        self.proceed = None
        self.answer = None
        try:
            if proceed is not None:
                proceed(answer)
            if self.is_ready():
                self.handle_rest()
            if self.has_rest and self.decoder.is_at_end():
                self.handle_rest()  # what came while it waited
        except Exception as error:  # noqa: BLE001 - sorted out below
            self.fail(error)

    def kept_bytes(self) -> int:
        """Bytes that came and are not handled."""
        decoder = self.decoder
        kept = decoder.waiting_bytes()
        if self.suspended or self.has_rest:
            kept += decoder.size - decoder.position
            if self.unread is not None:
                for chunk in self.unread:
                    kept += len(chunk)
        return kept

    def go_further(self) -> None:
        """Goes on with the rest, as far as one pass goes."""
        try:
            self.handle_rest()
        except Exception as error:  # noqa: BLE001 - sorted out below
            self.fail(error)

    def handle_rest(self) -> None:
        self.step()
        if not self.is_ready():
            self.has_rest = False
            return
        if self.request is not None:
            self.has_rest = True
            return
        unread = self.unread
        decoder = self.decoder
        if unread is not None and decoder.is_at_end():
            decoder.feed(unread.pop(0))
            if not unread:
                self.unread = None
        self.handle_packets()

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
            self.refused = error
            self.output.add(connack(False, error.code))
            self.output.close("refused: " + error.text)
        elif isinstance(error, StoreError):
            self.output.close(str(error) + " [MQTT-4.8.0-2]")
        else:
            # It must not reach other connections.
            log.error("internal error, client=%s", self.client_id, exc_info=error)
            self.output.close("internal error")

    def handle_packets(self) -> None:
        """Handles packets until none is whole, the session waits for something, or the pass did enough."""
        decoder = self.decoder
        output = self.output
        core = self.core
        enough = core.work + WORK_A_PASS
        left: i64 = PACKETS_A_PASS
        self.has_rest = False
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
                if self.request is not None:
                    left = 1
            if output.closing or self.suspended:
                return
            left -= 1
            if left == 0 or core.work > enough:
                self.has_rest = True
                return
        self.has_rest = self.unread is not None

    def handle(self, head: int) -> None:
        """Any packet but PUBLISH, on an accepted connection."""
        kind = head >> 4
        # MQTT 3.1 has DUP, QoS and RETAIN bits everywhere: used to repeat requests, else not used.
        if head & 15 != RESERVED_FLAGS[kind] and self.level != LEVEL_3_1:
            raise ProtocolError(
                "wrong flags in " + PACKET_NAMES[kind],
                FLAG_STATEMENTS.get(kind, "MQTT-2.2.2-2"),
            )
        counters = self.core.counters
        if PUBACK <= kind <= PUBCOMP:
            on_acknowledgements(self, kind)
        elif kind == SUBSCRIBE:
            counters.mqtt_subscribe_received += 1
            self.begin_request(kind)
        elif kind == UNSUBSCRIBE:
            counters.mqtt_unsubscribe_received += 1
            self.begin_request(kind)
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

    def check_empty(self, kind: int) -> None:
        if self.decoder.body != self.decoder.end:
            raise ProtocolError(PACKET_NAMES[kind] + " of wrong length", "MQTT-4.8.0-1")

    # CONNECT

    def on_first_packet(self) -> None:
        decoder = self.decoder
        head: int = decoder.head
        if head >> 4 != CONNECT:
            raise ProtocolError(PACKET_NAMES[head >> 4] + " as the first packet", "MQTT-3.1.0-1")
        if head & 15 and not is_mqtt31(decoder.data, decoder.body):
            raise ProtocolError("wrong flags in CONNECT", "MQTT-2.2.2-2")
        self.core.counters.mqtt_connect_received += 1
        self.connect_at = self.core.clock()
        connect = read_connect(decoder.data, decoder.body, decoder.end)
        self.client_id = connect.client_id
        self.username = connect.username
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
        self.new_id = ""
        check_load(self.registry)
        self.check_ban(connect)
        self.authenticate(connect)

    def check_ban(self, connect: Connect) -> None:
        if not self.core.bans.is_empty:
            peer = self.output.seen_peer()
            check_ban(self.registry, connect.username, self.client_id, peer)

    def authenticate(self, connect: Connect) -> None:
        """Asks the auth hook; without one only anonymous and certified clients may enter.

        A verified certificate needs no hook, though one that there is may refuse its name.
        """
        if self.foreign:
            check_page(self.registry, self.foreign, connect, self.is_open())
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
            self.charge(len(self.decoder.data))
            self.listen()
        else:
            self.on_register_verdict(connect, answer)

    def is_open(self) -> bool:
        """Whether clients are let in now who bring no credentials, or those of their certificate."""
        is_anonymous = self.hooks.auth_on_register is None or not self.anonymous_until_hook
        return self.identity is not None or (self.anonymous and is_anonymous)

    def on_register_verdict(self, connect: Connect, answer: Answer) -> None:
        if isinstance(answer, Refuse):
            raise refuse(answer, self.core.options.refusal_code)
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
                self.registry = core.registries.find(subscriber_id.mountpoint)
        self.options = self.core.session_options.of(changes) or self.options
        self.output.limit(changes.max_message_rate, changes.max_connection_lifetime)

    def authorise_will(self, connect: Connect) -> None:
        """Asks whether the client may publish its will, if it has one."""
        check_will(connect, self.options.max_message_size)
        hook = self.hooks.auth_on_publish
        if hook is None or not connect.has_will:
            self.claim(connect, will_of(connect, self.client_id))
            return
        answer = self.ask(
            "auth_on_publish", hook, connect.username, self.subscriber_id(), will_seen(connect)
        )
        if isinstance(answer, Pending):
            self.suspend(answer, lambda later: self.on_will_verdict(connect, later))
            self.listen()
        else:
            self.on_will_verdict(connect, answer)

    def on_will_verdict(self, connect: Connect, answer: Answer) -> None:
        if isinstance(answer, Refuse):
            raise refuse_will(answer, connect)
        # What a plugin changes about it is settled when it is published.
        self.claim(connect, will_of(connect, self.client_id))

    def claim(self, connect: Connect, will: Message | None) -> None:
        """The CONNECT is good: waits for the session if another node of the cluster has it."""
        self.check_ban(connect)  # plugins may have named another user
        check_flapping(self.registry, connect.username, self.client_id)
        check_owner(self.registry, self.client_id, self.owner_of(connect))
        pending = self.core.claims.claim(self.registry, self.client_id, connect.clean_session)
        if pending is None:
            self.accept(connect, will)
            return
        self.claiming = True
        self.suspend(pending, lambda answer: self.on_claimed(connect, will, answer))
        self.listen()

    def listen(self) -> None:
        """Reads while a CONNECT waits: whoever is not read could go away unseen, and be let in in the end."""
        self.listening = True
        self.output.resume()

    def charge(self, size: int) -> None:
        """Bytes wait in memory with a CONNECT."""
        pending = self.pending
        if pending is not None and pending.charge is not None:
            pending.charge(size)

    def give_up(self) -> None:
        """The verdict on the CONNECT takes too long: the client had better come again."""
        self.core.counters.logins_put_off += 1
        self.fail(ConnectRefused("no verdict within login_timeout", REFUSED_UNAVAILABLE))

    def on_claimed(self, connect: Connect, will: Message | None, answer: Answer) -> None:
        self.claiming = False
        if isinstance(answer, Refuse) and answer.unavailable:
            raise refuse(answer, self.core.options.refusal_code)
        if isinstance(answer, Refuse):
            # It was never accepted: no CONNACK says that somebody else has its place.
            self.output.close(answer.reason)
            return
        self.accept(connect, will)

    def accept(self, connect: Connect, will: Message | None) -> None:
        """The session is the connection's; its subscriptions are asked about anew if it was there."""
        core = self.core
        if not connect.clean_session and core.store is not None:
            store = core.store
            # Who has a session already may take what waits there: that makes room.
            if store.failing or (
                store.is_short and self.client_id not in self.registry.subscribers
            ):
                raise ConnectRefused(store.why_refused(), REFUSED_UNAVAILABLE)
        if not connect.clean_session and self.registry.refuses(self.client_id):
            raise ConnectRefused(DAMAGED, REFUSED_UNAVAILABLE)
        if self.is_cut_off(self.options.allow_register_during_netsplit):
            raise ConnectRefused(SPLIT + " (allow_register_during_netsplit)", REFUSED_UNAVAILABLE)
        # It may have come from another node meanwhile.
        check_owner(self.registry, self.client_id, self.owner_of(connect))
        self.level = connect.level
        self.clean = connect.clean_session
        self.username = connect.username
        self.keep_alive = connect.keep_alive
        self.started_at = core.wall_clock()
        output = self.output
        user = self.owner_of(connect)
        before = self.registry.subscribers.get(self.client_id)
        is_others = before is not None and before.owner is not None and before.owner != user
        subscriber, present = self.registry.register(self.client_id, self.clean, output, user)
        self.subscriber = subscriber
        subscriber.queue.username = self.username
        subscriber.queue.options = self.options
        subscriber.queue.bridge = connect.bridge
        if present and is_others:
            subscriber.queue.drop_unwanted()  # what the user before had in flight, and does not subscribe to
        self.ask_anew(Resumed(wanted_of(subscriber) if present else [], will, present))

    def ask_anew(self, resumed: "Resumed") -> None:
        """Asks about the subscriptions of a session that is resumed, before anything of it is sent."""
        hook = self.hooks.auth_on_subscribe
        while hook is not None and resumed.done < len(resumed.wanted):
            part = resumed.part()
            answer = self.ask("auth_on_subscribe", hook, self.username, self.subscriber_id(), part)
            if isinstance(answer, Pending):
                self.suspend(answer, lambda later: self.on_asked_anew(resumed, later))
                return
            self.take_back(part, answer)
            resumed.done += len(part)
            if resumed.done < len(resumed.wanted) and self.core.call_later is not None:
                self.let_others(lambda _: self.ask_anew(resumed))
                return
        self.begin(resumed.will, resumed.present)

    def on_asked_anew(self, resumed: "Resumed", answer: Answer) -> None:
        part = resumed.part()
        self.take_back(part, answer)
        resumed.done += len(part)
        self.ask_anew(resumed)

    def let_others(self, proceed: "Callable[[Answer], None]") -> None:
        """Goes on in a later pass: others are served first."""
        pause = Pending(nothing)
        assert self.core.call_later is not None
        self.core.call_later(0.0, lambda: pause.finish(None))
        self.suspend(pause, proceed)

    def take_back(self, wanted: list[Subscription], answer: Answer) -> None:
        """Ends what the client may not subscribe to any more."""
        subscriber = self.subscriber
        assert subscriber is not None
        if isinstance(answer, Refuse) and answer.unavailable:
            text = "subscriptions cannot be judged: " + answer.reason
            raise ConnectRefused(text, REFUSED_UNAVAILABLE)
        self.output.judge_again(lapse_of(answer))
        lost = take_back(self.registry, subscriber, wanted, answer)
        plugin: str = getattr(answer, "plugin", "")
        tell_of_lost(self.registry, subscriber, self.hooks, lost, plugin)

    def begin(self, will: Message | None, present: bool) -> None:
        """CONNACK, then what waits [MQTT-3.2.0-1]."""
        core = self.core
        output = self.output
        subscriber = self.subscriber
        assert subscriber is not None
        self.will = will
        self.limit_packets()
        core.counters.mqtt_connack_sent[ACCEPTED] += 1
        # MQTT 3.1 has no session-present flag.
        output.add(connack(present and self.level != LEVEL_3_1, ACCEPTED))
        hook = self.hooks.on_register
        if hook is not None:
            core.tell("on_register", hook, output.seen_peer(), self.subscriber_id(), self.username)
        subscriber.queue.go_online(output)
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

    def owner_of(self, connect: Connect) -> str:
        """Whose a durable session is that this CONNECT begins or resumes."""
        return OURS if self.is_ours else connect.username or ""

    def limit_packets(self) -> None:
        """Takes packets as large as the options allow an accepted client."""
        options = self.core.options
        self.decoder.limit(options.max_packet_size, options.max_control_packet_size)

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
        self.has_rest = False
        self.request = None
        refused = self.refused
        if refused is not None:
            peer = self.output.describe()
            tell_of_login(self.registry, self.client_id, self.username, peer, refused)
        else:
            self.tell_end(reason)
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
            publish_will(self, will)
        except Exception:
            log.exception("internal error at the will of client=%s", self.client_id)

    def tell_end(self, reason: str) -> None:
        """Tells of the end of a connection that was not refused."""
        level = logging.INFO
        if self.orderly:
            level = logging.DEBUG
        elif self.broke_protocol:
            level = logging.WARNING
        if log.isEnabledFor(level):
            name, values = self.registry.named(self.client_id)
            text = "closed " + name + ' peer=%s reason="%s"'
            log.log(level, text, *values, self.output.describe(), reason)

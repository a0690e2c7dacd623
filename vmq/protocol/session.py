"""One connection's protocol state machine: bytes in, pieces of packets out.

What a packet may do at which moment stands in the tables of `vmq.core.states`; what CONNECT does in
`vmq.protocol.login`, PUBLISH in `vmq.protocol.publish`, SUBSCRIBE in `vmq.protocol.subscribe`.

`Session.receive` handles what is in a chunk in one synchronous pass, whose work is bounded: what is left is a rest, for
which the connection calls `go_further` in later turns of the event loop. Nothing a peer sends raises out of `receive`.
"""

import logging
from typing import Final

from mypy_extensions import i64

from vmq.core.output import VERDICT, Output
from vmq.core.registry import Registry
from vmq.core.states import (
    ACTIONS,
    AUTHENTICATING,
    AWAITING_CONNECT,
    BROKEN,
    BUSY,
    DISCONNECTED,
    FIRST,
    ONLINE,
    OVERSIZED,
    UNDER_3_1,
    UNDER_3_1_1,
    WAITING,
    broken_by,
    wrong_flags,
)
from vmq.mqtt.decoder import Decoder, is_mqtt31, read_connect
from vmq.mqtt.encoder import PINGRESP
from vmq.mqtt.first_bytes import FIRST_BYTES, protocol_of
from vmq.mqtt.packets import (
    CONNECT,
    DISCONNECT,
    LEVEL_3_1,
    PACKET_NAMES,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    SUBSCRIBE,
    UNSUBSCRIBE,
    ProtocolError,
)
from vmq.protocol.acknowledgements import on_acknowledgements
from vmq.protocol.login import ClientLogin
from vmq.protocol.refusals import tell_of_login
from vmq.protocol.subscribe import Subscribing
from vmq.protocol.will_publish import publish_will

log = logging.getLogger("vmq.session")

#: What one pass does at most: so many packets, a run of them on one topic being one, and so much work (`Core.work`).
#: The rest waits for the next turn of the event loop, in which others have theirs. With so many, bursts of PUBLISH on
#: many topics are as fast as without a bound.
PACKETS_A_PASS: Final = 1000
WORK_A_PASS: Final = 8192


class Session(Subscribing):
    """The protocol of one connection, from its first byte to its end.

    What it may do with a packet is told by the connection's state (`vmq.core.states`) and by `request`, which has steps
    to come before any further packet.
    """

    def __init__(self, registry: Registry, output: Output, anonymous: bool, new_id: str) -> None:
        """`anonymous`: clients need no auth hook here. `new_id` is for a client that has no id."""
        super().__init__(registry, output, anonymous, new_id)
        #: Chunks that came while packets are kept.
        self.unread: list[bytes] | None = None

    def receive(self, data: bytes) -> None:
        """Handles a chunk of bytes, as far as one pass goes. Afterwards the caller flushes the outbox."""
        state = self.output.state
        if state >= DISCONNECTED:
            return
        if state > ONLINE:
            self.keep_chunk(data)
            return
        try:
            self.decoder.feed(data)
            self.handle_packets()
        except Exception as error:  # noqa: BLE001 - sorted out below
            self.fail(error)

    def keep_chunk(self, data: bytes) -> None:
        """What the transport had read before it was paused, or reads to see whether the client is there."""
        if self.output.state != BUSY:
            self.output.pause_for(VERDICT)
        self.charge(len(data))
        unread = self.unread
        if unread is None:
            self.unread = unread = []
        unread.append(data)

    def resume(self) -> None:
        """Goes on with the packet that waited, then with what came behind it."""
        output = self.output
        if output.closing:
            return
        proceed = self.proceed
        answer = self.answer
        self.proceed = None
        self.answer = None
        try:
            if output.state == WAITING:
                self.enter(ONLINE)
            if proceed is not None:
                proceed(answer)
            if output.state == ONLINE:
                self.handle_rest()
            if output.state == BUSY and self.decoder.is_at_end():
                self.enter(ONLINE)
                self.handle_rest()  # what came while it waited
        except Exception as error:  # noqa: BLE001 - sorted out below
            self.fail(error)

    def kept_bytes(self) -> int:
        """Bytes that came and are not handled."""
        decoder = self.decoder
        kept = decoder.waiting_bytes()
        if ONLINE < self.output.state < DISCONNECTED:
            kept += decoder.size - decoder.position
            if self.unread is not None:
                for chunk in self.unread:
                    kept += len(chunk)
        return kept

    def go_further(self) -> None:
        """Goes on with the rest, as far as one pass goes."""
        try:
            self.enter(ONLINE)
            self.handle_rest()
        except Exception as error:  # noqa: BLE001 - sorted out below
            self.fail(error)

    def handle_rest(self) -> None:
        """Goes on with the request that has steps to come, else with the packets behind it."""
        self.step()
        if self.output.state != ONLINE:
            return
        if self.request is not None:
            self.enter(BUSY)
            return
        unread = self.unread
        decoder = self.decoder
        if unread is not None and decoder.is_at_end():
            decoder.feed(unread.pop(0))
            if not unread:
                self.unread = None
        self.handle_packets()

    def handle_packets(self) -> None:
        """Handles packets until none is whole, the session waits for something, or the pass did enough."""
        decoder = self.decoder
        output = self.output
        core = self.core
        enough = core.work + WORK_A_PASS
        left: i64 = PACKETS_A_PASS
        while decoder.next():
            head: int = decoder.head
            # By far the most, and good in this state: it needs no look at the table.
            if head == 0x30 and output.state == ONLINE:
                self.on_quick_publish()
            else:
                self.handle(head)
                if self.request is not None:
                    left = 1
            if output.state != ONLINE:
                return
            left -= 1
            if left == 0 or core.work > enough:
                self.enter(BUSY)
                return
        if self.unread is not None:
            self.enter(BUSY)
        elif output.state == AWAITING_CONNECT and decoder.rest and decoder.rest[0] >> 4 != CONNECT:
            # Nobody waits for the rest of what is no CONNECT.
            raise self.stranger(decoder.rest, 0, broken_by(decoder.rest[0], FIRST))

    def table(self) -> int:
        """Which of the three tables of actions holds now."""
        if self.output.state == AWAITING_CONNECT:
            return FIRST
        # MQTT 3.1 has DUP, QoS and RETAIN bits everywhere: used to repeat requests, else not used.
        return UNDER_3_1 if self.level == LEVEL_3_1 else UNDER_3_1_1

    def handle(self, head: int) -> None:
        """Does what the table says of the present packet, which begins with this byte."""
        table = self.table()
        action: int = ACTIONS[table + head]
        counters = self.core.counters
        if action == PUBLISH:
            self.on_publish()
        elif PUBACK <= action <= PUBCOMP:
            on_acknowledgements(self, action)
        elif action == SUBSCRIBE:
            counters.mqtt_subscribe_received += 1
            self.begin_request(SUBSCRIBE)
        elif action == UNSUBSCRIBE:
            counters.mqtt_unsubscribe_received += 1
            self.begin_request(UNSUBSCRIBE)
        elif action == PINGREQ:
            self.check_empty(PINGREQ)
            counters.mqtt_pingreq_received += 1
            counters.mqtt_pingresp_sent += 1
            self.output.add(PINGRESP)
        elif action == DISCONNECT:
            self.check_empty(DISCONNECT)
            counters.mqtt_disconnect_received += 1
            if self.will is not None:
                self.will = None  # [MQTT-3.14.4-3]
                self.core.wills.over(self)
            self.output.finish("client disconnected", DISCONNECTED)
        elif action == CONNECT:
            self.on_connect(head)
        elif table == FIRST:
            raise self.stranger(self.decoder.data, self.decoder.start, broken_by(head, table))
        else:
            raise broken_by(head, table)

    def stranger(self, data: bytes | bytearray, start: int, broken: ProtocolError) -> ProtocolError:
        """The end of a connection that does not begin with CONNECT: names what it speaks, if that is known."""
        spoken = protocol_of(bytes(data[start : start + FIRST_BYTES]))
        return ProtocolError(spoken + " instead of MQTT", "MQTT-3.1.0-1") if spoken else broken

    def check_empty(self, kind: int) -> None:
        if self.decoder.body != self.decoder.end:
            raise ProtocolError(PACKET_NAMES[kind] + " of wrong length", "MQTT-4.8.0-1")

    def on_connect(self, head: int) -> None:
        """CONNECT: from here on it is a login's, until the session is online."""
        decoder = self.decoder
        if head & 15 and not is_mqtt31(decoder.data, decoder.body):
            raise self.stranger(decoder.data, decoder.start, wrong_flags(head))
        self.enter(AUTHENTICATING)
        self.core.counters.mqtt_connect_received += 1
        self.connect_at = self.core.clock()
        ClientLogin(self, read_connect(decoder.data, decoder.body, decoder.end)).start()

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
        self.core.wills.over(self)
        if self.core.options.suppress_lwt_on_session_takeover and reason.startswith("taken over"):
            return
        try:
            publish_will(self, will)
        except Exception:
            log.exception("internal error at the will of client=%s", self.client_id)

    def tell_end(self, reason: str) -> None:
        """Tells of the end of a connection that was not refused."""
        level = logging.INFO
        if self.output.state == DISCONNECTED:
            level = logging.DEBUG
        elif self.output.state in (BROKEN, OVERSIZED):
            level = logging.WARNING
        if log.isEnabledFor(level):
            name, values = self.registry.named(self.client_id)
            text = "closed " + name + ' peer=%s reason="%s"'
            log.log(level, text, *values, self.output.describe(), reason)

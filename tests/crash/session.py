"""A client session that keeps to MQTT 3.1.1 chapter 4 by the letter, without any input or output.

It lives through any number of connections. What is not acknowledged is kept and sent again, in its
order and with DUP, on the next one [MQTT-4.4.0-1]; packet ids are taken again as soon as they are
free, the lowest first, because that is where a forgetful broker stumbles.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.crash.history import Delivery, History, message_in
from tests.support import wire as mqtt
from tests.support.wire import Packet

# The broker's inflight window (its default): no more can be under way, and so come again.
WINDOW = 20


@dataclass(frozen=True)
class Outgoing:
    """A message to publish, and what to do when the broker takes charge of it."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    on_sent: Callable[[], None]
    on_acknowledged: Callable[[], None]


class StrictSession:
    """One durable client. `output` collects the bytes to write after each call.

    `take(publish)` may be given to see incoming messages instead of the history.
    """

    def __init__(
        self,
        client_id: str,
        history: History,
        *,
        clean: bool = False,
        take: Callable[[Packet], None] | None = None,
    ) -> None:
        self.client_id = client_id
        self.output = bytearray()
        self.connected = False
        self.connection = 0  # the number of the present connection, from 1
        self.pings_answered = 0
        self.granted: list[int] = []
        self._history = history
        self._clean = clean
        self._take = take or self._note_delivery
        self._established = False  # the broker has once accepted this session
        # Both in the order in which they have to be sent again.
        self._unacknowledged: dict[int, Outgoing] = {}
        self._released: dict[int, None] = {}
        self._repeated = 0  # messages that came with DUP on the present connection
        # QoS 2: the payloads already handed to the application whose PUBREL has not come.
        self._incoming: dict[int, bytes] = {}
        self._subscribing: dict[int, None] = {}
        self._handlers = {
            mqtt.CONNACK: self._on_connack,
            mqtt.PUBLISH: self._on_publish,
            mqtt.PUBACK: self._on_puback,
            mqtt.PUBREC: self._on_pubrec,
            mqtt.PUBREL: self._on_pubrel,
            mqtt.PUBCOMP: self._on_pubcomp,
            mqtt.SUBACK: self._on_suback,
            mqtt.PINGRESP: self._on_pingresp,
        }

    @property
    def in_flight(self) -> int:
        """Messages of this client whose delivery protocol is not at its end."""
        return len(self._unacknowledged) + len(self._released)

    @property
    def unreleased(self) -> int:
        """QoS 2 messages that this client got and whose PUBREL has not come."""
        return len(self._incoming)

    def begin(self) -> None:
        """A new connection stands: ask the broker for the session."""
        self.connection += 1
        self.connected = False
        self._repeated = 0
        self.output.clear()
        self._subscribing.clear()
        self.output += mqtt.connect_packet(self.client_id, clean=self._clean, keep_alive=0)

    def lost(self) -> None:
        self.connected = False

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Send a SUBSCRIBE; `granted` grows when it is answered."""
        packet_id = self._free_id()
        self._subscribing[packet_id] = None
        self.output += mqtt.subscribe_packet(packet_id, (topic_filter, qos))

    def publish(self, message: Outgoing) -> None:
        """Send a message for the first time."""
        packet_id = self._free_id()
        self._unacknowledged[packet_id] = message
        self._transmit(packet_id, message, dup=False)

    def ping(self) -> None:
        """Send a PINGREQ; `pings_answered` counts the answers."""
        self.output += mqtt.PINGREQ_BYTES

    def disconnect(self) -> None:
        self.output += mqtt.DISCONNECT_BYTES
        self.connected = False

    def receive(self, packet: Packet) -> None:
        handler = self._handlers.get(packet.type)
        if handler is None:
            self._object(f"packet of type {packet.type} from the broker")
        elif not self.connected and packet.type != mqtt.CONNACK:
            self._object(f"packet of type {packet.type} before CONNACK")
        else:
            try:
                handler(packet)
            except (ValueError, IndexError) as error:
                self._object(f"malformed packet of type {packet.type}: {error}")

    def _object(self, text: str) -> None:
        self._history.object(f"{self.client_id}, connection {self.connection}: {text}")

    def _free_id(self) -> int:
        packet_id = 1
        while (
            packet_id in self._unacknowledged
            or packet_id in self._released
            or packet_id in self._subscribing
        ):
            packet_id += 1
        return packet_id

    def _transmit(self, packet_id: int, message: Outgoing, *, dup: bool) -> None:
        message.on_sent()
        self.output += mqtt.publish_packet(
            message.topic,
            message.payload,
            qos=message.qos,
            packet_id=packet_id if message.qos else None,
            retain=message.retain,
            dup=dup,
        )

    def _on_connack(self, packet: Packet) -> None:
        if self.connected or len(packet.body) != 2 or packet.body[1] != 0:
            self._object(f"CONNACK {packet.body.hex()}")
            return
        present = bool(packet.body[0] & 1)
        # Once accepted, a durable session is state that the broker has to keep [MQTT-3.1.2-4].
        expected = self._established and not self._clean
        if present != expected:
            self._object(f"session present {present}, expected {expected}")
        if not present:
            self._unacknowledged.clear()
            self._released.clear()
            self._incoming.clear()
        self._established = True
        self.connected = True
        for packet_id in self._released:
            self.output += mqtt.pubrel_packet(packet_id)
        for packet_id, message in self._unacknowledged.items():
            self._transmit(packet_id, message, dup=True)

    def _on_puback(self, packet: Packet) -> None:
        message = self._unacknowledged.get(packet.packet_id)
        if message is None or message.qos != 1:
            self._object(f"PUBACK for packet id {packet.packet_id}, which does not wait for one")
            return
        del self._unacknowledged[packet.packet_id]
        message.on_acknowledged()

    def _on_pubrec(self, packet: Packet) -> None:
        message = self._unacknowledged.get(packet.packet_id)
        if message is None or message.qos != 2:
            self._object(f"PUBREC for packet id {packet.packet_id}, which does not wait for one")
            return
        del self._unacknowledged[packet.packet_id]
        self._released[packet.packet_id] = None
        message.on_acknowledged()
        self.output += mqtt.pubrel_packet(packet.packet_id)

    def _on_pubcomp(self, packet: Packet) -> None:
        if packet.packet_id not in self._released:
            self._object(f"PUBCOMP for packet id {packet.packet_id}, which does not wait for one")
            return
        del self._released[packet.packet_id]

    def _on_publish(self, publish: Packet) -> None:
        if publish.qos == 3:
            raise ValueError("QoS 3")
        if publish.qos and not publish.packet_id:
            self._object(f"PUBLISH at QoS {publish.qos} with packet id 0")
        self._repeated += publish.dup
        if publish.dup and self._repeated == WINDOW + 1:
            self._object(f"over {WINDOW} messages with DUP, more than can have been under way")
        if publish.qos == 2:
            if self._is_repetition(publish):
                self.output += mqtt.pubrec_packet(publish.packet_id)
                return
            self._incoming[publish.packet_id] = publish.payload
        self._take(publish)
        if publish.qos:
            answer = mqtt.puback_packet if publish.qos == 1 else mqtt.pubrec_packet
            self.output += answer(publish.packet_id)

    def _is_repetition(self, publish: Packet) -> bool:
        before = self._incoming.get(publish.packet_id)
        if before is None:
            return False
        if before != publish.payload:
            self._object(f"packet id {publish.packet_id} used again before its PUBREL")
        elif not publish.dup:
            self._object(f"packet id {publish.packet_id} sent again without DUP")
        return True

    def _on_pubrel(self, packet: Packet) -> None:
        if packet.first & 15 != 2:
            self._object("PUBREL without its reserved bits")
        # An id that is not known here is lawful: the PUBCOMP may have been lost.
        self._incoming.pop(packet.packet_id, None)
        self.output += mqtt.pubcomp_packet(packet.packet_id)

    def _on_suback(self, packet: Packet) -> None:
        if packet.packet_id not in self._subscribing:
            self._object(f"SUBACK for packet id {packet.packet_id}")
            return
        del self._subscribing[packet.packet_id]
        self.granted += packet.body[2:]

    def _on_pingresp(self, packet: Packet) -> None:
        self.pings_answered += 1

    def _note_delivery(self, publish: Packet) -> None:
        try:
            message = message_in(publish.payload)
        except ValueError as error:
            self._object(str(error))
            return
        if publish.topic != message.topic:
            self._object(f"{message} came under {publish.topic}")
        if publish.retain:
            self._object(f"{message} came with the retain flag")
        delivery = Delivery(message, publish.qos, publish.dup, self.connection)
        self._history.delivered(self.client_id, delivery)

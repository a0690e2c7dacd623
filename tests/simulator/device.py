"""An MQTT client on the simulator's clock, which goes from node to node and keeps its own half of QoS 1 and 2."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.support import wire as mqtt
from vmq.protocol.connection import Connection
from vmq.protocol.listener_context import ListenerContext

if TYPE_CHECKING:
    from tests.simulator.node import Broker
    from tests.simulator.world import World

#: The longest that bytes take between a device and its node, in seconds.
LAG = 0.01


class Got(NamedTuple):
    """A message that a device owns now."""

    topic: str
    text: str
    qos: int
    retained: bool


class Wire:
    """One connection of a device: what it writes reaches the broker in order, and the other way round."""

    def __init__(self, device: Device, broker: Broker) -> None:
        self.device = device
        self.broker = broker
        self.is_open = True
        self.is_read = True
        self._unread: deque[bytes] = deque()
        self._arrivals = [0.0, 0.0]
        listener = ListenerContext(lambda _: None, lambda _: None)
        self.connection = Connection(broker.registry(), True, device.client_id, listener)
        broker.connections.add(self.connection)
        broker.life.do(self.connection.connection_made, self)

    def _delay(self, way: int) -> float:
        world = self.device.world
        now = world.clock.now
        self._arrivals[way] = due = max(self._arrivals[way], now + world.random.uniform(0, LAG))
        return due - now

    # --- from the device

    def send(self, data: bytes) -> None:
        self.broker.life.soon(self._receive, data, after=self._delay(0))

    def _receive(self, data: bytes) -> None:
        if not self.is_open:
            return
        if self.is_read:
            self.connection.data_received(data)
        else:
            self._unread.append(data)

    def lose(self) -> None:
        """It breaks, and both sides notice; what is on its way is lost."""
        if self.is_open:
            self.is_open = False
            self.device.on_lost(self)
            self.broker.life.soon(self._lost)

    def _lost(self) -> None:
        if self.connection in self.broker.connections:
            self.broker.connections.discard(self.connection)
            self.connection.connection_lost(None)

    # --- the transport of the broker's side

    def write(self, data: bytes) -> None:
        if self.is_open:
            self.device.world.clock.later(self._delay(1), self.device.receive, self, bytes(data))

    def close(self) -> None:
        """What was written arrives before the end."""
        self.device.world.clock.later(self._delay(1), self.lose)

    abort = close

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True
        self.broker.life.soon(self._read_on)

    def _read_on(self) -> None:
        while self._unread and self.is_read and self.is_open:
            self.connection.data_received(self._unread.popleft())

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.1", 4711) if name == "peername" else None


class Device:
    """One device. What it knows of QoS 1 and 2 outlives its connections.

    While it `answers` it acknowledges what it gets, and finishes what it began.
    """

    def __init__(self, world: World, client_id: str, clean: bool, will: mqtt.Will | None) -> None:
        self.world = world
        self.client_id = client_id
        self.clean = clean
        self.will = will
        self.answers = True
        #: Answers that it has not given on this connection.
        self._owed: list[bytes] = []
        #: What it got, in order, each packet of QoS 2 once.
        self.log: list[Got] = []
        #: QoS 2 packet ids that it got and that are not released.
        self.pending: set[int] = set()
        #: Its own publishes without a last acknowledgement: the text, and the packet (None: PUBREC has come).
        self.unfinished: dict[int, tuple[str, bytes | None]] = {}
        #: Packet ids of subscriptions that are not answered.
        self.asked: set[int] = set()
        self.is_connected = False
        self.had_session = False
        self.refusal = 0
        #: The return codes of its last SUBACK.
        self.codes: list[int] = []
        self.wire: Wire | None = None
        self._buffer = bytearray()
        self._last_id = 0

    # --- connections

    def begin(self, name: str) -> bool:
        """Sends CONNECT to a node, if that lets clients in; returns whether it does."""
        self.drop()
        node = self.world[name]
        if not node.is_open:
            return False
        self._buffer.clear()
        self._owed.clear()
        self.asked.clear()
        self.refusal = 0
        if self.clean:
            self.pending.clear()
        self.wire = Wire(self, node.running)
        self.send(mqtt.connect_packet(self.client_id, clean=self.clean, will=self.will))
        return True

    def connect(self, name: str) -> Device:
        """The same, until the CONNACK has come: again, where an attempt of before has come behind this one."""
        self.drop()
        while not self.is_connected and not self.refusal:
            self.world.until(lambda: self.begin(name))
            self.world.until(lambda: self.is_connected or self.wire is None)
        assert self.is_connected, f"{self.client_id} is not let in by {name}: {self.refusal}"
        return self

    def drop(self) -> None:
        if self.wire is not None:
            self.wire.lose()

    def leave(self) -> Device:
        self.send(mqtt.DISCONNECT_BYTES)
        self.world.until(lambda: self.wire is None)
        return self

    @property
    def node(self) -> str:
        """Where it is; nothing if it is nowhere."""
        return "" if self.wire is None else self.wire.broker.node.name

    # --- what it does

    def send(self, data: bytes) -> None:
        if self.wire is not None:
            self.wire.send(data)

    def _next_id(self) -> int:
        self._last_id = self._last_id % 65535 + 1
        while self._last_id in self.unfinished:
            self._last_id = self._last_id % 65535 + 1
        return self._last_id

    def subscribe(self, *pairs: tuple[str, int]) -> Device:
        """Returns when SUBACK has come."""
        number = self._next_id()
        self.asked.add(number)
        self.send(mqtt.subscribe_packet(number, *pairs))
        self.world.until(lambda: number not in self.asked or not self.is_connected)
        assert self.is_connected
        return self

    def unsubscribe(self, *filters: str) -> Device:
        number = self._next_id()
        self.asked.add(number)
        self.send(mqtt.unsubscribe_packet(number, *filters))
        self.world.until(lambda: number not in self.asked or not self.is_connected)
        return self

    def publish(self, topic: str, text: str, qos: int = 1, retain: bool = False) -> Device:
        """Sends it once; what is not acknowledged is sent again when it connects again."""
        self.world.oracle.published(self.client_id, topic, text, qos)
        raw = text.encode()
        if not qos:
            self.send(mqtt.publish_packet(topic, raw, retain=retain))
            return self
        number = self._next_id()
        again = mqtt.publish_packet(topic, raw, qos=qos, packet_id=number, retain=retain, dup=True)
        self.unfinished[number] = text, again
        if self.is_connected:
            self.send(mqtt.publish_packet(topic, raw, qos=qos, packet_id=number, retain=retain))
        return self

    def finish(self) -> Device:
        """Returns when all that it published is acknowledged."""
        self.world.until(lambda: not self.unfinished)
        return self

    def hush(self) -> Device:
        """It answers nothing that it gets."""
        self.answers = False
        return self

    def answer(self) -> Device:
        """It answers all, also what came when it did not."""
        self.answers = True
        for each in self._owed:
            self.send(each)
        self._owed.clear()
        return self

    # --- what it gets

    @property
    def texts(self) -> list[str]:
        return [each.text for each in self.log]

    def receive(self, wire: Wire, data: bytes) -> None:
        if wire is not self.wire:
            return
        self._buffer += data
        for packet in mqtt.split_packets(self._buffer):
            if packet.type == mqtt.PUBLISH:
                self._on_publish(packet)
            else:
                self._on_answer(packet)

    def on_lost(self, wire: Wire) -> None:
        if wire is self.wire:
            self.wire = None
            self.is_connected = False

    def _on_publish(self, packet: mqtt.Packet) -> None:
        if packet.qos < 2 or packet.packet_id not in self.pending:
            text = packet.payload.decode()
            self.log.append(Got(packet.topic, text, packet.qos, packet.retain))
            self.world.oracle.came(self.client_id, text, packet.qos)
        if packet.qos == 2:
            self.pending.add(packet.packet_id)
        if packet.qos:
            answer = mqtt.puback_packet if packet.qos == 1 else mqtt.pubrec_packet
            self._owed.append(answer(packet.packet_id))
        if self.answers:
            self.answer()

    def _on_answer(self, packet: mqtt.Packet) -> None:
        kind = packet.type
        if kind == mqtt.CONNACK:
            self._on_connack(packet)
        elif kind == mqtt.PUBREL:
            self.pending.discard(packet.packet_id)
            self.send(mqtt.pubcomp_packet(packet.packet_id))
        elif kind == mqtt.PUBREC:
            text, _ = self.unfinished.get(packet.packet_id, ("", None))
            if text:
                self.unfinished[packet.packet_id] = text, None
            self.send(mqtt.pubrel_packet(packet.packet_id))
        elif kind in (mqtt.PUBACK, mqtt.PUBCOMP):
            text, _ = self.unfinished.pop(packet.packet_id, ("", None))
            if text:
                self.world.oracle.acknowledged(text)
        elif kind in (mqtt.SUBACK, mqtt.UNSUBACK):
            self.asked.discard(packet.packet_id)
            self.codes = list(packet.codes) if kind == mqtt.SUBACK else []

    def _on_connack(self, packet: mqtt.Packet) -> None:
        self.refusal = packet.return_code
        if self.refusal:
            return
        self.is_connected = True
        self.had_session = packet.session_present == 1
        for number, (_, whole) in list(self.unfinished.items()):
            self.send(mqtt.pubrel_packet(number) if whole is None else whole)

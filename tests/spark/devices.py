"""Devices and a durable subscriber that keep to MQTT's protocols while the broker dies and comes back."""

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from tests.support import wire as mqtt

#: Messages that a device has under way.
WINDOW = 100
#: Seconds between two attempts to reach the broker; without packets for SILENCE a connection is tried anew.
PAUSE = 0.1
SILENCE = 30.0
GONE = (OSError, AssertionError)

Address = Callable[[], tuple[str, int]]


class Client(threading.Thread, ABC):
    """A client with a durable session that connects again until it is done."""

    def __init__(self, client_id: str, address: Address) -> None:
        super().__init__(name=client_id, daemon=True)
        self.client_id = client_id
        self.address = address
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.is_set():
            wire = None
            try:
                wire = mqtt.Wire.connect_tcp(self.address())
                wire.send(mqtt.connect_packet(self.client_id, clean=False, keep_alive=0))
                connack = wire.expect(mqtt.CONNACK)
                assert connack.return_code == 0
                self.talk(wire)
            except GONE:
                self.ended.wait(PAUSE)
            finally:
                if wire is not None:
                    wire.stream.close()

    @abstractmethod
    def talk(self, wire: mqtt.Wire) -> None:
        """Says what this device has to say, until the connection is gone or all is said."""


class Device(Client):
    """Publishes numbers from 0 to once/NAME, window after window; `may_send(count)` lets it go on."""

    def __init__(
        self, name: str, address: Address, qos: int, count: int, may_send: Callable[[int], None]
    ) -> None:
        super().__init__(name, address)
        self.qos = qos
        self.count = count
        self.may_send = may_send
        #: Numbers of the present window that nobody has acknowledged, and those to be released.
        self.next = 0
        self.open: dict[int, int] = {}
        self.released: dict[int, None] = {}
        #: Messages that were sent more than once: at QoS 1 each may be there twice.
        self.resent = 0

    def packet(self, packet_id: int, *, dup: bool) -> bytes:
        payload = json.dumps({"number": self.open[packet_id]}).encode()
        return mqtt.publish_packet(
            f"once/{self.client_id}", payload, qos=self.qos, packet_id=packet_id, dup=dup
        )

    def talk(self, wire: mqtt.Wire) -> None:
        self.resent += len(self.open)
        wire.send(
            *(self.packet(packet_id, dup=True) for packet_id in self.open),
            *(mqtt.pubrel_packet(packet_id) for packet_id in self.released),
        )
        while True:
            while self.open or self.released:
                wire.send(*(self.take(packet) for packet in wire.recv_packets(SILENCE)))
            if self.next == self.count:
                self.ended.set()
                return
            self.may_send(WINDOW)
            size = min(WINDOW, self.count - self.next)
            self.open = {number + 1: self.next + number for number in range(size)}
            self.next += size
            wire.send(*(self.packet(packet_id, dup=False) for packet_id in self.open))

    def take(self, packet: mqtt.Packet) -> bytes:
        """Notes an acknowledgement; returns what is to be said to it."""
        number = packet.packet_id
        if packet.type == mqtt.PUBACK:
            self.open.pop(number, None)
        elif packet.type == mqtt.PUBREC:
            self.open.pop(number, None)
            self.released[number] = None
            return mqtt.pubrel_packet(number)
        elif packet.type == mqtt.PUBCOMP:
            self.released.pop(number, None)
        return b""


class Subscriber(Client):
    """Notes what comes to done/#, once at QoS 2."""

    def __init__(self, address: Address, changed: threading.Condition) -> None:
        super().__init__("subscriber", address)
        self.changed = changed
        self.received: dict[str, list[int]] = {}
        self.count = 0
        self.known: set[int] = set()
        self.subscribed = threading.Event()

    def talk(self, wire: mqtt.Wire) -> None:
        wire.send(mqtt.subscribe_packet(1, ("done/#", 2)))
        while not self.ended.is_set():
            try:
                packets = wire.recv_packets(1.0)
            except TimeoutError:
                continue
            answers = [self.take(packet) for packet in packets]
            with self.changed:
                self.changed.notify_all()
            wire.send(*answers)

    def take(self, packet: mqtt.Packet) -> bytes:
        """Notes a packet; returns what is to be said to it."""
        number = packet.packet_id
        if packet.type == mqtt.SUBACK:
            self.subscribed.set()
        elif packet.type == mqtt.PUBREL:
            self.known.discard(number)
            return mqtt.pubcomp_packet(number)
        elif packet.type == mqtt.PUBLISH:
            assert packet.qos == 2, "published and subscribed at QoS 2"
            if number not in self.known:
                self.known.add(number)
                self.note(packet)
            return mqtt.pubrec_packet(number)
        return b""

    def note(self, packet: mqtt.Packet) -> None:
        number = json.loads(packet.payload)["number"]
        self.received.setdefault(packet.topic.removeprefix("done/"), []).append(number)
        self.count += 1

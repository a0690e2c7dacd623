"""The few packets that the crash tests need, built and taken apart by hand."""

import struct
from dataclasses import dataclass

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = range(1, 8)
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = range(8, 15)


@dataclass(frozen=True)
class Packet:
    """A packet as it came: its type, the low four bits of its first byte, and the rest."""

    kind: int
    flags: int
    body: bytes

    @property
    def packet_id(self) -> int:
        """The packet id of an acknowledgement, which starts with it."""
        return int.from_bytes(self.body[:2], "big")


@dataclass(frozen=True)
class Publish:
    """The fields of a PUBLISH; `packet_id` is 0 at QoS 0."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    dup: bool
    packet_id: int


def _text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">H", len(data)) + data


def _packet(kind: int, flags: int, body: bytes) -> bytes:
    length = len(body)
    prefix = bytearray((kind << 4 | flags,))
    while length > 127:
        prefix.append(length & 127 | 128)
        length >>= 7
    prefix.append(length)
    return bytes(prefix) + body


def connect(client_id: str, *, clean: bool) -> bytes:
    """A CONNECT of MQTT 3.1.1 without keep-alive, will or user."""
    return _packet(CONNECT, 0, _text("MQTT") + bytes((4, clean << 1, 0, 0)) + _text(client_id))


def subscribe(packet_id: int, topic_filter: str, qos: int) -> bytes:
    """A SUBSCRIBE with one filter."""
    return _packet(SUBSCRIBE, 2, struct.pack(">H", packet_id) + _text(topic_filter) + bytes((qos,)))


def publish(packet: Publish) -> bytes:
    """A PUBLISH."""
    flags = packet.dup << 3 | packet.qos << 1 | packet.retain
    number = struct.pack(">H", packet.packet_id) if packet.qos else b""
    return _packet(PUBLISH, flags, _text(packet.topic) + number + packet.payload)


def acknowledge(kind: int, packet_id: int) -> bytes:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP."""
    return _packet(kind, 2 if kind == PUBREL else 0, struct.pack(">H", packet_id))


def pingreq() -> bytes:
    """A PINGREQ."""
    return _packet(PINGREQ, 0, b"")


def disconnect() -> bytes:
    """A DISCONNECT."""
    return _packet(DISCONNECT, 0, b"")


def parse_publish(packet: Packet) -> Publish:
    """Take a PUBLISH apart. Raises ValueError for QoS 3."""
    qos = packet.flags >> 1 & 3
    if qos == 3:
        raise ValueError("QoS 3")
    end = 2 + int.from_bytes(packet.body[:2], "big")
    topic = packet.body[2:end].decode()
    packet_id = 0
    if qos:
        packet_id = int.from_bytes(packet.body[end : end + 2], "big")
        end += 2
    payload = packet.body[end:]
    retain, dup = bool(packet.flags & 1), bool(packet.flags & 8)
    return Publish(topic, payload, qos, retain, dup, packet_id)


class Parser:
    """Cuts a stream of bytes into packets."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Packet]:
        """The packets that are complete with this chunk."""
        self._buffer += data
        packets: list[Packet] = []
        start = 0
        while (found := self._packet_at(start)) is not None:
            packet, start = found
            packets.append(packet)
        del self._buffer[:start]
        return packets

    def _packet_at(self, start: int) -> tuple[Packet, int] | None:
        buffer = self._buffer
        length, shift, index = 0, 0, start + 1
        while True:
            if index >= len(buffer):
                return None
            length |= (buffer[index] & 127) << shift
            index += 1
            if not buffer[index - 1] & 128:
                break
            shift += 7
            if shift > 21:
                raise ValueError("remaining length of more than four bytes")
        end = index + length
        if end > len(buffer):
            return None
        first = buffer[start]
        return Packet(first >> 4, first & 15, bytes(buffer[index:end])), end

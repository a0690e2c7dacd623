"""The packets of MQTT 3.1.1 that a bridge sends and reads."""

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from vmq_hooks import Subscription

CONNACK: Final = 2
PUBLISH: Final = 3
PUBACK: Final = 4
PUBREC: Final = 5
PUBREL: Final = 6
PUBCOMP: Final = 7
SUBACK: Final = 9
UNSUBACK: Final = 11
PINGRESP: Final = 13

PINGREQ_BYTES: Final = b"\xc0\x00"
DISCONNECT_BYTES: Final = b"\xe0\x00"

#: In the protocol level: a bridge. Mosquitto's convention, which vmq follows.
BRIDGE_LEVEL: Final = 0x80


class PacketError(ConnectionError):
    """The far broker sent what is not MQTT, or more than is accepted."""


class Packet(NamedTuple):
    """A packet as it came: its first byte, and what follows the length."""

    head: int
    body: bytes

    @property
    def kind(self) -> int:
        return self.head >> 4


class Publish(NamedTuple):
    """A PUBLISH, opened."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    packet_id: int
    dup: bool


def connect(
    client_id: str,
    *,
    level: int,
    bridge: bool,
    clean_session: bool,
    keepalive: int,
    username: str | None = None,
    password: str | None = None,
) -> bytes:
    """A CONNECT without a will (section 3.1)."""
    flags = 2 if clean_session else 0
    payload = _text(client_id)
    if username is not None:
        flags |= 128
        payload += _text(username)
    if password is not None:
        flags |= 64
        payload += _text(password)
    name = "MQIsdp" if level == 3 else "MQTT"
    asked = level | BRIDGE_LEVEL if bridge else level
    body = _text(name) + bytes((asked, flags)) + keepalive.to_bytes(2, "big") + payload
    return _framed(0x10, body)


def publish(
    topic: str, payload: bytes, *, qos: int, retain: bool, packet_id: int = 0, dup: bool = False
) -> bytes:
    """A PUBLISH (section 3.3)."""
    head = 0x30 | (8 if dup and qos else 0) | qos << 1 | (1 if retain else 0)
    number = packet_id.to_bytes(2, "big") if qos else b""
    return _framed(head, _text(topic) + number + payload)


def subscribe(packet_id: int, subscriptions: Sequence[Subscription]) -> bytes:
    """A SUBSCRIBE (section 3.8)."""
    filters = b"".join(_text(each.topic_filter) + bytes((each.qos,)) for each in subscriptions)
    return _framed(0x82, packet_id.to_bytes(2, "big") + filters)


def unsubscribe(packet_id: int, filters: Sequence[str]) -> bytes:
    """An UNSUBSCRIBE (section 3.10)."""
    body = packet_id.to_bytes(2, "big") + b"".join(_text(each) for each in filters)
    return _framed(0xA2, body)


def answer(kind: int, packet_id: int) -> bytes:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP."""
    return bytes((kind << 4 | (2 if kind == PUBREL else 0), 2)) + packet_id.to_bytes(2, "big")


async def read_packet(reader: asyncio.StreamReader, limit: int) -> Packet:
    """The next packet.

    Raises:
        PacketError: it has more than `limit` bytes, or a length that is none.
        ConnectionError: the far broker has closed.
    """
    try:
        head = (await reader.readexactly(1))[0]
        length = 0
        for shift in (0, 7, 14, 21):
            digit = (await reader.readexactly(1))[0]
            length |= (digit & 127) << shift
            if digit < 128:
                break
        else:
            raise PacketError("it sent a packet whose length has five digits")
        if length > limit:
            raise PacketError(f"it sent a packet of {length} bytes; accepted: {limit}")
        return Packet(head, await reader.readexactly(length))
    except asyncio.IncompleteReadError:
        raise ConnectionError("it closed the connection") from None


def read_publish(packet: Packet) -> Publish:
    """Opens a PUBLISH.

    Raises:
        PacketError: it is none.
    """
    head, body = packet
    qos = head >> 1 & 3
    end = 2 + int.from_bytes(body[:2], "big")
    start = end + (2 if qos else 0)
    packet_id = int.from_bytes(body[end:start], "big") if qos else 0
    if qos == 3 or start > len(body) or (qos and not packet_id):
        raise PacketError("it sent a PUBLISH that is none")
    try:
        topic = body[2:end].decode()
    except UnicodeDecodeError:
        raise PacketError("it sent a topic that is not UTF-8") from None
    return Publish(topic, body[start:], qos, head & 1 != 0, packet_id, head & 8 != 0)


def read_packet_id(packet: Packet) -> int:
    """The packet id that begins an acknowledgement.

    Raises:
        PacketError: there is none.
    """
    if len(packet.body) < 2:
        raise PacketError(f"it sent a packet of type {packet.kind} without a packet id")
    return int.from_bytes(packet.body[:2], "big")


def _text(text: str) -> bytes:
    raw = text.encode()
    return len(raw).to_bytes(2, "big") + raw


def _framed(head: int, body: bytes) -> bytes:
    length, digits = len(body), bytearray()
    while True:
        length, digit = length >> 7, length & 127
        digits.append(digit | (128 if length else 0))
        if not length:
            return bytes((head,)) + bytes(digits) + body

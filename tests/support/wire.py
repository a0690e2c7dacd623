"""A blocking MQTT 3.1.1 client made of raw bytes, for tests of what a broker does on the wire.

It builds and reads packets by itself, so that a mistake in the broker's own codec cannot hide in
the test, and so that a test can send what no client library would: any byte, in any pieces.
"""

import contextlib
import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic
from typing import Self, TypedDict, Unpack

from tests.support import byte_streams
from vmq.testing.closing import Closing

TIMEOUT = byte_streams.TIMEOUT

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT = 8, 9, 10, 11, 12, 13, 14

PINGREQ_BYTES = b"\xc0\x00"
PINGRESP_BYTES = b"\xd0\x00"
DISCONNECT_BYTES = b"\xe0\x00"

Text = str | bytes


# --- building packets -----------------------------------------------------------------------


def encode_text(value: Text) -> bytes:
    """A text or binary field: two bytes of length, then the bytes (taken as they are)."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(raw)) + raw


def encode_length(value: int) -> bytes:
    """The remaining length in its shortest form."""
    encoded = bytearray()
    while True:
        value, digit = divmod(value, 128)
        encoded.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(encoded)


def packet(first: int, body: bytes = b"") -> bytes:
    """Any packet: first byte, remaining length, body."""
    return bytes([first]) + encode_length(len(body)) + body


@dataclass(frozen=True, slots=True)
class Will:
    topic: Text
    payload: bytes = b""
    qos: int = 0
    retain: bool = False


class ConnectFields(TypedDict, total=False):
    """What `connect_packet` takes besides the client id."""

    clean: bool
    keep_alive: int
    will: Will | None
    username: Text | None
    password: Text | None
    protocol: Text
    level: int
    flags: int | None
    tail: bytes


def connect_packet(
    client_id: Text = "",
    *,
    clean: bool = True,
    keep_alive: int = 60,
    will: Will | None = None,
    username: Text | None = None,
    password: Text | None = None,
    protocol: Text = "MQTT",
    level: int = 4,
    flags: int | None = None,
    tail: bytes = b"",
) -> bytes:
    """A CONNECT. `flags` replaces the connect flags that follow from the rest, `tail` is appended
    to the payload: so are ill-formed ones made."""
    bits = 0x02 if clean else 0
    payload = encode_text(client_id)
    if will is not None:
        bits |= 0x04 | will.qos << 3 | (0x20 if will.retain else 0)
        payload += encode_text(will.topic) + encode_text(will.payload)
    if username is not None:
        bits |= 0x80
        payload += encode_text(username)
    if password is not None:
        bits |= 0x40
        payload += encode_text(password)
    header = encode_text(protocol) + bytes([level, bits if flags is None else flags])
    return packet(0x10, header + struct.pack(">H", keep_alive) + payload + tail)


def publish_packet(
    topic: Text,
    payload: bytes = b"",
    *,
    qos: int = 0,
    packet_id: int | None = None,
    retain: bool = False,
    dup: bool = False,
) -> bytes:
    """A PUBLISH; `packet_id` belongs to QoS 1 and 2 only."""
    first = 0x30 | (0x08 if dup else 0) | qos << 1 | (0x01 if retain else 0)
    number = b"" if packet_id is None else struct.pack(">H", packet_id)
    return packet(first, encode_text(topic) + number + payload)


def _numbered(first: int, packet_id: int, rest: bytes = b"") -> bytes:
    return packet(first, struct.pack(">H", packet_id) + rest)


def puback_packet(packet_id: int) -> bytes:
    return _numbered(0x40, packet_id)


def pubrec_packet(packet_id: int) -> bytes:
    return _numbered(0x50, packet_id)


def pubrel_packet(packet_id: int) -> bytes:
    return _numbered(0x62, packet_id)


def pubcomp_packet(packet_id: int) -> bytes:
    return _numbered(0x70, packet_id)


def subscribe_packet(packet_id: int, *pairs: tuple[Text, int], first: int = 0x82) -> bytes:
    """A SUBSCRIBE of (filter, QoS byte) pairs."""
    body = b"".join(encode_text(name) + bytes([qos]) for name, qos in pairs)
    return _numbered(first, packet_id, body)


def unsubscribe_packet(packet_id: int, *filters: Text, first: int = 0xA2) -> bytes:
    return _numbered(first, packet_id, b"".join(map(encode_text, filters)))


# --- reading packets ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet as it came: first byte, and the body behind the remaining length."""

    first: int
    body: bytes

    @property
    def type(self) -> int:
        """The packet type, bits 7 to 4 of the first byte."""
        return self.first >> 4

    @property
    def raw(self) -> bytes:
        """The packet again, with the shortest remaining length."""
        return packet(self.first, self.body)

    @property
    def qos(self) -> int:
        """QoS of a PUBLISH."""
        return self.first >> 1 & 3

    @property
    def dup(self) -> bool:
        """DUP bit of a PUBLISH."""
        return bool(self.first & 8)

    @property
    def retain(self) -> bool:
        """RETAIN bit of a PUBLISH."""
        return bool(self.first & 1)

    def _topic_end(self) -> int:
        return 2 + int.from_bytes(self.body[:2])

    @property
    def topic_bytes(self) -> bytes:
        """The topic of a PUBLISH, undecoded."""
        return self.body[2 : self._topic_end()]

    @property
    def topic(self) -> str:
        """The topic of a PUBLISH."""
        return self.topic_bytes.decode()

    @property
    def packet_id(self) -> int:
        """The packet identifier, wherever this type of packet has it."""
        start = self._topic_end() if self.type == PUBLISH else 0
        return int.from_bytes(self.body[start : start + 2])

    @property
    def payload(self) -> bytes:
        """The payload of a PUBLISH."""
        return self.body[self._topic_end() + (2 if self.qos else 0) :]

    @property
    def codes(self) -> list[int]:
        """The return codes of a SUBACK."""
        return list(self.body[2:])

    @property
    def session_present(self) -> int:
        """The flags byte of a CONNACK: 1 if a session was present, 0 otherwise."""
        return self.body[0]

    @property
    def return_code(self) -> int:
        """The return code of a CONNACK."""
        return self.body[1]


def split_packets(buffer: bytearray) -> Iterator[Packet]:
    """Takes the whole packets off a buffer."""
    while len(buffer) >= 2:
        length = 0
        for position in range(1, min(5, len(buffer))):
            digit = buffer[position]
            length |= (digit & 0x7F) << 7 * (position - 1)
            if digit < 0x80:
                break
        else:
            assert len(buffer) < 5, "ill-formed remaining length from the broker"
            return
        start = position + 1
        if len(buffer) < start + length:
            return
        found = Packet(buffer[0], bytes(buffer[start : start + length]))
        del buffer[: start + length]
        yield found


class ConnectionEnded(AssertionError):  # noqa: N818 - an end, which may be what a test waits for
    """The broker closed the connection where a packet was expected."""


class Wire(Closing):
    """One client connection.

    The methods named after packets send one and, where an answer is due (`connect`, `subscribe`,
    `unsubscribe`, `ping`), wait for it; PUBLISH packets that come in between are kept for later.
    Everything else is in the caller's hands: nothing is acknowledged unless the test says so.
    """

    def __init__(self, stream: byte_streams.ByteStream) -> None:
        self.stream = stream
        self._buffer = bytearray()
        self._kept: deque[Packet] = deque()
        self._next_id = 0

    @classmethod
    def connect_tcp(cls, address: tuple[str, int]) -> Self:
        """Open a TCP connection (and send nothing yet)."""
        return cls(byte_streams.TcpStream(address))

    @classmethod
    def connected(
        cls, address: tuple[str, int], client_id: Text = "", **fields: Unpack[ConnectFields]
    ) -> Self:
        """Open a TCP connection, and send a CONNECT, which must be accepted."""
        wire = cls.connect_tcp(address)
        wire.connect(client_id, **fields)
        return wire

    # --- bytes and packets

    def send(self, *data: bytes) -> None:
        """Send bytes, all in one piece."""
        self.stream.sendall(b"".join(data))

    def send_lossy(self, *data: bytes) -> None:
        """Send bytes to a broker that may have closed the connection already."""
        with contextlib.suppress(ConnectionError):
            self.send(*data)

    def recv_packet(self, timeout: float = TIMEOUT) -> Packet:
        """The next packet. Raises ConnectionEnded at the end, TimeoutError when time is up."""
        if self._kept:
            return self._kept.popleft()
        return self._read_packet(timeout)

    def recv_packets(self, timeout: float = TIMEOUT) -> list[Packet]:
        """The next packet and all that have come with it. Raises as `recv_packet`."""
        found = [self.recv_packet(timeout), *self._kept]
        self._kept.clear()
        while (packet := self._split_packet()) is not None:
            found.append(packet)
        return found

    def _read_packet(self, timeout: float) -> Packet:
        deadline = monotonic() + timeout
        while True:
            found = self._split_packet()
            if found is not None:
                return found
            data = self.stream.recv(deadline - monotonic())
            if not data:
                rest = bytes(self._buffer)
                raise ConnectionEnded(f"connection closed by the broker; unread: {rest!r}")
            self._buffer += data

    def _split_packet(self) -> Packet | None:
        """Take one packet off the buffer, if it is there as a whole."""
        return next(split_packets(self._buffer), None)

    def _wait_for(self, kind: int, packet_id: int | None = None) -> Packet:
        """The next packet of this type (and identifier), keeping PUBLISH packets before it."""
        passed: list[Packet] = []
        while True:
            found = self.recv_packet()
            if found.type == kind and packet_id in (None, found.packet_id):
                self._kept.extendleft(reversed(passed))
                return found
            assert found.type == PUBLISH, f"waited for type {kind}, got {found}"
            passed.append(found)

    # --- expectations

    def expect(self, wanted: bytes | int, timeout: float = TIMEOUT) -> Packet:
        """The next packet, which must be these very bytes, or of this type."""
        found = self.recv_packet(timeout)
        if isinstance(wanted, int):
            assert found.type == wanted, f"expected type {wanted}, got {found}"
        else:
            assert found.raw == wanted, f"expected {wanted!r}, got {found.raw!r}"
        return found

    def ask(self, data: bytes, answer: bytes | int) -> Packet:
        """Send bytes; the next packet must be these very bytes, or of this type."""
        self.send(data)
        return self.expect(answer)

    def ended_by(self, *data: bytes) -> None:
        """Send bytes, at which the broker closes the connection and sends nothing more before."""
        self.send(*data)
        self.expect_closed()

    def expect_publish(
        self,
        topic: Text | None = None,
        payload: bytes | None = None,
        *,
        qos: int | None = None,
        dup: bool | None = None,
        retain: bool | None = None,
        timeout: float = TIMEOUT,
    ) -> Packet:
        """The next packet, which must be a PUBLISH with these properties (None: any)."""
        found = self.expect(PUBLISH, timeout)
        raw_topic = topic.encode() if isinstance(topic, str) else topic
        checks = (
            (raw_topic, found.topic_bytes),
            (payload, found.payload),
            (qos, found.qos),
            (dup, found.dup),
            (retain, found.retain),
        )
        for wanted, got in checks:
            assert wanted is None or wanted == got, f"expected {wanted!r}, got {got!r}: {found}"
        return found

    def expect_closed(self, timeout: float = TIMEOUT) -> None:
        """The broker closes the connection and sends nothing more before."""
        assert not self._kept, f"unread: {self._kept}"
        try:
            found = self._read_packet(timeout)
        except ConnectionEnded:
            assert not self._buffer, f"expected the end, got {bytes(self._buffer)!r}"
            return
        raise AssertionError(f"expected the end of the connection, got {found}")

    def expect_nothing(self) -> None:
        """Nothing has come for this client: the answer to a PINGREQ is the next packet."""
        self.send(PINGREQ_BYTES)
        self.expect(PINGRESP_BYTES)

    # --- the usual exchanges

    def next_id(self) -> int:
        """A packet identifier that this client has not used yet."""
        self._next_id += 1
        return self._next_id

    def connect(self, client_id: Text = "", **fields: Unpack[ConnectFields]) -> Packet:
        """Send CONNECT, with the fields of `connect_packet`; return the CONNACK, which must accept it."""
        self.send(connect_packet(client_id, **fields))
        connack = self.expect(CONNACK)
        assert connack.return_code == 0, f"refused: {connack}"
        return connack

    def subscribe(self, *pairs: tuple[Text, int]) -> Packet:
        """Send SUBSCRIBE and return the SUBACK; PUBLISH packets before it are kept."""
        packet_id = self.next_id()
        self.send(subscribe_packet(packet_id, *pairs))
        return self._wait_for(SUBACK, packet_id)

    def unsubscribe(self, *filters: Text) -> Packet:
        """Send UNSUBSCRIBE and return the UNSUBACK; PUBLISH packets before it are kept."""
        packet_id = self.next_id()
        self.send(unsubscribe_packet(packet_id, *filters))
        return self._wait_for(UNSUBACK, packet_id)

    def publish(
        self, topic: Text, payload: bytes = b"", *, qos: int = 0, retain: bool = False
    ) -> None:
        """Publish and wait for the whole exchange of the QoS.

        At QoS 0 a PINGREQ makes sure that the broker has handled it.
        """
        if qos == 0:
            self.send(publish_packet(topic, payload, retain=retain), PINGREQ_BYTES)
            self._wait_for(PINGRESP)
            return
        packet_id = self.next_id()
        self.send(publish_packet(topic, payload, qos=qos, packet_id=packet_id, retain=retain))
        if qos == 1:
            self._wait_for(PUBACK, packet_id)
            return
        self._wait_for(PUBREC, packet_id)
        self.send(pubrel_packet(packet_id))
        self._wait_for(PUBCOMP, packet_id)

    def acknowledge(self, received: Packet) -> None:
        """Complete the exchange of a PUBLISH that was received, by its QoS."""
        if received.qos == 1:
            self.send(puback_packet(received.packet_id))
        elif received.qos == 2:
            self.send(pubrec_packet(received.packet_id))
            self._wait_for(PUBREL, received.packet_id)
            self.send(pubcomp_packet(received.packet_id))

    def puback(self, packet_id: int) -> None:
        self.send(puback_packet(packet_id))

    def pubrec(self, packet_id: int) -> None:
        self.send(pubrec_packet(packet_id))

    def pubrel(self, packet_id: int) -> None:
        self.send(pubrel_packet(packet_id))

    def pubcomp(self, packet_id: int) -> None:
        self.send(pubcomp_packet(packet_id))

    def ping(self) -> None:
        """A PINGREQ and its answer; PUBLISH packets before it are kept."""
        self.send(PINGREQ_BYTES)
        self._wait_for(PINGRESP)

    def disconnect(self) -> None:
        """Send DISCONNECT, wait until the broker has closed too, and close."""
        self.send(DISCONNECT_BYTES)
        while True:
            try:
                self._read_packet(TIMEOUT)
            except ConnectionEnded:
                break
        self.close()

    def close(self) -> None:
        """Cut the connection without DISCONNECT."""
        self.stream.close()

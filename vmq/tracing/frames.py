"""MQTT frames in words, for people who look at a client's traffic."""

from typing import Final

from vmq.mqtt.decoder import (
    Decoder,
    read_connect,
    read_subscribe,
    read_unsubscribe,
)
from vmq.mqtt.packets import (
    CONNACK,
    CONNECT,
    PACKET_NAMES,
    PUBLISH,
    SUBACK,
    SUBSCRIBE,
    UNSUBSCRIBE,
    ConnectRefused,
    ProtocolError,
)

#: Filters shown of one SUBSCRIBE.
_FILTERS: Final = 20


def describe(head: int, body: bytes, payload_bytes: int) -> str:
    """One frame in a line; of a payload no more than so many bytes, of a password nothing."""
    kind = head >> 4
    try:
        return f"{PACKET_NAMES[kind]} {_fields(kind, head, body, payload_bytes)}".rstrip()
    except (ProtocolError, ConnectRefused, IndexError, UnicodeDecodeError):
        return f"{PACKET_NAMES[kind]} malformed, {len(body)} bytes"


def _fields(kind: int, head: int, body: bytes, payload_bytes: int) -> str:
    if kind == CONNECT:
        found = read_connect(body, 0, len(body))
        will = f" will={found.will_topic.decode()!r}" if found.has_will else ""
        return (
            f"level={found.level} client={found.client_id!r} user={found.username!r} "
            f"clean={int(found.clean_session)} keep_alive={found.keep_alive}{will}"
        )
    if kind == CONNACK:
        return f"code={body[1]} session_present={body[0] & 1}"
    if kind == PUBLISH:
        return _publish(head, body, payload_bytes)
    if kind == SUBSCRIBE:
        packet_id, requests = read_subscribe(body, 0, len(body))
        shown = " ".join(f"{each.topic_filter!r}:{each.qos}" for each in requests[:_FILTERS])
        return f"id={packet_id} {shown}" + (" ..." if len(requests) > _FILTERS else "")
    if kind == UNSUBSCRIBE:
        packet_id, filters = read_unsubscribe(body, 0, len(body))
        shown = " ".join(map(repr, filters[:_FILTERS]))
        return f"id={packet_id} {shown}" + (" ..." if len(filters) > _FILTERS else "")
    packet_id = int.from_bytes(body[:2], "big")
    if kind == SUBACK:
        return f"id={packet_id} codes={','.join(map(str, body[2:]))}"
    return f"id={packet_id}" if body else ""


def _publish(head: int, body: bytes, payload_bytes: int) -> str:
    end = 2 + int.from_bytes(body[:2], "big")
    topic = body[2:end].decode()
    qos = head >> 1 & 3
    packet_id = ""
    if qos:
        packet_id = f" id={int.from_bytes(body[end : end + 2], 'big')}"
        end += 2
    size = len(body) - end
    if size < 0:
        raise ProtocolError("PUBLISH is cut", "MQTT-4.8.0-1")
    start = repr(body[end : end + payload_bytes])[1:] if payload_bytes else ""
    more = "..." if 0 < payload_bytes < size else ""
    return (
        f"{topic!r} qos={qos} retain={head & 1} dup={head >> 3 & 1}{packet_id} "
        f"bytes={size} {start}{more}"
    ).rstrip()


class PacketFrames:
    """The frames of one direction of a connection, out of chunks of any size."""

    def __init__(self) -> None:
        self._decoder = Decoder()
        self._broken = False

    def feed(self, chunk: bytes, payload_bytes: int) -> list[str]:
        """The frames that a chunk completes, in words."""
        if self._broken:
            return []
        decoder = self._decoder
        decoder.feed(chunk)
        found: list[str] = []
        try:
            while decoder.next():
                body = decoder.data[decoder.body : decoder.end]
                found.append(describe(decoder.head, body, payload_bytes))
        except ProtocolError as error:
            self._broken = True
            found.append(f"no frame: {error}")
        return found


def client_id_of(chunk: bytes) -> str | None:
    """The client id of a CONNECT that a chunk begins with."""
    decoder = Decoder()
    decoder.feed(chunk)
    try:
        if not decoder.next() or decoder.head >> 4 != CONNECT:
            return None
        return read_connect(decoder.data, decoder.body, decoder.end).client_id
    except (ProtocolError, ConnectRefused):
        return None

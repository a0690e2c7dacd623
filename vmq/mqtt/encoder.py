"""Packets to bytes, for both ends of a connection.

The hot path does not build whole packets: it appends pieces (head, packet id, payload) to a list
that is joined once. `PACKET_IDS` holds the two bytes of every packet id for that.
"""

from typing import Final

from vmq.mqtt.packets import ACCEPTED, LEVEL_BRIDGE, Connect

PACKET_IDS: Final[list[bytes]] = [pid.to_bytes(2, "big") for pid in range(65536)]

PUBACK_HEAD: Final = b"\x40\x02"
PUBREC_HEAD: Final = b"\x50\x02"
PUBREL_HEAD: Final = b"\x62\x02"
PUBCOMP_HEAD: Final = b"\x70\x02"
UNSUBACK_HEAD: Final = b"\xb0\x02"
PINGREQ: Final = b"\xc0\x00"
PINGRESP: Final = b"\xd0\x00"
DISCONNECT: Final = b"\xe0\x00"

#: The CONNACKs that accept, without a session that was there and with one.
CONNACK_NEW: Final = b"\x20\x02\x00\x00"
CONNACK_PRESENT: Final = b"\x20\x02\x01\x00"


def answers(run: bytes, head: bytes) -> bytes:
    """Packets of the same packet ids as those of a run, in its order, that begin with `head`."""
    count = len(run) >> 2
    if count == 1:
        return head + run[2:]
    packets = bytearray(run)
    packets[::4] = head[:1] * count
    return bytes(packets)


def remaining_length(length: int) -> bytes:
    """The 1 to 4 bytes of a remaining length (section 2.2.3)."""
    if length < 128:
        return bytes((length,))
    if length < 16_384:
        return bytes((length & 127 | 128, length >> 7))
    if length < 2_097_152:
        return bytes((length & 127 | 128, length >> 7 & 127 | 128, length >> 14))
    return bytes(
        (length & 127 | 128, length >> 7 & 127 | 128, length >> 14 & 127 | 128, length >> 21)
    )


def field(raw: bytes) -> bytes:
    """A length-prefixed field: two bytes of length, then the bytes."""
    return PACKET_IDS[len(raw)] + raw


def publish_head(topic: bytes, payload_length: int, qos: int, retain: bool, dup: bool) -> bytes:
    """A PUBLISH up to and with its topic; packet id (QoS 1, 2) and payload follow."""
    length = 2 + len(topic) + payload_length
    first = 0x30 | qos << 1
    if qos:
        length += 2
    if retain:
        first |= 1
    if dup:
        first |= 8
    return bytes((first,)) + remaining_length(length) + PACKET_IDS[len(topic)] + topic


def publish(
    topic: bytes, payload: bytes, qos: int, packet_id: int, retain: bool, dup: bool
) -> bytes:
    """A whole PUBLISH; `packet_id` is ignored at QoS 0 [MQTT-2.3.1-5]."""
    head = publish_head(topic, len(payload), qos, retain, dup)
    if qos:
        return head + PACKET_IDS[packet_id] + payload
    return head + payload


def connack(session_present: bool, code: int) -> bytes:
    """A CONNACK (section 3.2)."""
    if code == ACCEPTED:
        return CONNACK_PRESENT if session_present else CONNACK_NEW
    return bytes((0x20, 2, 1 if session_present else 0, code))


def suback(packet_id: int, codes: bytes) -> bytes:
    """A SUBACK with one code for each filter of the request [MQTT-3.8.4-5]."""
    return b"\x90" + remaining_length(2 + len(codes)) + PACKET_IDS[packet_id] + codes


def subscribe(packet_id: int, filters: list[tuple[str, int]]) -> bytes:
    """A SUBSCRIBE for (filter, QoS) pairs."""
    body = PACKET_IDS[packet_id]
    for topic_filter, qos in filters:
        body += field(topic_filter.encode()) + bytes((qos,))
    return b"\x82" + remaining_length(len(body)) + body


def unsubscribe(packet_id: int, filters: list[str]) -> bytes:
    """An UNSUBSCRIBE."""
    body = PACKET_IDS[packet_id]
    for topic_filter in filters:
        body += field(topic_filter.encode())
    return b"\xa2" + remaining_length(len(body)) + body


def connect(request: Connect) -> bytes:
    """A CONNECT with the fields of `request` (section 3.1)."""
    name = b"MQIsdp" if request.level == 3 else b"MQTT"
    flags = 2 if request.clean_session else 0
    payload = field(request.client_id.encode())
    if request.has_will:
        flags |= 4 | request.will_qos << 3 | (32 if request.will_retain else 0)
        payload += field(request.will_topic) + field(request.will_payload)
    username = request.username
    if username is not None:
        flags |= 128
        payload += field(username.encode())
    password = request.password
    if password is not None:
        flags |= 64
        payload += field(password)
    level = request.level | LEVEL_BRIDGE if request.bridge else request.level
    body = field(name) + bytes((level, flags)) + PACKET_IDS[request.keep_alive] + payload
    return b"\x10" + remaining_length(len(body)) + body

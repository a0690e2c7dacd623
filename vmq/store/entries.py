"""How messages, client ids and topics are written in the records of the store; see `vmq.store.store`."""

import sys
from typing import Final

from mypy_extensions import i64

from vmq.mqtt.encoder import PACKET_IDS
from vmq.mqtt.message import Message, Sourced

FLAG_RETAIN: Final = 4

FLAG_REF: Final = 8

FLAG_RELEASED: Final = 16

FLAG_GROUP: Final = 32

#: In the QoS of a retained message: its source is known.
FLAG_SOURCE: Final = 4

FLAG_NOTE: Final = 64

#: A share group's message came at QoS 2, and goes to this member at QoS 1: another may have it at 2.
FLAG_HIGHER: Final = 128

#: Bytes behind an entry with `FLAG_NOTE`.
NOTE: Final = 10

#: The first byte of an entry, by its flags.
HEADS: Final[list[bytes]] = [bytes((flags,)) for flags in range(256)]

#: A larger payload gets a record of its own: a queue entry is rewritten when it is sent.
INLINE_PAYLOAD: Final = 1024


def encode_message(topic: bytes, payload: bytes) -> bytes:
    """Topic length (2), topic, payload."""
    return b"%b%b%b" % (PACKET_IDS[len(topic)], topic, payload)


def decode_message(raw: bytes, start: int, qos: int) -> Message:
    """The message that begins at `start`."""
    body = start + 2
    end = body + (raw[start] << 8 | raw[start + 1])
    return Message(raw[body:end], raw[end:], qos, False)


def encode_retained(message: Message) -> bytes:
    """A retained message but for its topic."""
    if not isinstance(message, Sourced):
        return bytes((message.qos,)) + message.payload
    client = message.client_id.encode()
    user = b"" if message.user is None else b"\1" + message.user.encode()
    lengths = len(client).to_bytes(2, "big"), len(user).to_bytes(4, "big")
    head = bytes((message.qos | FLAG_SOURCE,)) + lengths[0] + client + lengths[1] + user
    return head + message.payload


def decode_retained(topic: bytes, value: bytes) -> Message:
    """The message of such a record.

    Raises:
        ValueError: it is none, which only a damaged store shows.
    """
    qos = value[0] if value else 3
    if qos <= 2:
        return Message(topic, value[1:], qos, True)
    end = 3 + int.from_bytes(value[1:3], "big")
    start = end + 4
    body = start + int.from_bytes(value[end:start], "big")
    user = value[start:body]
    if (
        qos > 2 | FLAG_SOURCE
        or qos < FLAG_SOURCE
        or body > len(value)
        or user[:1] not in (b"", b"\1")
    ):
        raise ValueError("no retained message")
    # One client may have published many.
    name = sys.intern(user[1:].decode()) if user else None
    client = sys.intern(value[3:end].decode())
    return Sourced(topic, value[body:], qos & 3, True, client, name)


def split_group(raw: bytes) -> tuple[bytes, str]:
    """An entry that has a share group, without it, and the group's name.

    Raises:
        UnicodeDecodeError: the name is no text, which only a damaged store shows.
    """
    end = len(raw) - 2
    start = end - (raw[end] << 8 | raw[end + 1])
    return raw[:start], raw[start:end].decode()


def number_in(raw: bytes, start: i64, stop: i64) -> int:
    """The number that these bytes of a record are."""
    number: i64 = 0
    for index in range(start, stop):
        byte: i64 = raw[index]
        number = number << 8 | byte
    return number


def record_size(message: Message) -> int:
    """The length of a message's record."""
    return 2 + len(message.topic) + len(message.payload)


def waiting_key(session: bytes, seq: int) -> bytes:
    """The key of the entry at a place of the stored queue."""
    return b"q%b%b" % (session, seq.to_bytes(8, "big"))


def inflight_key(session: bytes, order: int) -> bytes:
    """The key of the entry of what was sent as number `order`."""
    return b"i%b%b" % (session, order.to_bytes(8, "big"))


def scope_of(mountpoint: str) -> str:
    """What stands in front of the client ids and topics of a mountpoint."""
    return "\0" + mountpoint + "\0" if mountpoint else ""


def split_scope(scoped: bytes) -> tuple[str, bytes]:
    """The mountpoint ("" if it is the empty one), and the client id or topic in it.

    Raises:
        UnicodeDecodeError: the mountpoint is no text, which only a damaged store shows.
    """
    if scoped[:1] != b"\0":
        return "", scoped
    mountpoint, _, rest = scoped[1:].partition(b"\0")
    return mountpoint.decode(), rest


class StoredSession:
    """What the store knows of a session when the broker starts.

    `first` and `last` are the ends of its queue (0, 0: empty), `first_order` and `last_order` those of what was sent,
    `offline_at` is in milliseconds of wall clock time (0: it was online), `owner` the user whose it is (None: that was
    not stored).
    """

    def __init__(
        self,
        mountpoint: str,
        client_id: str,
        number: bytes,
        offline_at: int,
        owner: str | None = None,
    ) -> None:
        self.mountpoint = mountpoint
        self.client_id = client_id
        self.number = number
        self.offline_at = offline_at
        self.owner = owner
        self.subscriptions: list[tuple[str, int]] = []
        #: Of filters that a plugin has put in place of what the client asked for: what that was.
        self.asked: dict[str, str] = {}
        self.first: int = 0
        self.last: int = 0
        self.first_order: int = 0
        self.last_order: int = 0

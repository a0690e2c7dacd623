"""Messages in queues of a slot, and the records that they are in: side by side, as one version took them."""

from typing import Any, Final

import msgspec
from mypy_extensions import i64, mypyc_attr

from vmq.clustering.messages.fronts import SessionStep
from vmq.clustering.slots.register import SentMessage
from vmq.clustering.slots.words import ONLY, SEND, Dot, split_scope
from vmq.mqtt.message import Delivery, Message

#: Places of an origin in one record of a queue, fewer than a C int has bits (compiled, `1 << place` is one), and packet
#: ids in one of a window.
PLACES: Final = 30
WINDOW: Final = 16
#: Messages in one record, and about as many bytes of them.
RUN: Final = 256
RUN_BYTES: Final = 1 << 18
_DECODER: Final[msgspec.msgpack.Decoder[Any]] = msgspec.msgpack.Decoder()


# Numbers only, and what holds nothing but these and bytes: the garbage collector needs not look at them.
@mypyc_attr(acyclic=True)
class SharedRecord:
    """Messages that are on disk side by side."""

    def __init__(self, number: int) -> None:
        self.number = number
        #: How many of them are not done, each as often as clients lack it, and how many are in memory.
        self.left: i64 = 0
        self.here: i64 = 0


@mypyc_attr(acyclic=True)
class QueueBlock:
    """Which places of a block are in a client's queue: a bit each, by granted QoS."""

    def __init__(self, client: str, origin: int, number: int) -> None:
        self.client = client
        self.origin = origin
        self.number = number
        self.once: i64 = 0  # QoS 2
        self.least: i64 = 0  # QoS 1
        self.is_changed = False
        #: There is a record of it.
        self.is_stored = False

    def add(self, place: i64, qos: int) -> None:
        one: i64 = 1
        if qos == 2:
            self.once |= one << place
        else:
            self.least |= one << place

    def remove(self, place: i64) -> None:
        one: i64 = 1
        bit = one << place
        self.once &= ~bit
        self.least &= ~bit

    def mark(self, first: i64, count: i64, is_there: bool) -> None:
        """Places at QoS 1 side by side are in the queue, or not."""
        one: i64 = 1
        bits = (one << count) - one << first
        if is_there:
            self.least |= bits
        else:
            self.least &= ~bits

    def qos(self, place: i64) -> i64:
        """That of a place; 0: it is not in the queue."""
        if self.least >> place & 1:
            return 1
        return 2 * (self.once >> place & 1)

    def is_empty(self) -> bool:
        return self.once == 0 and self.least == 0


@mypyc_attr(acyclic=True)
class StoredMessage:
    """A message in a slot. Stamps give the order in which owners took them."""

    def __init__(
        self,
        stamp: int,
        topic: bytes,
        payload: bytes,
        qos: int,
        group: str,
        moves: int = 0,
        retain: bool = False,
    ) -> None:
        self.stamp = stamp
        self.topic = topic
        self.payload = payload
        self.qos = qos
        #: The scope of its mountpoint, and what is behind it: with it, if it is anything.
        self.scope = self.group = group
        if group:
            self.scope, rest = split_scope(group)
            if not rest:
                self.group = ""
        #: How often it was taken from one member of its share group for another.
        self.moves = moves
        #: As in `OfferedMessage`.
        self.retain = retain
        #: How many queues have it, and the record that it is in; None: it is in none yet. Both are the state's.
        self.holders: i64 = 0
        self.run: SharedRecord | None = None

    def address(self) -> str:
        """Whom it is for, as in `words.Address`."""
        return self.group or self.scope

    def is_shared(self) -> bool:
        """Whether it is for one member of a share group."""
        return self.group != "" and not self.group.startswith(ONLY)

    def placed(self, stamp: int, moves: int) -> "StoredMessage":
        """This message in another place of its queue."""
        topic, payload, retain = self.topic, self.payload, self.retain
        return StoredMessage(stamp, topic, payload, self.qos, self.address(), moves, retain)

    def delivery(self, qos: int) -> Delivery:
        """It, as one of the deliveries of a session that is in no slot."""
        message = Message(self.topic, self.payload, self.qos, self.retain)
        return Delivery(message, qos, self.retain, self.group if self.is_shared() else "")

    def size(self) -> int:
        """What it counts in a queue."""
        return len(self.topic) + len(self.payload)


def messages_of(value: bytes) -> list[tuple[Dot, StoredMessage]]:
    """What is in a record of messages."""
    found: list[tuple[Dot, StoredMessage]] = []
    for origin, place, stamp, topic, payloads, *rest in _DECODER.decode(value):
        several = payloads if isinstance(payloads, list) else [payloads]
        for at, payload in enumerate(several):
            message = StoredMessage(stamp + at, topic, payload, *rest)
            found.append(((origin, place + at), message))
    return found


class Sending:
    """A message on its way from the owner of a slot to a client; `is_again`: as in `SessionStep`."""

    def __init__(
        self, slot: int, packet: int, sent: SentMessage, message: StoredMessage, is_again: bool
    ) -> None:
        self.slot = slot
        self.packet = packet
        self.sent = sent
        self.message = message
        self.is_again = is_again

    def step(self) -> SessionStep:
        """It, as it goes over a link."""
        message, sent = self.message, self.sent
        return SessionStep(
            SEND,
            self.packet,
            [(self.slot, sent.dot, message.address())],
            is_again=self.is_again,
            topic=message.topic,
            payload=message.payload,
            qos=sent.qos,
            retain=message.retain,
        )

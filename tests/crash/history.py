"""What the clients sent and got, written down as it happened."""

import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Message:
    """One application message: the `number`-th of its publisher, topic and QoS."""

    publisher: str
    topic: str
    qos: int
    number: int

    @property
    def stream(self) -> tuple[str, str, int]:
        """Messages of one stream keep their order."""
        return self.publisher, self.topic, self.qos

    def payload(self, filler: bytes = b"") -> bytes:
        """A payload that names the message and shows any damage."""
        head = f"{self.publisher} {self.topic} {self.qos} {self.number}".encode()
        return b"%s %08x %s" % (head, zlib.crc32(head + filler), filler)

    def __str__(self) -> str:
        return f"{self.publisher}:{self.topic}:q{self.qos}:#{self.number}"


def message_in(payload: bytes) -> Message:
    """The message that a payload names. Raises ValueError when it was damaged."""
    parts = payload.split(b" ", 5)
    if len(parts) != 6:
        raise ValueError(f"not a payload of these tests: {payload[:80]!r}")
    publisher, topic, qos, number, checksum, filler = parts
    head = b" ".join((publisher, topic, qos, number))
    if zlib.crc32(head + filler) != int(checksum, 16):
        raise ValueError(f"damaged payload: {payload[:80]!r}")
    return Message(publisher.decode(), topic.decode(), int(qos), int(number))


@dataclass(frozen=True)
class Delivery:
    """A message as a subscriber's application got it, on its `connection`-th connection."""

    message: Message
    qos: int
    dup: bool
    connection: int


@dataclass(frozen=True)
class Subscription:
    """What one subscriber asked for. It asked before the first message was sent."""

    wants: Callable[[str], bool]
    qos: int


@dataclass
class History:
    """A whole run.

    `acknowledged` is an ordered set, `got` holds what `deliveries` does without its repetitions,
    `objections` are breaches of protocol that a client saw by itself.
    """

    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    transmissions: Counter[Message] = field(default_factory=Counter)
    acknowledged: dict[Message, None] = field(default_factory=dict)
    deliveries: dict[str, list[Delivery]] = field(default_factory=dict)
    got: dict[str, set[Message]] = field(default_factory=dict)
    objections: list[str] = field(default_factory=list)

    def subscribe(self, subscriber: str, wants: Callable[[str], bool], qos: int) -> None:
        """Note a subscription."""
        self.subscriptions[subscriber] = Subscription(wants, qos)
        self.deliveries[subscriber] = []
        self.got[subscriber] = set()

    def sent(self, message: Message) -> None:
        """Note that a publisher put the message on the wire, for the first time or again."""
        self.transmissions[message] += 1

    def acknowledge(self, message: Message) -> None:
        """Note that the broker took charge of the message: PUBACK at QoS 1, PUBREC at QoS 2."""
        self.acknowledged[message] = None

    def delivered(self, subscriber: str, delivery: Delivery) -> None:
        """Note that a subscriber's application got a message."""
        self.deliveries[subscriber].append(delivery)
        self.got[subscriber].add(delivery.message)

    def object(self, text: str) -> None:
        self.objections.append(text)

"""A publish on its way to another node, and which of them a node has taken already.

At QoS 0 a publish goes over the channel's unreliable lane and has no number. At QoS 1 and 2 it goes over the reliable
one, numbered by the node that it comes from: that lane keeps the order, and repeats what the receiver took and had not
acknowledged when it died. So one number for each origin, stored together with what it covers, tells the repeated from
the new.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.topics import decode_topic_name, split_shared

_QOS: Final = 3
_RETAIN: Final = 4


class PublishError(ValueError):
    """A node sent what is no publish: the fault is remote."""


class Publish(Struct, array_like=True, frozen=True):
    """One application message for one node.

    With a `group`, the whole `$share/name/filter`, it is for one member of that; else for every subscriber there that
    is in no group. `life` is the origin's, in which its numbers begin at 1; both are 0 at QoS 0.
    """

    topic: Annotated[bytes, Meta(min_length=1, max_length=65_535)]
    payload: bytes
    flags: Annotated[int, Meta(ge=0, le=_RETAIN | 2)]
    mountpoint: Annotated[str, Meta(max_length=255)] = ""
    group: Annotated[str, Meta(max_length=65_535)] = ""
    life: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0
    number: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0

    @property
    def qos(self) -> int:
        return self.flags & _QOS

    @property
    def retain(self) -> bool:
        return self.flags & _RETAIN != 0


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(Publish)


def flags_of(qos: int, retain: bool) -> int:
    """QoS and RETAIN in one number."""
    return qos | _RETAIN if retain else qos


def encode(publish: Publish) -> bytes:
    """A publish for a channel."""
    return _ENCODER.encode(publish)


def decode(raw: bytes) -> Publish:
    """A publish from a channel.

    Raises:
        PublishError: it is none, or no client could have made it.
    """
    try:
        publish = _DECODER.decode(raw)
        decode_topic_name(publish.topic)
    except (msgspec.DecodeError, ProtocolError) as error:
        raise PublishError(f"no publish: {error}") from None
    if publish.qos == _QOS:
        raise PublishError("no publish: QoS 3")
    if publish.group and not split_shared(publish.group)[0]:
        raise PublishError("no publish: its group is none")
    if (publish.qos > 0) != (publish.number > 0 and publish.life > 0):
        raise PublishError("no publish: numbers belong to QoS 1 and 2, and to those alone")
    return publish


class Taken:
    """How far this node has come with the numbers of each origin. `life` and `number` are stored by the caller."""

    def __init__(self, known: dict[str, tuple[int, int]] | None = None) -> None:
        self.known = dict(known or {})

    def is_new(self, origin: str, publish: Publish) -> bool:
        """Takes a numbered publish, in the order of the channel; returns whether it was not here before.

        Numbers may be left out: what overflowed at the origin never comes. A life before the last one that was heard
        of is over: what still comes of it is late beyond repair.
        """
        place = (publish.life, publish.number)
        if place <= self.known.get(origin, (0, 0)):
            return False
        self.known[origin] = place
        return True

    def forget(self, origin: str) -> None:
        """The node is no member any more, or is a new one under its old name."""
        self.known.pop(origin, None)

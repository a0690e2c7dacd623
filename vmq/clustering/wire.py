"""All messages between nodes, to and from bytes.

Tags: 1 to 9 routing, 10 to 29 the moving of sessions, 30 to 49 replicas, 50 to 59 streams. A message keeps its tag, and
gets new fields at its end only, with defaults: so nodes of two versions understand each other while a cluster is
upgraded.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from vmq.clustering.message import Message
from vmq.clustering.publishes import Publish, Run

AnyMessage = Publish | Run

_Positive = Annotated[int, Meta(ge=1, lt=1 << 62)]


class Parcel(Struct, array_like=True, frozen=True):
    """A message on a lane: which store keeps it, and its place there.

    Places only rise: the life of the broker comes first, which is another after each start, then the number in it.
    """

    store: _Positive
    life: _Positive
    number: _Positive
    message: AnyMessage


class WireError(ValueError):
    """A peer sent what is no message of this cluster: the fault is remote."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_PARCELS: Final = msgspec.msgpack.Decoder(Parcel)
_MESSAGES: Final[msgspec.msgpack.Decoder[AnyMessage]] = msgspec.msgpack.Decoder(AnyMessage)


def encode(each: Message | Parcel) -> bytes:
    """A message, or a parcel with one, for a channel."""
    return _ENCODER.encode(each)


def decode(raw: bytes) -> AnyMessage:
    """The message that came at most once.

    Raises:
        WireError: it is none.
    """
    try:
        message = _MESSAGES.decode(raw)
        message.check()
    except (ValueError, RecursionError) as error:
        raise WireError(f"no message: {error}") from None
    return message


def decode_parcel(raw: bytes) -> Parcel:
    """The parcel that came over a lane.

    Raises:
        WireError: it is none.
    """
    try:
        parcel = _PARCELS.decode(raw)
        parcel.message.check()
    except (ValueError, RecursionError) as error:
        raise WireError(f"no parcel: {error}") from None
    return parcel

"""All messages between nodes, to and from bytes.

Tags: 1 to 9 routing, 10 and 11 clients that come to another node, 50 to 59, 73 and 74 streams, 61 to 64 wills, 65 to 69
looks at sessions and consumer groups, 70 to 72 jobs, 90 to 99 replicated streams, 100 to 117 slots and their links. 12
to 49 and 60 had others before version 1002, and stay free. A message keeps its tag, and gets new fields at its end
only, with defaults: so nodes of two versions understand each other while a cluster is upgraded. A message that is new
raises `VERSIONS`: see `vmq_cluster.metadata.versions`.
"""

import struct
from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from vmq.clustering.messages.barrier import BarrierReached, BarrierRequest
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.clients import ClientMessage
from vmq.clustering.messages.farewell import Farewell
from vmq.clustering.messages.groups import GroupTalk
from vmq.clustering.messages.jobs import JobMessage
from vmq.clustering.messages.links import LinkFrame, LinkHello
from vmq.clustering.messages.publishes import QOS, RemotePublish, RemotePublishRun
from vmq.clustering.messages.raft import GroupEnvelope, Produce, Produced
from vmq.clustering.messages.sessions import SessionQuestion
from vmq.clustering.messages.store_id import StoreName
from vmq.clustering.messages.streams import (
    Append,
    AppendRun,
    AskCopy,
    AskOffsets,
    AskPage,
    CopyFound,
    Define,
    HoldPartition,
    Offsets,
    PageFound,
    PartitionHeld,
    PartitionRows,
)
from vmq.clustering.messages.wills import WillMessage
from vmq_cluster.metadata.versions import Versions

AnyMessage = (
    RemotePublish
    | RemotePublishRun
    | BarrierRequest
    | BarrierReached
    | StoreName
    | Farewell
    | ClientMessage
    | Append
    | AppendRun
    | AskCopy
    | AskOffsets
    | AskPage
    | CopyFound
    | Define
    | PartitionHeld
    | HoldPartition
    | Offsets
    | PageFound
    | PartitionRows
    | GroupEnvelope
    | Produce
    | Produced
    | JobMessage
    | GroupTalk
    | WillMessage
    | SessionQuestion
    | LinkHello
    | LinkFrame
)

#: What this broker speaks, and the oldest version that it can talk with.
VERSIONS: Final = Versions(speaks=1002, reads=1002)

#: In one batch.
MAX_MESSAGES: Final = 100_000

_Positive = Annotated[int, Meta(ge=1, lt=1 << 62)]


class MessageBatch(Struct, array_like=True, frozen=True):
    """Messages on an outbox: which store keeps them, their place there, and which store they are for.

    Places only rise: the life of the broker comes first, which is another after each start, then the number in it.
    """

    store: _Positive
    life: _Positive
    number: _Positive
    messages: Annotated[list[AnyMessage], Meta(max_length=MAX_MESSAGES)]
    #: The name of the peer's store; 0: it is not known yet.
    target: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0
    #: Somebody waits to hear that the peer has it. Else it may say so late, for many batches at once.
    hurries: bool = True


class _Torn(Struct, array_like=True, frozen=True):
    """A batch as it came: some of its messages may be unknown."""

    store: _Positive
    life: _Positive
    number: _Positive
    messages: Annotated[list[msgspec.Raw], Meta(max_length=MAX_MESSAGES)]
    target: Annotated[int, Meta(ge=0, lt=1 << 62)] = 0
    hurries: bool = True


class WireError(ValueError):
    """A peer sent what is no message of this cluster: the fault is remote."""


_ENCODER: Final = msgspec.msgpack.Encoder()
_PARCELS: Final = msgspec.msgpack.Decoder(MessageBatch)
_TORN: Final = msgspec.msgpack.Decoder(_Torn)
_MESSAGES: Final[msgspec.msgpack.Decoder[AnyMessage]] = msgspec.msgpack.Decoder(AnyMessage)

#: Makes bytes of a message, for a channel.
encode: Final[Callable[[NodeMessage], bytes]] = _ENCODER.encode
#: Puts a message into a bytearray; at -1, behind what is there.
encode_into: Final = _ENCODER.encode_into

#: A batch in front of its messages: an array of four, three numbers of 64 bits, and an array with a length of 32.
#: On its way it is one of five or six: which store it is for may be another by then than when it was stored.
_HEAD: Final = struct.Struct(">BBQBQBQBI")
HEAD: Final = _HEAD.size
_COUNT: Final = struct.Struct(">I")
_TARGET: Final = struct.Struct(">BQ")


def close(parcel: bytearray, place: tuple[int, int, int], count: int) -> bytes:
    """A batch of so many messages, which were put behind `HEAD` bytes of room."""
    store, life, number = place
    _HEAD.pack_into(parcel, 0, 0x94, 0xCF, store, 0xCF, life, 0xCF, number, 0xDD, count)
    return bytes(parcel)


def without(parcel: MessageBatch, count: int) -> bytes:
    """A batch of this broker's own without so many of its messages; nothing if that is all of them."""
    return with_only(parcel, parcel.messages[count:])


def with_only(parcel: MessageBatch, left: list[AnyMessage]) -> bytes:
    """A batch of this broker's own with only these of its messages; nothing if there are none."""
    if not left:
        return b""
    raw = bytearray(HEAD)
    for each in left:
        encode_into(each, raw, -1)
    return close(raw, (parcel.store, parcel.life, parcel.number), len(left))


def address(raw: bytes, target: int, hurries: bool = True) -> bytes:
    """A batch on its way to the store of that name."""
    rest = memoryview(raw)[1:]
    if hurries:
        return b"".join((b"\x95", rest, _TARGET.pack(0xCF, target)))
    return b"".join((b"\x96", rest, _TARGET.pack(0xCF, target), b"\xc2"))


def count_of(raw: bytes) -> int:
    """How many messages a batch of this broker's own has."""
    return int(_COUNT.unpack_from(raw, HEAD - 4)[0]) if len(raw) >= HEAD else 0


def decode(raw: bytes | msgspec.Raw) -> AnyMessage:
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


def decode_parcel(raw: bytes) -> tuple[MessageBatch, str]:
    """The batch that came over an outbox, and why some of it is passed over, if it is.

    Raises:
        WireError: it is none at all.
    """
    try:
        parcel = _PARCELS.decode(raw)
        for message in parcel.messages:
            # Most are such, and have only a topic to check, which `Routing` looks up.
            if type(message) is RemotePublish and message.flags & QOS != QOS and not message.group:
                continue
            message.check()
    except (ValueError, RecursionError):
        return _decode_torn(raw)
    return parcel, ""


def _decode_torn(raw: bytes) -> tuple[MessageBatch, str]:
    """What is left of a batch without those of its messages that are none.

    Raises:
        WireError: it is no batch.
    """
    try:
        torn = _TORN.decode(raw)
    except (ValueError, RecursionError) as error:
        raise WireError(f"no parcel: {error}") from None
    messages: list[AnyMessage] = []
    fault = ""
    for each in torn.messages:
        try:
            messages.append(decode(each))
        except WireError as error:
            fault = fault or str(error)
    place = (torn.store, torn.life, torn.number)
    return MessageBatch(*place, messages, torn.target, torn.hurries), fault

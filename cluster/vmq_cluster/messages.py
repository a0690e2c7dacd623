"""What nodes say to each other: frames of messages, in msgpack.

A frame is what the link carries at once: who sends it, in which of its lives, a number that rises by one, and
the messages of one pass. The format's number comes first and is read before the rest, so that a node of another
version is told from a broken one. Every size is checked when a frame is decoded: what gets past `decode` is within
the limits below.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from vmq_cluster.clocks import MAX_COUNTER, MAX_NUMBER
from vmq_cluster.errors import ClusterError, FormatError, MalformedError

#: Goes up when a frame changes so that older nodes misread it.
FORMAT: Final = 1

MAX_FRAME: Final = 64 * 1024 * 1024
MAX_MESSAGES: Final = 100_000
MAX_NAME: Final = 255
MAX_KEY: Final = 128 * 1024
#: A value of the metadata, a broadcast. Three that were written at the same time go into one frame.
MAX_VALUE: Final = 20 * 1024 * 1024
#: A payload of a channel.
MAX_PAYLOAD: Final = 60 * 1024 * 1024
MAX_MEMBERS: Final = 4096
MAX_ENTRIES: Final = 10_000
MAX_WRITERS: Final = 65_536
MAX_IDS: Final = 10_000

Number = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Positive = Annotated[int, Meta(ge=1, le=MAX_NUMBER)]
Counter = Annotated[int, Meta(ge=1, le=MAX_COUNTER)]
Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Key = Annotated[bytes, Meta(min_length=1, max_length=MAX_KEY)]
Value = Annotated[bytes, Meta(max_length=MAX_VALUE)]
Address = Annotated[str, Meta(max_length=1024)]
Payload = Annotated[bytes, Meta(max_length=MAX_PAYLOAD)]
WireClock = Annotated[dict[Positive, list[Positive]], Meta(max_length=MAX_WRITERS)]

#: (incarnation, counter, hybrid time, value); no value: the key was deleted.
WireSibling = tuple[Positive, Counter, Number, Value | None]

#: (stream, incarnation or epoch of its origin, number): what a broadcast is known by.
MessageId = tuple[Annotated[int, Meta(ge=0, le=255)], Positive, Counter]
Ids = Annotated[list[MessageId], Meta(max_length=MAX_IDS)]


class Message(Struct, array_like=True):
    """One of the messages below; the first field on the wire says which."""


# --- membership


class MemberRecord(Struct, array_like=True, frozen=True):
    """What is known of a member: see `vmq_cluster.membership`."""

    name: Name
    incarnation: Positive
    status: Annotated[int, Meta(ge=0, le=4)]
    version: Number
    address: Address
    #: Which disk the member has: see `vmq_cluster.identity`. 0: unknown.
    store: Number = 0


class Heartbeat(Message, tag=1):
    """I am alive, and this is the digest of the members that I know.

    `sent` is the sender's clock in milliseconds, `echo` the receiver's as the last heartbeat from there had it, `held`
    for how long that was here then; 0: none. With `stops` it is the last one: the sender ends in order. `address` is
    where the sender says that it is.
    """

    digest: Number
    sent: Number = 0
    echo: Number = 0
    held: Number = 0
    stops: bool = False
    address: Address = ""


class Members(Message, tag=2):
    """All members that the sender knows; `asks` for those of the receiver in return.

    The answer has the ticket of the question, which is above 0 where it matters who answers. `taken` is where the
    sender hears another node of the receiver's name, which is why nothing else that the receiver says counts. The
    record is that node's then, if it has the name for good.
    """

    records: Annotated[list[MemberRecord], Meta(max_length=MAX_MEMBERS)]
    asks: bool
    ticket: Number = 0
    taken: Address = ""


class StaleEpoch(Message, tag=3):
    """The sender has met a later life of the receiver: the receiver counts on from there."""

    epoch: Positive


# --- plumtree


class Gossip(Message, tag=10):
    """A broadcast, pushed along the tree."""

    id: MessageId
    #: An entry, or the application's bytes.
    payload: Payload


class IHave(Message, tag=11):
    """Broadcasts that the sender can be asked for."""

    ids: Ids


class Graft(Message, tag=12):
    """Send me this one, and from now on push eagerly."""

    id: MessageId


class Prune(Message, tag=13):
    """I get broadcasts from elsewhere: announce them only."""


# --- metadata


class WireEntry(Struct, array_like=True, frozen=True):
    """What a node holds under a key: see `vmq_cluster.metadata.entries`."""

    key: Key
    siblings: Annotated[list[WireSibling], Meta(max_length=MAX_MEMBERS)]
    context: Annotated[dict[Positive, Counter], Meta(max_length=MAX_WRITERS)]


class SyncRequest(Message, tag=20):
    """Send me what I lack: see `vmq_cluster.metadata.exchange`."""

    id: Positive
    incarnation: Positive
    clock: WireClock
    promised: WireClock
    full: bool
    cursor: Annotated[bytes, Meta(max_length=MAX_KEY)]
    #: The last key that the answer is to speak of; empty: there is no limit.
    until: Annotated[bytes, Meta(max_length=MAX_KEY)]


class SyncBatch(Message, tag=21):
    """A part of what the receiver lacks, in answer to the request of this id."""

    id: Positive
    incarnation: Positive
    #: The sender's clock before the first batch of a round, else nothing.
    clock: WireClock
    #: Its horizon, before the first batch in full.
    horizon: WireClock
    full: bool
    entries: Annotated[list[WireEntry], Meta(max_length=MAX_ENTRIES)]
    #: Where the next batch begins; nothing: the round is over.
    cursor: Annotated[bytes, Meta(max_length=MAX_KEY)] | None


# --- channels


class Reliable(Message, tag=30):
    """Numbered payloads, the first of which has the number `first`.

    `oldest` is the lowest number that the sender would send again.
    """

    epoch: Positive
    oldest: Counter
    first: Counter
    payloads: Annotated[list[Payload], Meta(max_length=MAX_MESSAGES)]


class Received(Message, tag=31):
    """All payloads up to this number were handed on."""

    epoch: Positive
    number: Number


class Unreliable(Message, tag=32):
    """Payloads that arrive at most once."""

    payloads: Annotated[list[Payload], Meta(max_length=MAX_MESSAGES)]


AnyMessage = (
    Heartbeat
    | Members
    | StaleEpoch
    | Gossip
    | IHave
    | Graft
    | Prune
    | SyncRequest
    | SyncBatch
    | Reliable
    | Received
    | Unreliable
)


class Frame(Struct, array_like=True, frozen=True):
    """What the link carries at once."""

    format: int
    sender: Name
    #: Which life of the sender: rises with each of its starts.
    epoch: Positive
    #: Which frame of this life to this receiver.
    number: Positive
    messages: Annotated[list[AnyMessage], Meta(max_length=MAX_MESSAGES)]
    #: See `vmq_cluster.metadata.versions`.
    speaks: Number = 1
    reads: Number = 1
    #: What all nodes of a cluster have alike: see `vmq_cluster.metadata.versions`. 0: unknown.
    alike: Number = 0
    #: Which cluster the sender belongs to, and which disk it has: see `vmq_cluster.identity`. 0: unknown.
    cluster: Number = 0
    store: Number = 0


class _Torn(Struct, array_like=True):
    """A frame as it came: some of its messages may be unknown to this version."""

    format: int
    sender: Name
    epoch: Positive
    number: Positive
    messages: Annotated[list[msgspec.Raw], Meta(max_length=MAX_MESSAGES)]
    speaks: Number = 1
    reads: Number = 1
    alike: Number = 0
    cluster: Number = 0
    store: Number = 0


class _Head(Struct, array_like=True):
    """The part of a frame that every version understands."""

    format: int
    sender: Annotated[str, Meta(max_length=MAX_NAME)] = ""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Frame)
_TORN_DECODER = msgspec.msgpack.Decoder(_Torn)
_MESSAGE_DECODER: Final[msgspec.msgpack.Decoder[AnyMessage]] = msgspec.msgpack.Decoder(AnyMessage)
_HEAD_DECODER = msgspec.msgpack.Decoder(_Head)


def encode(frame: Frame) -> bytes:
    """The bytes of a frame.

    Raises:
        ClusterError: it is larger than a receiver accepts.
    """
    raw = _ENCODER.encode(frame)
    if len(raw) > MAX_FRAME:
        raise ClusterError(f"a frame of {len(raw)} bytes; the limit is {MAX_FRAME}")
    return raw


def decode(raw: bytes, speaks: int = 1) -> Frame:
    """The frame that a peer sent, to a node that speaks this version.

    Of one that speaks a later one it has the messages that are known here.

    Raises:
        FormatError: it is of another version altogether.
        MalformedError: it is none, or is too large.
    """
    if len(raw) > MAX_FRAME:
        raise MalformedError(f"a frame of {len(raw)} bytes; the limit is {MAX_FRAME}")
    try:
        frame = _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        _check_format(_head_of(raw))
        return _known_part(raw, speaks, error)
    if frame.format != FORMAT:
        _check_format(_Head(frame.format, frame.sender))
    return frame


def _known_part(raw: bytes, speaks: int, fault: Exception) -> Frame:
    """What a node of this version understands of a frame that it cannot read as a whole.

    Raises:
        MalformedError: its sender is of no later version: it should have known.
    """
    try:
        torn = _TORN_DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"no frame of this cluster: {error}") from None
    if torn.speaks <= speaks:
        raise MalformedError(f"no frame of this cluster: {fault}") from None
    messages = []
    for each in torn.messages:
        try:
            messages.append(_MESSAGE_DECODER.decode(each))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue  # a later version has it
    head = FORMAT, torn.sender, torn.epoch, torn.number
    tail = torn.speaks, torn.reads, torn.alike, torn.cluster, torn.store
    return Frame(*head, messages, *tail)


def _head_of(raw: bytes) -> _Head:
    """What tells of which version a frame is that is none of this one's.

    Raises:
        MalformedError: it is none of any.
    """
    try:
        return _HEAD_DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedError(f"no frame of this cluster: {error}") from None


def _check_format(head: _Head) -> None:
    """Raises `FormatError` for what another version has sent."""
    if head.format != FORMAT:
        who = f"node {head.sender!r}" if head.sender else "a node"
        where = "this node" if head.format > FORMAT else "that one"
        raise FormatError(
            f"{who} sends frames of format {head.format}, and this node reads {FORMAT}; upgrade vmq on {where}"
        )

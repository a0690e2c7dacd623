"""What origins and fronts say to the owners of slots, and the answers.

An origin is where a message was published, a front where a client's connection is; see `vmq.clustering.slots`.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.slots import (
    AskFork,
    Beat,
    ForkIncluded,
    LineageOf,
    NoFork,
    Number,
    SlotNumber,
    SlotRecords,
    SlotStored,
    SlotViews,
    StatePart,
    TakeTurn,
)

#: Origin and number: the identity of a message.
DotOf = tuple[Number, Number]
#: Where a message goes: for each slot and share group ("": all others there) concerned its dot there.
Addresses = Annotated[list[tuple[SlotNumber, DotOf, str]], Meta(max_length=1 << 16)]
Filters = Annotated[list[tuple[str, int]], Meta(max_length=1_000_000)]
#: Of filters that a plugin has put in place of what a client asked for: what that was.
Asked = Annotated[dict[str, str], Meta(max_length=1_000_000)]
ClientId = Annotated[str, Meta(min_length=1, max_length=66_000)]
MAX_PACKET: Final = 65_535
PacketId = Annotated[int, Meta(ge=0, le=MAX_PACKET)]
MAX_DONE: Final = 65_535


class SessionLimits(Struct, array_like=True, frozen=True):
    """What a plugin has decided for one session, as `vmq.clustering.slots.limits` names it; None: as configured."""

    window: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    online: Annotated[int, Meta(ge=-1)] | None = None
    offline: Annotated[int, Meta(ge=-1)] | None = None
    newest_first: bool | None = None
    upgrades: bool | None = None


class OfferedMessage(Struct, array_like=True, frozen=True):
    """A message on its way to a slot; `group`: for one member of this share group there.

    `retain`: it has RETAIN, as it was published, or as one client is to get it whom it is for alone. `but`: the bridge
    that published it, which is not to get it by its subscriptions. `more`: a run at QoS 1, which has one answer; these
    are the payloads of the messages behind the first, whose dots follow its dot.
    """

    dot: DotOf
    topic: Annotated[bytes, Meta(min_length=1, max_length=65_535)]
    payload: bytes
    qos: Annotated[int, Meta(ge=0, le=2)]
    group: str = ""
    retain: bool = False
    but: Annotated[str, Meta(max_length=66_000)] = ""
    more: list[bytes] = []


class Offer(NodeMessage, frozen=True, tag=109):
    """What is not confirmed, oldest first: number `index` of the offers since the last break (0: from the oldest)."""

    slot: SlotNumber
    lineage: LineageOf
    link: Number
    index: Number
    messages: Annotated[list[OfferedMessage], Meta(max_length=100_000)]
    #: The greatest stamp that the origin knows of: these messages come later.
    clock: Number = 0


class OfferTaken(NodeMessage, frozen=True, tag=110):
    """These are safe. `again`: the owner did not take what was offered; offer from the oldest."""

    slot: SlotNumber
    lineage: LineageOf
    dots: Annotated[list[DotOf], Meta(max_length=100_000)]
    again: bool = False
    clock: Number = 0


class ReceivedEntry(Struct, array_like=True, frozen=True):
    """A QoS 2 packet id that a client has not released: the digest of its message; b"": it may be any.

    `is_there`: the front to which that came is, from where all have it who are in no slot; or it is a job, which any
    front adds that hears of it.
    """

    packet: PacketId
    digest: bytes
    is_there: bool


class TableEntry(Struct, array_like=True, frozen=True):
    """A packet id in use on a connection: which message it is, and whether PUBREC came."""

    packet: PacketId
    dot: DotOf
    is_received: bool
    qos: Annotated[int, Meta(ge=1, le=2)]


class Attach(NodeMessage, frozen=True, tag=111):
    """A connection asks for the owner of its client's session.

    `rank` numbers the client's connections (0: the owner is to number it); `is_clean`: the session before it ends.
    """

    slot: SlotNumber
    client: ClientId
    connection: Number
    rank: Number
    lineage: LineageOf
    link: Number
    table: Annotated[list[TableEntry], Meta(max_length=65_535)]
    is_clean: bool = False
    #: In earlier versions, a will.
    reserved: None = None
    #: The greatest stamp that the front knows of: what the client does now is later.
    clock: Number = 0
    #: Whose session it is to be; None: whoever had it before.
    user: Annotated[str, Meta(max_length=65_535)] | None = None
    limits: SessionLimits | None = None
    #: Messages at QoS 1 that the client has acknowledged on this connection, and no owner has called safe.
    done: Annotated[list[DotOf], Meta(max_length=MAX_DONE)] = msgspec.field(default_factory=list)


class Attached(NodeMessage, frozen=True, tag=112):
    """The owner serves it; `is_present`: what CONNACK says of the session."""

    client: ClientId
    connection: Number
    rank: Number
    lineage: LineageOf
    link: Number
    is_present: bool
    clock: Number = 0
    #: What the session subscribes to, with the QoS granted.
    filters: Filters = msgspec.field(default_factory=list)
    #: What came of the client on its earlier connections.
    received: Annotated[list[ReceivedEntry], Meta(max_length=65_535)] = msgspec.field(
        default_factory=list
    )
    asked: Asked = msgspec.field(default_factory=dict)
    #: No other state of the session is newer: what it has `received`, the client has not released.
    is_whole: bool = False


class AttachRefused(NodeMessage, frozen=True, tag=113):
    """Close this connection: a newer one of the client has taken its place, or `is_others`, another user's session."""

    client: ClientId
    connection: Number
    is_others: bool = False


class SessionStep(Struct, array_like=True, frozen=True):
    """A packet of a client, or one for it, on its way between front and owner.

    `kind` is one of `vmq.clustering.slots.words`: what of the rest it has, it says there. `more`: the payloads of
    messages that follow, with the dots and packet ids that do; `count`: it is of so many packet ids, from `packet` on;
    `place`: nobody else is to get what was offered as one, and this is so far in it, from 1 on; `is_settled`: these
    rows are done, whatever becomes of the front.
    """

    kind: Annotated[int, Meta(ge=0, le=20)]
    packet: PacketId = 0
    addresses: Addresses = []
    digest: bytes = b""
    is_again: bool = False
    topic: bytes = b""
    payload: bytes = b""
    qos: Annotated[int, Meta(ge=0, le=2)] = 0
    filters: Filters = msgspec.field(default_factory=list)
    retain: bool = False
    more: list[bytes] = []
    count: PacketId = 1
    place: Annotated[int, Meta(ge=0, le=100_000)] = 0
    asked: Asked = {}
    is_settled: bool = False


class FromClient(NodeMessage, frozen=True, tag=114):
    """Packets of a client, in order, for the owner to which its connection is attached."""

    slot: SlotNumber
    client: ClientId
    connection: Number
    lineage: LineageOf
    link: Number
    steps: Annotated[list[SessionStep], Meta(max_length=100_000)]
    clock: Number = 0


class ToClient(NodeMessage, frozen=True, tag=115):
    """What the owner has for a connection that is attached to it, in order."""

    client: ClientId
    connection: Number
    lineage: LineageOf
    link: Number
    steps: Annotated[list[SessionStep], Meta(max_length=100_000)]
    clock: Number = 0
    #: Of the messages at QoS 1 that the client has acknowledged since `Attach.done` began, so many are safe.
    done: Number = 0

    def check(self) -> None:
        for each in self.steps:
            if each.more and each.packet + len(each.more) > MAX_PACKET:
                raise ValueError("more messages than packet ids")


#: All messages about durable sessions.
SessionMessage = (
    Beat
    | SlotViews
    | AskFork
    | NoFork
    | StatePart
    | SlotRecords
    | SlotStored
    | ForkIncluded
    | TakeTurn
    | Offer
    | OfferTaken
    | Attach
    | Attached
    | AttachRefused
    | FromClient
    | ToClient
)

"""What nodes say to the coordinator of groups, and what it says to them.

Both say all that holds, not what has changed: a message that is lost is made up for by the next one.
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from vmq.streams.groups.copying import Copying
from vmq.streams.groups.records import StreamId
from vmq.streams.groups.steps import MOST_STEPS, DecidedStep, PublishStep, StepNumber

_Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Partition = Annotated[int, Meta(ge=0, lt=1024)]
_Partitions = Meta(max_length=1024)
_Name = Annotated[str, Meta(min_length=1, max_length=100)]
_Client = Annotated[str, Meta(max_length=65_535)]
_Reads = Annotated[str, Meta(max_length=80_000)]
_Numbers = Annotated[list[tuple[_Partition, _Count]], _Partitions]
_Text = Annotated[str, Meta(max_length=1000)]

#: Members of one group on one node, at most.
MOST_MEMBERS: Final = 1000
#: Groups in one answer.
MOST_FOUND: Final = 100


class GroupHold(Struct, array_like=True, frozen=True):
    """A member has a partition, or had it: how far it is, and how often what comes next was sent for nothing."""

    partition: _Partition
    generation: _Count
    member: _Name
    position: _Count
    deliveries: _Count


class SeenMember(Struct, array_like=True, frozen=True):
    """A member, its client, and whether it is stalled."""

    name: _Name
    client: _Client
    is_stalled: bool


class GroupBeat(Struct, tag=1, array_like=True, frozen=True):
    """A node has these members of a group, and they have these partitions. Asks for a lease."""

    #: Rises; and the life of the node, which rises too.
    number: _Count
    boot: _Count
    group: _Name
    reads: _Reads
    #: Of the stream, as this node knows it, and where a group begins that is new.
    partitions: Annotated[int, Meta(ge=1, le=1024)]
    starts: _Numbers
    members: Annotated[list[SeenMember], Meta(max_length=MOST_MEMBERS)]
    holds: Annotated[list[GroupHold], _Partitions]
    #: What was given back; said until it is no more among what is given.
    released: Annotated[list[GroupHold], _Partitions]
    #: The node's store; what its members publish with commits, in order, until that is done; and the first number of
    #: the store that is needed: of those before it nobody asks again.
    store: Annotated[str, Meta(max_length=300)] = ""
    steps: Annotated[list[PublishStep], Meta(max_length=MOST_STEPS)] = []
    oldest: StepNumber = (0, 0)
    #: Which stream of the name its members read.
    stream: StreamId = ""


class GivenPartition(Struct, array_like=True, frozen=True):
    """A member of the node has a partition, which begins here if it is new to it; or it is to give it back."""

    partition: _Partition
    generation: _Count
    member: _Name
    start: _Count
    deliveries: _Count
    is_leaving: bool


class Grant(Struct, tag=2, array_like=True, frozen=True):
    """All that members of a node have. With the `number` of a beat it is a lease from when that was sent; not with 0.

    `serial` rises, with any coordinator: an earlier one says nothing any more. `error`: why members get nothing.
    """

    number: _Count
    serial: _Count
    group: _Name
    reads: _Reads
    given: Annotated[list[GivenPartition], _Partitions]
    error: _Text = ""
    #: Those of the beat's steps that are decided.
    steps: Annotated[list[DecidedStep], Meta(max_length=MOST_STEPS)] = []


class AskGroups(Struct, tag=3, array_like=True, frozen=True):
    """Which groups are there; of one name, or all."""

    question: _Count
    group: Annotated[str, Meta(max_length=100)] = ""


class FoundGroup(Struct, array_like=True, frozen=True):
    """A group: where it is, its members, and the clients that have its partitions."""

    group: _Name
    reads: _Reads
    positions: _Numbers
    members: Annotated[list[SeenMember], Meta(max_length=100_000)] = []
    holders: Annotated[list[tuple[_Partition, _Client]], _Partitions] = []
    standing_by: list[_Client] = []
    stream: StreamId = ""


class FoundGroups(Struct, tag=4, array_like=True, frozen=True):
    """Some of the answer, or its last part."""

    question: _Count
    groups: Annotated[list[FoundGroup], Meta(max_length=MOST_FOUND)]
    is_last: bool


class ChangeGroup(Struct, tag=5, array_like=True, frozen=True):
    """Have a group without members begin elsewhere; without positions: forget it."""

    question: _Count
    group: _Name
    reads: _Reads
    positions: _Numbers | None
    #: Where these are offsets.
    stream: StreamId = ""


class GroupChanged(Struct, tag=6, array_like=True, frozen=True):
    """It is done, or is not, for this reason."""

    question: _Count
    error: _Text = ""


Saying = GroupBeat | Grant | AskGroups | FoundGroups | ChangeGroup | GroupChanged | Copying
#: What the coordinator answers with.
Answer = Grant | FoundGroups | GroupChanged

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Saying]] = msgspec.msgpack.Decoder(Saying)


def encode_saying(saying: Saying) -> bytes:
    """For the wire."""
    return _ENCODER.encode(saying)


def decode_saying(raw: bytes) -> Saying:
    """From the wire.

    Raises:
        ValueError: it is nothing that a node says.
    """
    try:
        return _DECODER.decode(raw)
    except RecursionError as error:
        raise ValueError(str(error)) from None

"""What nodes say to each other about slots: who is there, who owns what, states and what changes in them.

A node is addressed by its **store**, a number that its disk got when it was made; an **incarnation** is a store in one
life of its broker (`vmq.clustering.slots.words`). A record is a key and a value of a slot's state, or its end.
"""

from typing import Annotated

from msgspec import Meta, Struct

from vmq.clustering.messages.base import NodeMessage

Number = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
SlotNumber = Annotated[int, Meta(ge=0, lt=1 << 16)]
#: Epoch, and the incarnation that owns the slot in it.
LineageOf = tuple[Number, Number]
#: The version of each lineage up to which a state contains it.
Included = Annotated[list[tuple[LineageOf, Number]], Meta(max_length=10_000)]
#: A key of the state, and its value; None: it is deleted.
Record = tuple[Annotated[bytes, Meta(max_length=140_000)], bytes | None]
Records = Annotated[list[Record], Meta(max_length=100_000)]


class SlotView(Struct, array_like=True, frozen=True, order=True):
    """Who has a slot: of two views the greater is the newer. `number` counts the choices of followers in an epoch."""

    epoch: Number = 0
    owner: Number = 0
    number: Number = 0
    followers: Annotated[tuple[Number, ...], Meta(max_length=16)] = ()

    @property
    def lineage(self) -> tuple[int, int]:
        return self.epoch, self.owner


class Beat(NodeMessage, frozen=True, tag=100):
    """I am there, in this incarnation, and hear these stores; `is_leaving`: give me no slots."""

    incarnation: Number
    hears: Annotated[list[Number], Meta(max_length=10_000)]
    is_leaving: bool = False
    #: The greatest stamp that the sender knows of.
    clock: Number = 0
    #: Milliseconds by the sender's own clock.
    now: Number = 0


class SlotViews(NodeMessage, frozen=True, tag=101):
    """Who has which slots, as far as the sender knows."""

    views: Annotated[list[tuple[SlotNumber, SlotView]], Meta(max_length=10_000)]


class AskFork(NodeMessage, frozen=True, tag=102):
    """An owner asks: do you have any state of this slot that mine does not include?"""

    slot: SlotNumber
    view: SlotView
    included: Included


class NoFork(NodeMessage, frozen=True, tag=103):
    """None; and I accept your lineage. What I have is exactly version `version` of `lineage` (0: nothing is whole)."""

    slot: SlotNumber
    accepted: LineageOf
    lineage: LineageOf
    version: Number
    #: The lineage of which it had all that was safe when it learnt of this one; epoch 0: it cannot say.
    current: LineageOf = (0, 0)


class StatePart(NodeMessage, frozen=True, tag=104):
    """A part of a whole state at a version of a lineage: for a new follower, or a fork for the owner.

    Parts come in order, from 0; the first of a fork tells that it is one.
    """

    slot: SlotNumber
    view: SlotView
    lineage: LineageOf
    version: Number
    index: Number
    is_last: bool
    is_fork: bool
    records: Records
    #: Of a fork, as in `NoFork`.
    current: LineageOf = (0, 0)


class SlotRecords(NodeMessage, frozen=True, tag=105):
    """What the owner changed behind version `after` of its lineage, up to `version`."""

    slot: SlotNumber
    view: SlotView
    after: Number
    version: Number
    records: Records
    #: Behind version 0: the state that the lineage began from. Who has exactly this, goes on from it.
    base: tuple[LineageOf, Number] | None = None
    #: Up to this version everything is safe.
    safe: Number = 0


class SlotStored(NodeMessage, frozen=True, tag=106):
    """Everything up to this version is on the follower's disk; not `is_whole`: since it became follower."""

    slot: SlotNumber
    lineage: LineageOf
    version: Number
    is_whole: bool


class ForkIncluded(NodeMessage, frozen=True, tag=107):
    """The owner's state, safe, includes this. Who is neither owner nor follower deletes what it has of it."""

    slot: SlotNumber
    view: SlotView
    included: Included


class TakeTurn(NodeMessage, frozen=True, tag=108):
    """Handover by plan: the owner asks a whole follower to take over."""

    slot: SlotNumber
    view: SlotView

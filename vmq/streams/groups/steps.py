"""Commits that publish: the cursors of a group move and messages go out, both or neither.

The messages lie on the disk of the member's node before anybody is asked. One entry of the groups' log moves the
cursors and says that the step is accepted; from then on the node publishes, whenever it is there. A refusal is in the
log, too: a node asks until it is answered, after a restart as well, and no coordinator takes back what one before it
said. Steps of a store are decided in their order, so the last one says which of them are.

Another host has the messages, too. When the store that staged them is lost that host asks for a step of its own, which
takes the place of the lost one: accepted if that was, and from then on the lost one is not, whoever asks for it.
"""

from collections.abc import Sequence
from typing import Annotated, Final, NamedTuple

from msgspec import Meta, Struct

_Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Partition = Annotated[int, Meta(ge=0, lt=1024)]
_Name = Annotated[str, Meta(min_length=1, max_length=100)]

#: The name of a store: a node, as long as it has its disk. How a step is called in it: start and number, which rise.
StoreName = Annotated[str, Meta(min_length=1, max_length=300)]
StepNumber = tuple[_Count, _Count]
#: Steps that one node asks for at a time, and stores of which a group keeps the last.
MOST_STEPS: Final = 1000
MOST_STORES: Final = 1024


class StepMove(Struct, array_like=True, frozen=True):
    """A partition that a member has: its cursor moves from an offset to another."""

    partition: _Partition
    generation: _Count
    since: _Count
    to: _Count


class PublishStep(Struct, array_like=True, frozen=True):
    """A member publishes what comes of these rows."""

    store: StoreName
    number: StepNumber
    member: _Name
    moves: Annotated[list[StepMove], Meta(min_length=1, max_length=1024)]
    #: Whose disk is lost, and which of its steps is published instead, if that was accepted: no cursor moves with it.
    takes_over: tuple[StoreName, StepNumber] | None = None

    def is_named(self, store: str, number: StepNumber) -> bool:
        """Whether it is that step of that store."""
        return (self.store, self.number) == (store, number)


class StoreSteps(NamedTuple):
    """What was decided of a store: the last step, and those that are accepted and may not be published yet."""

    last: StepNumber = (0, 0)
    accepted: tuple[StepNumber, ...] = ()

    def with_next(self, number: StepNumber, *, is_accepted: bool) -> "StoreSteps":
        """One more is decided."""
        return StoreSteps(number, (*self.accepted, number) if is_accepted else self.accepted)

    def without(self, number: StepNumber) -> "StoreSteps":
        """A step is somebody else's, or refused."""
        kept = tuple(each for each in self.accepted if each != number)
        return StoreSteps(max(self.last, number), kept)

    def since(self, oldest: StepNumber) -> "StoreSteps":
        """Nobody asks for what comes before a step."""
        if not self.accepted or self.accepted[0] >= oldest:
            return self
        return StoreSteps(self.last, tuple(each for each in self.accepted if each >= oldest))


class StoreRow(Struct, array_like=True, frozen=True):
    """The steps of a store, as rows of the log have them."""

    store: StoreName
    last: StepNumber
    accepted: Annotated[list[StepNumber], Meta(max_length=MOST_STEPS)]


class DecidedStep(Struct, array_like=True, frozen=True):
    """What becomes of a step."""

    store: StoreName
    number: StepNumber
    is_accepted: bool


#: By store.
Steps = dict[str, StoreSteps]


def decided_of(known: Steps | None, asked: Sequence[PublishStep]) -> list[DecidedStep]:
    """Those of some steps that are decided; of a group that is not known all are refused."""
    if known is None:
        return [DecidedStep(each.store, each.number, False) for each in asked]
    found: list[DecidedStep] = []
    for each in asked:
        steps = known.get(each.store, StoreSteps())
        if each.number <= steps.last:
            found.append(DecidedStep(each.store, each.number, each.number in steps.accepted))
    return found

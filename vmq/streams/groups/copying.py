"""What nodes say to each other of commits that publish: another host has what one has staged, until it is published."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from vmq.streams.groups.steps import StepNumber, StoreName

_Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Query = Annotated[str, Meta(pattern=r"^members\.[0-9a-f]{32}\Z")]
_File = Annotated[str, Meta(pattern=r"^\d{1,19}-\d{1,19}-\d{1,19}\.arrow\Z")]

#: Bytes that one message has of files, about.
PIECE: Final = 1 << 19


class CopyPiece(Struct, array_like=True, frozen=True):
    """Bytes of a file."""

    name: _File
    offset: _Count
    data: bytes


class CopyStep(Struct, tag=7, array_like=True, frozen=True):
    """Keep this of a step. `state`: what is noted of it, once all of its files are there, which have these sizes."""

    question: _Count
    query: _Query
    pieces: Annotated[list[CopyPiece], Meta(max_length=100_000)]
    sizes: Annotated[list[tuple[_File, _Count]], Meta(max_length=100_000)] = []
    state: bytes = b""


class StepCopied(Struct, tag=8, array_like=True, frozen=True):
    """It is kept, or is not, for this reason."""

    question: _Count
    error: Annotated[str, Meta(max_length=1000)] = ""


class StepEnds(Struct, tag=9, array_like=True, frozen=True):
    """A step is published, or refused: it needs to be kept no more."""

    query: _Query
    store: StoreName
    number: StepNumber


class IsStepNeeded(Struct, tag=10, array_like=True, frozen=True):
    """Is it still to be kept? There is no answer if it is."""

    query: _Query
    store: StoreName
    number: StepNumber


#: What is not the coordinator's matter.
Copying = CopyStep | StepCopied | StepEnds | IsStepNeeded

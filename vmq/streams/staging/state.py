"""What is noted of a query's batches: the last one, the one that is being published, and the one that is decided on."""

from pathlib import Path
from typing import Final

import msgspec
from vmq_hooks.replacing import replace_file

from vmq.streams.groups.records import GroupKey
from vmq.streams.groups.steps import PublishStep
from vmq.streams.log.errors import StreamError

STATE: Final = "state.json"

#: Stream -> partition -> the offset behind its last row.
Marks = dict[str, dict[int, int]]


class StagedCursor(msgspec.Struct, frozen=True):
    """A cursor that moves with a batch: whose it is, where it is by partition, and how far it goes in some.

    `stream`: as `StreamRef.text` says it.
    """

    owner: str
    name: str
    stream: str
    positions: dict[int, int]
    moved: dict[int, int]


class StagedStep(msgspec.Struct, frozen=True):
    """What the coordinator of a group decides on together with a batch. `keeper`: the node that has it, too, if any."""

    key: GroupKey
    step: PublishStep
    keeper: str = ""


class StagingError(StreamError):
    """Parts cannot be staged or committed; the text says why."""


class BusyError(StagingError):
    """A batch cannot be published now; the same call may succeed later."""


class Decided(msgspec.Struct):
    """A batch that is being published, its files, where streams ended before, and when it was staged (microseconds)."""

    batch: int
    parts: list[str]
    marks: Marks = {}
    cursor: StagedCursor | None = None
    step: StagedStep | None = None
    at: int = 0


class StagedState(msgspec.Struct):
    """`state.json`: the last batch, the one that is being published, and the one that waits for a decision."""

    last: int
    decided: Decided | None
    asked: Decided | None = None

    def has(self, batch: int) -> bool:
        """Whether the parts of a batch are needed."""
        return any(each is not None and each.batch == batch for each in (self.decided, self.asked))

    def needed(self) -> list[str]:
        """The files that are."""
        both = self.decided, self.asked
        return [name for each in both if each is not None for name in each.parts]


#: Made once, when nobody else does: two threads at once that have msgspec learn a form crash.
_STATE: Final = msgspec.json.Decoder(StagedState)
DECIDED: Final = msgspec.json.Decoder(Decided)


def load_state(folder: Path) -> StagedState:
    """What is noted of a query.

    Raises:
        StagingError: the file cannot be used.
    """
    try:
        return _STATE.decode((folder / STATE).read_bytes())
    except FileNotFoundError:
        return StagedState(-1, None)
    except (msgspec.MsgspecError, OSError) as error:
        raise StagingError(f"{folder / STATE} cannot be used: {error}") from None


def read_state(folder: Path) -> tuple[int, tuple[int, list[str]] | None]:
    """A query's last batch (-1: none), and the batch that is being published, with its files.

    Raises:
        StagingError: the file cannot be used.
    """
    plain = load_state(folder)
    decided = plain.decided
    return plain.last, None if decided is None else (decided.batch, decided.parts)


def write_state(folder: Path, state: StagedState) -> None:
    """Keeps the state, in one step, on disk."""
    replace_file(folder / STATE, msgspec.json.encode(state))

"""Where readers of history are, and the cluster as one that knows it of readers at any node."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, Protocol

from vmq.streams.definition import StreamRef


class CursorKey(NamedTuple):
    """Whose cursor it is, and which of his."""

    owner: str
    name: str


class Place(NamedTuple):
    """Where a reader is, by partition; and how often what comes next was sent, and never acknowledged."""

    positions: Mapping[int, int]
    deliveries: Mapping[int, int]


NOWHERE: Final = Place({}, {})


class FoundCursor(NamedTuple):
    """Where a cursor is, as a cluster has it; and whether it was this node that said so last, and so has it newer."""

    place: Place
    is_own: bool


#: A cursor, the stream that it is of (`StreamRef.text`), and where it is.
Kept = tuple[CursorKey, str, Place]


class CursorError(Exception):
    """A cursor cannot be had; the text says why."""


class SharedCursors(Protocol):
    """The cursors of a cluster, as one of its nodes knows them. Everything here is called in the event loop."""

    #: Told of a cursor by which a client of another node, which is named, goes on.
    on_taken: Callable[[CursorKey, str], None]
    #: Told of a cursor that is needed no more.
    on_forgotten: Callable[[CursorKey], None]

    def find(self, key: CursorKey, stream: StreamRef) -> FoundCursor | None:
        """Where a cursor is in its stream, as this node has heard."""

    def knows(self, key: CursorKey) -> bool:
        """Whether there is such a cursor."""

    def count(self, owner: str) -> int:
        """How many somebody has."""

    def take(self, kept: Kept) -> None:
        """A client of this node reads by a cursor from now on, and no other one any more."""

    def keep(self, moved: Iterable[Kept]) -> None:
        """Cursors have moved."""

    def leave(self, kept: Kept) -> None:
        """Nobody of this node reads by a cursor any more."""

    def forget(self, key: CursorKey) -> None:
        """A cursor is needed no more."""

    def sweep(self) -> None:
        """Cursors that nobody has used for long go."""

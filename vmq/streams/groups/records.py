"""How far groups are, as the cluster keeps it: rows of a replicated log, and what they make."""

from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta, Struct

from vmq.streams.groups.steps import MOST_STORES, Steps, StoreRow, StoreSteps

#: How long a cursor that nobody uses is kept, in milliseconds, and after what time one in use is written again.
KEPT: Final = 7 * 86_400_000
FRESH: Final = 3_600_000

_Name = Annotated[str, Meta(max_length=100)]
#: Stream, filter and expression, parted by NUL.
_Reads = Annotated[str, Meta(max_length=80_000)]
#: As `StreamRef.text` says it.
StreamId = Annotated[str, Meta(max_length=100)]
_Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Numbers = Annotated[
    list[tuple[Annotated[int, Meta(ge=0, lt=1024)], _Count]], Meta(max_length=1024)
]


class GroupKey(NamedTuple):
    """A group, and what it reads: stream, filter and expression, parted by NUL.

    On one cursor a member of `a/#` would skip the rows of `b/#` for ever.
    """

    group: str
    reads: str


class GroupPlace(NamedTuple):
    """Where a group is, by partition; how often what comes next was sent and never acknowledged."""

    positions: dict[int, int]
    deliveries: dict[int, int]
    #: In which a member has said so last: what is said in an earlier one comes late.
    generations: dict[int, int]
    #: When it was used, in milliseconds since 1970.
    used: int
    #: What was decided of commits that publish.
    steps: Steps
    #: Which stream of the name that is in, by its id; "": versions before this one kept it.
    stream: str = ""

    def is_of(self, stream: str) -> bool:
        """Whether it is a place in this stream; a node of before that does not say which one it reads."""
        if not stream or self.stream == stream:
            return True
        return not self.stream and made_at(stream) <= self.used


class PutPlace(Struct, tag=1, array_like=True, frozen=True):
    """A group is here."""

    group: _Name
    reads: _Reads
    used: _Count
    positions: _Numbers
    deliveries: _Numbers
    generations: _Numbers
    steps: Annotated[list[StoreRow], Meta(max_length=MOST_STORES)] = []
    stream: StreamId = ""


class ForgetPlace(Struct, tag=2, array_like=True, frozen=True):
    """A group is needed no more."""

    group: _Name
    reads: _Reads


class Confirm(Struct, tag=3, array_like=True, frozen=True):
    """Says nothing: that it is committed says that its leader led until then."""


class BeginAll(Struct, tag=4, array_like=True, frozen=True):
    """From here on all places are written again; once `EndAll` is there, nobody needs what comes before."""


class EndAll(Struct, tag=5, array_like=True, frozen=True):
    """All are written."""


Row = PutPlace | ForgetPlace | Confirm | BeginAll | EndAll

_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final[msgspec.msgpack.Decoder[Row]] = msgspec.msgpack.Decoder(Row)


def encode_row(row: Row) -> bytes:
    """A row as the log has it."""
    return _ENCODER.encode(row)


def decode_row(raw: bytes) -> Row:
    """A row of the log.

    Raises:
        ValueError: it is none.
    """
    return _DECODER.decode(raw)


def place_row(key: GroupKey, place: GroupPlace) -> PutPlace:
    """The row that says where a group is."""
    steps = [
        StoreRow(store, each.last, list(each.accepted))
        for store, each in sorted(place.steps.items())
    ]
    return PutPlace(
        *key,
        place.used,
        pairs(place.positions),
        pairs(place.deliveries),
        pairs(place.generations),
        steps,
        place.stream,
    )


def made_at(stream: str) -> int:
    """When a stream was made, by its id, in milliseconds since 1970; 0: it has no id that tells."""
    try:
        return int(stream.partition("-")[0], 16)
    except ValueError:
        return 0


def pairs(numbers: dict[int, int]) -> list[tuple[int, int]]:
    """A mapping as rows and messages have it."""
    return sorted(numbers.items())


class GroupPlaces:
    """What the rows make, the same on each replica."""

    def __init__(self, places: dict[GroupKey, GroupPlace] | None = None) -> None:
        self.places: dict[GroupKey, GroupPlace] = {} if places is None else places

    def apply(self, rows: Iterable[Row]) -> None:
        """Rows are committed."""
        for row in rows:
            match row:
                case PutPlace():
                    numbers = dict(row.positions), dict(row.deliveries), dict(row.generations)
                    steps = {
                        each.store: StoreSteps(each.last, tuple(each.accepted))
                        for each in row.steps
                    }
                    place = GroupPlace(*numbers, row.used, steps, row.stream)
                    self.places[GroupKey(row.group, row.reads)] = place
                case ForgetPlace():
                    self.places.pop(GroupKey(row.group, row.reads), None)

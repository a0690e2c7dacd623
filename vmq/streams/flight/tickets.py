"""What Flight clients say in tickets, descriptors and actions: small JSON texts, checked before anything is done."""

from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from vmq.streams.log.conditions import Condition
from vmq.streams.log.errors import StreamError

T = TypeVar("T", bound=Struct)

#: Longer ones are not even parsed.
LONGEST: Final = 65_536

#: Seconds that a call may wait for rows.
LONGEST_WAIT: Final = 30.0

_Name = Annotated[str, Meta(min_length=1, max_length=100)]
_Offset = Annotated[int, Meta(ge=0, le=1 << 62)]
_Wait = Annotated[float, Meta(ge=0, le=LONGEST_WAIT)]
_Columns = Annotated[list[Annotated[str, Meta(max_length=100)]], Meta(min_length=1, max_length=50)]
_Filter = Annotated[str, Meta(min_length=1, max_length=32_768)]


class BadTicketError(StreamError):
    """A ticket, descriptor or action cannot be understood."""


class Query(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is wanted of a stream: a descriptor's command."""

    stream: _Name
    columns: _Columns | None = None
    filter: _Filter | None = None
    where: Annotated[list[Condition], Meta(max_length=50)] = []
    limit: _Offset | None = None


class Ticket(Query, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What is wanted of one partition: rows from offset `start` up to `end`, or to the present end.

    `stream_id`: which stream of that name the offsets are of; another one is refused.
    `wait`: seconds to wait for a row, should there be none at `start` yet. `packed`: Arrow streams as
    they lie in the segments instead of rows.
    """

    stream_id: Annotated[str, Meta(max_length=100)] = ""
    partition: Annotated[int, Meta(ge=0)] = 0
    start: _Offset | Literal["earliest", "latest"] = "earliest"
    end: _Offset | None = None
    wait: _Wait = 0.0
    packed: bool = False


class FileQuery(Ticket, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The body of the action `file`: the ticket of a get, and the machine's boot id.

    Only who runs on a machine knows that.
    """

    machine: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]


class OffsetsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of the actions `earliest` and `latest`.

    `after` and `wait`, for `latest`: wait until one of these partitions ends behind the given offset. `filter`: for who
    may read only these topics.
    """

    stream: _Name
    filter: _Filter | None = None
    after: dict[int, _Offset] | None = None
    wait: _Wait = 0.0


class TimeQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of the action `by-timestamp`: `time` in microseconds since 1970, `filter` as in `OffsetsQuery`."""

    stream: _Name
    time: _Offset
    filter: _Filter | None = None


class StreamsQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The body of the actions `streams` and `ids`; `filter`: also those of which the caller may read these topics."""

    filter: _Filter | None = None


_DECODERS: Final[dict[type[Struct], msgspec.json.Decoder[Any]]] = {}


def understand(*kinds: type[Struct]) -> None:
    """To be said where they are defined: two threads at once that have msgspec learn a form crash the process."""
    _DECODERS.update({kind: msgspec.json.Decoder(kind) for kind in kinds})


understand(Query, Ticket, FileQuery, OffsetsQuery, TimeQuery, StreamsQuery)


def decode(raw: bytes, kind: type[T], what: str) -> T:
    """What a client says.

    Raises:
        BadTicketError: it cannot be understood; the text says what is accepted.
    """
    if len(raw) > LONGEST:
        raise BadTicketError(f"the {what} has {len(raw)} bytes; accepted: at most {LONGEST}")
    try:
        found: T = _DECODERS[kind].decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        fields = ", ".join(field.encode_name for field in msgspec.structs.fields(kind))
        raise BadTicketError(
            f"the {what} cannot be understood: {error}; accepted: a JSON object of {fields}"
        ) from None
    return found


def encode(value: Struct) -> bytes:
    """What a client says, as JSON."""
    return msgspec.json.encode(value)

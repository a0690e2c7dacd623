"""Values of payloads and topics as columns of their own: null where they are missing, or do not fit."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

from vmq.config.columns import TypedColumn

ARROW: Final = {
    "string": pa.string(),
    "bool": pa.bool_(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_BITS: Final = {"int32": 31, "int64": 63}
#: Types that msgspec takes as the columns do, or refuses where they may not.
_PLAIN: Final[dict[str, Any]] = {
    "string": str | None,
    "bool": bool | None,
    "int32": int | None,
    "int64": int | None,
    "double": float | None,
}
#: What reading text as JSON raises. A few thousand brackets are deeper than the interpreter's stack.
_UNREADABLE: Final = (ValueError, RecursionError)
#: What Arrow says of a number that its type has no room for.
_TOO_LARGE: Final = (pa.ArrowInvalid, OverflowError)
#: Rows whose payloads are read together: one that does not fit has those read one by one.
_TOGETHER: Final = 1024
#: Up to here a float stands for one whole number alone.
_EXACT: Final = float((1 << 53) - 1)
#: What is not there, beside what is null.
_NOTHING: Final = object()


class Unfit(msgspec.Struct):
    """What a column could not take: rows without it, and rows in which it has another type."""

    missing: int = 0
    unfit: int = 0


class Extraction:
    """Makes typed columns of rows, and counts what does not fit.

    Args:
        columns: those that are wanted.
    """

    def __init__(self, columns: Sequence[TypedColumn]) -> None:
        self.columns = tuple(columns)
        self.schema = typed_schema(columns)
        #: By column.
        self.counts = {each.name: Unfit() for each in columns}
        #: Rows whose payload is no JSON, where a column is of the payload.
        self.invalid = 0
        self.reads_payload = any(not each.level for each in columns)
        self._decode = _decoder(columns)
        self._of_payload = [each for each in columns if not each.level]
        self._members = _members(self._of_payload)

    def apply(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """The columns of rows that have `topic`, and `payload` if one of them is of it."""
        made: dict[str, list[pa.Array]] = {each.name: [] for each in self.columns}
        if self.reads_payload:
            payloads = rows.column("payload")
            for start in range(0, max(1, len(payloads)), _TOGETHER):
                part = payloads.slice(start, _TOGETHER).to_pylist()
                for name, found in (self._all_fit(part) or self._each(part)).items():
                    made[name].append(found)
        for column in self.columns:
            if column.level:
                made[column.name].append(self._of_topic(column, rows.column("topic")))
        return [found[0] if len(found) == 1 else pa.concat_arrays(found) for found in made.values()]

    def _all_fit(self, payloads: list[bytes]) -> dict[str, pa.Array] | None:
        """The columns of payloads whose members have the types of their columns; None: some have not."""
        members = self._members
        if members is None:
            return None
        try:
            found = list(map(members.decode, payloads))
            made = {
                each.name: pa.array(map(members.of(each), found), ARROW[each.type])
                for each in self._of_payload
                if each.name in members.plain
            }
        except (*_UNREADABLE, *_TOO_LARGE):
            return None
        for name, values in made.items():
            self.counts[name].missing += values.null_count
        for each in self._of_payload:
            if each.name not in made:
                values = map(members.of(each), found)
                made[each.name] = self._fitted(each, [_at(one, each.path[1:]) for one in values])
        return made

    def _each(self, payloads: list[bytes]) -> dict[str, pa.Array]:
        """The columns of any payloads."""
        values = self._values(payloads)
        return {
            each.name: self._fitted(each, _walk(values, each.path)) for each in self._of_payload
        }

    def _values(self, payloads: Iterable[bytes]) -> list[Any]:
        decode = self._decode
        values = []
        for payload in payloads:
            try:
                values.append(decode(payload))
            except _UNREADABLE as error:
                # What is no object is refused as soon as that is seen: it may be JSON.
                is_other = isinstance(error, msgspec.ValidationError) and is_json(payload)
                self.invalid += not is_other
                values.append(_NOTHING)
        return values

    def _fitted(self, column: TypedColumn, values: Iterable[Any]) -> pa.Array:
        fit = _FITS[column.type]
        counts = self.counts[column.name]
        found: list[Any] = []
        for value in values:
            if value is _NOTHING or value is None:
                counts.missing += 1
                found.append(None)
                continue
            fitting = fit(value)
            if fitting is None:
                counts.unfit += 1
            found.append(fitting)
        return pa.array(found, ARROW[column.type])

    def _of_topic(self, column: TypedColumn, topics: pa.Array) -> pa.Array:
        """A level of the topic: looked at once a topic."""
        encoded = topics.dictionary_encode()
        parse = _PARSES[column.type]
        at = column.level - 1
        found: list[Any] = []
        lost: list[tuple[int, bool]] = []
        for number, topic in enumerate(encoded.dictionary.to_pylist()):
            levels = topic.split("/")
            is_there = at < len(levels)
            value = parse(levels[at]) if is_there else None
            if value is None:
                lost.append((number, is_there))
            found.append(value)
        if lost:
            counts = self.counts[column.name]
            rows = Counter(encoded.indices.to_pylist())
            for number, is_there in lost:
                if is_there:
                    counts.unfit += rows[number]
                else:
                    counts.missing += rows[number]
        return pa.array(found, ARROW[column.type]).take(encoded.indices)


_read_any: Final = msgspec.json.Decoder().decode


class _Members(NamedTuple):
    """Reads payloads into objects that have a member for each one that is wanted."""

    decode: Callable[[bytes], Any]
    #: By member of the payload: how it is called there.
    places: dict[str, str]
    #: Columns whose values msgspec has checked.
    plain: frozenset[str]

    def of(self, column: TypedColumn) -> Callable[[Any], Any]:
        """Gets the member that a column begins with."""
        return attrgetter(self.places[str(column.path[0])])


def _members(columns: Sequence[TypedColumn]) -> _Members | None:
    """For columns of members of the payload; None: one is of the payload itself."""
    if not columns or any(not each.path or isinstance(each.path[0], int) for each in columns):
        return None
    by_member: dict[str, list[TypedColumn]] = {}
    for each in columns:
        by_member.setdefault(str(each.path[0]), []).append(each)
    fields: list[tuple[str, Any, Any]] = []
    places, plain, names = {}, set(), {}
    for number, (member, of_it) in enumerate(sorted(by_member.items())):
        place = f"m{number}"
        places[member], names[place] = place, member
        kinds = {each.type if len(each.path) == 1 else "" for each in of_it}
        kind = _PLAIN.get(kinds.pop()) if len(kinds) == 1 else None
        fields.append((place, Any, _NOTHING) if kind is None else (place, kind, None))
        if kind is not None:
            plain |= {each.name for each in of_it}
    wanted = msgspec.defstruct("Members", fields, rename=names.get, gc=False)
    return _Members(msgspec.json.Decoder(wanted).decode, places, frozenset(plain))


def typed_schema(columns: Sequence[TypedColumn]) -> pa.Schema:
    """The schema of typed columns."""
    return pa.schema([pa.field(each.name, ARROW[each.type]) for each in columns])


def _decoder(columns: Sequence[TypedColumn]) -> Callable[[bytes], Any]:
    """Decodes as little of a payload as the columns need."""
    paths = [each.path for each in columns if not each.level]
    if not paths or any(not path or isinstance(path[0], int) for path in paths):
        return msgspec.json.Decoder().decode
    members = sorted({str(path[0]) for path in paths})
    fields = [(f"m{number}", Any, _NOTHING) for number in range(len(members))]
    names = {f"m{number}": member for number, member in enumerate(members)}
    wanted = msgspec.defstruct("Payload", fields, rename=names.get)
    decoder = msgspec.json.Decoder(wanted)
    places = {member: f"m{number}" for number, member in enumerate(members)}

    def decode(payload: bytes) -> Any:
        found = decoder.decode(payload)
        return {member: getattr(found, place) for member, place in places.items()}

    return decode


def is_json(payload: bytes) -> bool:
    """Whether a payload is JSON, whatever it says."""
    try:
        _read_any(payload)
    except _UNREADABLE:
        return False
    return True


def _walk(values: list[Any], path: tuple[str | int, ...]) -> Iterable[Any]:
    """What a path leads to in each of some values."""
    if len(path) == 1 and isinstance(path[0], str):
        member = path[0]
        return [
            value.get(member, _NOTHING) if isinstance(value, dict) else _NOTHING for value in values
        ]
    return [_at(value, path) for value in values]


def _at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        if isinstance(step, str):
            value = value.get(step, _NOTHING) if isinstance(value, dict) else _NOTHING
        elif isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return _NOTHING
    return value


# What each type takes; None: it does not fit.


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _truth(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _double(value: Any) -> float | None:
    if isinstance(value, float):
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _whole(bits: int) -> Callable[[Any], int | None]:
    limit = 1 << bits

    def whole(value: Any) -> int | None:
        if isinstance(value, float) and value.is_integer():
            if abs(value) > _EXACT:
                return None
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not -limit <= value < limit:
            return None
        return value

    return whole


def _time(value: Any) -> datetime | None:
    if not isinstance(value, str) or len(value) > 40:
        return None
    try:
        found = datetime.fromisoformat(value)
        return None if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _number(text: str) -> float | int | None:
    try:
        found: Any = msgspec.json.decode(text)
    except _UNREADABLE:
        return None
    return found if isinstance(found, int | float) else None


_FITS: Final[dict[str, Callable[[Any], Any]]] = {
    "string": _text,
    "bool": _truth,
    "int32": _whole(_BITS["int32"]),
    "int64": _whole(_BITS["int64"]),
    "double": _double,
    "timestamp": _time,
}
_PARSES: Final[dict[str, Callable[[str], Any]]] = {
    "string": _text,
    "bool": {"true": True, "false": False}.get,
    "int32": lambda text: _FITS["int32"](_number(text)),
    "int64": lambda text: _FITS["int64"](_number(text)),
    "double": lambda text: _double(_number(text)),
    "timestamp": _time,
}

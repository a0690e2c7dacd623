"""Typed columns of a stream: what `[streams.NAME.schema]` says, a column a line.

temp = "double"                  the member `temp` of the payload, which is a JSON object
humidity = "double air.humidity" a member of a member; `readings[0].value` for one of an array
value = "double $"               the payload itself is the value
device = "string level:2"        the second level of the topic

A JSON schema of payloads gives columns, too: its properties, those of objects within it by path.

    {"type": "object", "properties": {"temp": {"type": "number"}, "air": {"type": "object", "properties": ...}}}

`number` is double, `integer` int64, `boolean` bool, `string` string, or timestamp where its format is `date-time`. What
has no column type (arrays, several types, references) is passed over: readers still have the payload.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

#: Types as Arrow names them; those of Spark and DuckDB follow.
TYPES: Final = ("string", "bool", "int32", "int64", "double", "timestamp")
MOST_COLUMNS: Final = 50
COLUMN_FORMS: Final = (
    'columns by name: "TYPE" (a member of the JSON payload of that name), "TYPE a.b[0]" (a path in it), "TYPE $" '
    '(the payload itself) or "TYPE level:N" (a level of the topic), TYPE one of ' + ", ".join(TYPES)
)
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
_LONGEST_FILE: Final = 1 << 20
_DEEPEST: Final = 8
SCHEMA_FILE_FORMS: Final = 'the path of a JSON schema of an object, with "properties"'
_JSON_TYPES: Final = {"number": "double", "integer": "int64", "boolean": "bool", "string": "string"}
_PLAIN: Final = re.compile(r"[^.\[\]$]+\Z")
_LEVEL: Final = re.compile(r"level:([1-9][0-9]{0,2})\Z")
_STEP: Final = re.compile(r"([^.\[\]$]+)|\[([0-9]{1,6})\]")
_LONGEST_PATH: Final = 512
#: Columns that every stream has.
FIXED: Final = frozenset(
    [
        "topic",
        "payload",
        "qos",
        "retain",
        "timestamp",
        "client_id",
        "key",
        "headers",
        "stream",
        "partition",
        "offset",
    ]
)


class TypedColumn(NamedTuple):
    """A typed column: a level of the topic (from 1), or the members and places that lead to it in the payload."""

    name: str
    type: str
    level: int
    path: tuple[str | int, ...]


def read_column(name: str, text: str) -> TypedColumn:
    """A column of the configuration.

    Raises:
        ValueError: with what is wrong.
    """
    if not _NAME.match(name):
        raise ValueError(
            f"{name!r:.80} is no name for a column; accepted: lower-case letters, digits and _"
        )
    if name in FIXED:
        raise ValueError(f"every stream has a column {name!r}; accepted: another name")
    kind, _, path = text.partition(" ")
    if kind not in TYPES:
        raise ValueError(f"{name}: there is no type {kind!r:.80}; accepted: {COLUMN_FORMS}")
    level = _LEVEL.match(path)
    if level is not None:
        return TypedColumn(name, kind, int(level[1]), ())
    if path == "$":
        return TypedColumn(name, kind, 0, ())
    return TypedColumn(name, kind, 0, read_path(name, path.removeprefix("$.") or name))


def read_path(name: str, path: str) -> tuple[str | int, ...]:
    """The steps of a path.

    Raises:
        ValueError: it is none.
    """
    steps: list[str | int] = []
    at = 0
    while at < len(path) and len(path) <= _LONGEST_PATH:
        if steps and path[at] == ".":
            at += 1
        elif steps and path[at] != "[":
            break
        found = _STEP.match(path, at)
        if found is None:
            break
        steps.append(found[1] if found[1] is not None else int(found[2]))
        at = found.end()
    if at < len(path) or path.endswith("."):
        raise ValueError(f"{name}: {path!r:.80} is no path; accepted: {COLUMN_FORMS}")
    return tuple(steps)


def read_columns(schema: Mapping[str, str]) -> list[TypedColumn]:
    """All columns of a stream.

    Raises:
        ValueError: with what is wrong.
    """
    if len(schema) > MOST_COLUMNS:
        raise ValueError(f"{len(schema)} columns; accepted: at most {MOST_COLUMNS}")
    return [read_column(name, text) for name, text in schema.items()]


def changed_types(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """What may not change: a column of another type is another column, for whoever has read it."""
    for name, text in after.items():
        was = before.get(name)
        if was is not None and was.partition(" ")[0] != text.partition(" ")[0]:
            yield f"column {name!r} is {was.partition(' ')[0]}; accepted: another name for one of another type"


def columns_of_file(path: Path) -> dict[str, str]:
    """The columns of a schema in a file, as `[streams.NAME.schema]` has them.

    Raises:
        ValueError: it cannot be read, is no such schema, or gives no column, or too many.
    """
    try:
        if path.stat().st_size > _LONGEST_FILE:
            raise ValueError(f"{path} has more than {_LONGEST_FILE} bytes")
        # A parser may ignore a byte order mark (RFC 8259, section 8.1); some editors write one.
        found = msgspec.json.decode(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    columns: dict[str, str] = {}
    for name, text in _columns(found, (), _DEEPEST):
        if name in columns:
            raise ValueError(f"{path}: two properties would be the column {name!r}")
        columns[name] = text
    if not columns:
        raise ValueError(f"{path} has no property that can be a column")
    try:
        read_columns(columns)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    return columns


def _columns(schema: Any, path: tuple[str, ...], deepest: int) -> Iterator[tuple[str, str]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or deepest == 0:
        return
    for member, each in properties.items():
        if not isinstance(each, dict) or not _PLAIN.match(member):
            continue
        there = (*path, member)
        kinds = each.get("type")
        kind, *others = [one for one in _listed(kinds) if one != "null"] or [None]
        if others:
            continue
        if kind == "object":
            yield from _columns(each, there, deepest - 1)
        elif kind in _JSON_TYPES:
            is_time = kind == "string" and each.get("format") == "date-time"
            text = "timestamp" if is_time else _JSON_TYPES[kind]
            yield _name_of(there), f"{text} {'.'.join(there)}"


def _listed(kinds: object) -> list[Any]:
    return kinds if isinstance(kinds, list) else [kinds]


def _name_of(path: tuple[str, ...]) -> str:
    """The name of a column: `airTemp` in `room` is `room_air_temp`."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", "_".join(path)).lower()
    name = re.sub(r"[^a-z0-9_]", "_", words)
    return name if re.match(r"[a-z_]", name) else f"_{name}"

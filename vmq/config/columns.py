"""Typed columns of a stream: what `[streams.NAME.schema]` says, a column a line.

temp = "double"                  the member `temp` of the payload, which is a JSON object
humidity = "double air.humidity" a member of a member; `readings[0].value` for one of an array
value = "double $"               the payload itself is the value
device = "string level:2"        the second level of the topic
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

#: Types as Arrow names them; those of Spark and DuckDB follow.
TYPES: Final = ("string", "bool", "int32", "int64", "double", "timestamp")
MOST_COLUMNS: Final = 50
COLUMN_FORMS: Final = (
    'columns by name: "TYPE" (a member of the JSON payload of that name), "TYPE a.b[0]" (a path in it), "TYPE $" '
    '(the payload itself) or "TYPE level:N" (a level of the topic), TYPE one of ' + ", ".join(TYPES)
)
_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}\Z")
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

"""Typed columns from a JSON schema of payloads: its properties, those of objects within it by path.

    {"type": "object", "properties": {"temp": {"type": "number"}, "air": {"type": "object", "properties": ...}}}

`number` is double, `integer` int64, `boolean` bool, `string` string, or timestamp where its format is `date-time`. What
has no column type (arrays, several types, references) is passed over: readers still have the payload.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from vmq.config.columns import read_columns

LONGEST: Final = 1 << 20
DEEPEST: Final = 8
FORMS: Final = 'the path of a JSON schema of an object, with "properties"'
_TYPES: Final = {"number": "double", "integer": "int64", "boolean": "bool", "string": "string"}
_PLAIN: Final = re.compile(r"[^.\[\]$]+\Z")


def columns_of_file(path: Path) -> dict[str, str]:
    """The columns of a schema in a file, as `[streams.NAME.schema]` has them.

    Raises:
        ValueError: it cannot be read, is no such schema, or gives no column, or too many.
    """
    try:
        if path.stat().st_size > LONGEST:
            raise ValueError(f"{path} has more than {LONGEST} bytes")
        found = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    columns: dict[str, str] = {}
    for name, text in _columns(found, (), DEEPEST):
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
        elif kind in _TYPES:
            is_time = kind == "string" and each.get("format") == "date-time"
            text = "timestamp" if is_time else _TYPES[kind]
            yield _name_of(there), f"{text} {'.'.join(there)}"


def _listed(kinds: object) -> list[Any]:
    return kinds if isinstance(kinds, list) else [kinds]


def _name_of(path: tuple[str, ...]) -> str:
    """The name of a column: `airTemp` in `room` is `room_air_temp`."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", "_".join(path)).lower()
    name = re.sub(r"[^a-z0-9_]", "_", words)
    return name if re.match(r"[a-z_]", name) else f"_{name}"

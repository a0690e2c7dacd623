"""Where in a nested value the mistake is: tables of tables, lists of tables.

The library names places as `$[...].topics[0]`, without the names of the tables. Whoever mends a file wants the key.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from types import UnionType
from typing import Annotated, Final, Union, get_args, get_origin

import msgspec
from msgspec import Struct
from msgspec.structs import FieldInfo

from vmq.config.text import accepted, toml_key

#: No option takes a larger whole number: the compiled core counts in 64 bits, and adds to what it is told.
LARGEST_NUMBER: Final = 1 << 60

#: Units that other brokers' options take; of ours none that is a number.
_SECONDS: Final = {"s": 1, "min": 60, "h": 3600, "d": 86_400}
_BYTES: Final = {
    letter + end: base**power
    for power, letter in enumerate("kmgt", 1)
    for end, base in (("", 1024), ("ib", 1024), ("b", 1000))
}
_WITH_UNIT: Final = re.compile(rf"(\d{{1,9}}) ?({'|'.join([*_SECONDS, *_BYTES])})", re.IGNORECASE)

#: Key, what is wrong, and the value there (UNSET: there is none).
Mistake = tuple[str, str, object]


def is_too_large(value: object) -> bool:
    """Whether this is a whole number that no option takes."""
    return isinstance(value, int) and value > LARGEST_NUMBER


def mistakes(key: str, value: object, kind: object) -> Iterator[Mistake]:
    """What is wrong with a value that the type of its option refuses; nothing if it takes it.

    Args:
        key: the dotted key of the value.
        value: as the file has it.
        kind: the type, with its annotation.
    """
    try:
        if is_too_large(msgspec.convert(value, kind)):
            yield key, f"{_expected(kind, None)}, at most {LARGEST_NUMBER}", value
    except msgspec.ValidationError as error:
        below = list(_below(key, value, _plain(kind)))
        yield from below or [(key, _expected(kind, error) + _in_numbers(value, kind), value)]


def struct_mistakes(
    prefix: str, value: Mapping[str, object], kind: type[Struct]
) -> Iterator[Mistake]:
    """What is wrong with a table that a Struct refuses.

    Args:
        prefix: the dotted key of the table.
        value: the table.
        kind: the Struct.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    found: list[Mistake] = []
    for name, each in value.items():
        key = f"{prefix}.{toml_key(name)}"
        field = fields.get(name)
        if field is None:
            found.append((key, f"unknown option; {_hint(name, fields)}", each))
        else:
            found += mistakes(key, each, field.type)
    for name, field in fields.items():
        if field.required and name not in value:
            what = "missing; " + _expected(field.type, None)
            found.append((f"{prefix}.{name}", what, msgspec.UNSET))
    yield from found or _together(prefix, value, kind)


def _together(prefix: str, value: Mapping[str, object], kind: type[Struct]) -> Iterator[Mistake]:
    """What is wrong with options of which each is right; the Struct's own check may say "OPTION: what"."""
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        words = _words(error)
        name, colon, rest = words.partition(": ")
        if colon and name in kind.__struct_fields__:
            yield f"{prefix}.{name}", rest, value.get(name, msgspec.UNSET)
        else:
            yield prefix, words, msgspec.UNSET


def _below(key: str, value: object, kind: object) -> Iterator[Mistake]:
    """The mistakes in the tables that a value consists of; nothing where it is none of tables."""
    if isinstance(kind, type) and issubclass(kind, Struct) and isinstance(value, Mapping):
        yield from struct_mistakes(key, value, kind)
        return
    arguments = get_args(kind)
    held = arguments[-2:-1] if arguments[-1:] == (...,) else arguments[-1:]
    if not held or not _has_tables(held[0]):
        return
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from mistakes(f"{key}.{toml_key(str(name))}", each, held[0])
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from mistakes(f"{key}[{number}]", each, held[0])


def _has_tables(kind: object) -> bool:
    plain = _plain(kind)
    if isinstance(plain, type) and issubclass(plain, Struct):
        return True
    return any(_has_tables(each) for each in get_args(plain) if each is not ...)


def _plain(kind: object) -> object:
    """A type without its annotation, and without None."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in {Union, UnionType}:
        others = [each for each in get_args(kind) if each is not type(None)]
        if len(others) == 1:
            return _plain(others[0])
    return kind


def _expected(kind: object, error: msgspec.ValidationError | None) -> str:
    plain = _plain(kind)
    try:
        return f"accepted: {accepted(kind)}"
    except KeyError:
        if isinstance(plain, type) and issubclass(plain, Struct):
            return f"accepted: a table with {', '.join(plain.__struct_fields__)}"
        # A type that our own options do not use; the library says it in its words.
        return _words(error) if error is not None else "see the plugin's documentation"


def _in_numbers(value: object, kind: object) -> str:
    """What a size or a time with a unit is in bytes or seconds, where a number is wanted."""
    found = _WITH_UNIT.fullmatch(value) if isinstance(value, str) else None
    if found is None or _plain(kind) not in (int, float):
        return ""
    number, unit = int(found[1]), found[2].lower()
    if unit in _SECONDS:
        return f"; without a unit, in seconds: {number * _SECONDS[unit]}"
    return f"; without a unit, in bytes: {number * _BYTES[unit]}"


def _words(error: msgspec.ValidationError) -> str:
    """What the library says, without the place."""
    return str(error).partition(" - at `")[0]


def _hint(key: str, fields: Mapping[str, FieldInfo]) -> str:
    close = difflib.get_close_matches(key, fields, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"accepted: {', '.join(fields)}" if fields else "the plugin has no options"

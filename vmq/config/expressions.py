"""Expressions that an operator writes: CEL (https://cel.dev), a part of it that ends soon.

Nothing is evaluated here. What loops over a list, and what matches patterns, takes a time that grows faster than the
message, so it is refused by its name: an expression is evaluated in the pass of the message.

Members of a JSON object become variables of their own: the library turns each value that an expression may look at into
one of its own, at some microseconds a member of an object. So `json.temp > 20.0` becomes `json__temp > 20.0`, and only
`temp` is read of the payload. What looks at the object in another way (`json`, `json["temp"]`, `has(json.temp)`, a
method of it) stays as it is.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

LONGEST: Final = 4096
#: What an expression may look at.
VARIABLES: Final = ("topic", "levels", "payload", "json", "qos", "retain", "client_id", "time")
#: Functions of CEL.
FUNCTIONS: Final = (
    *("bytes", "contains", "double", "duration", "endsWith", "getDate", "getDayOfMonth"),
    *("getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes"),
    *("getMonth", "getSeconds", "has", "int", "size", "startsWith", "string"),
    *("timestamp", "type", "uint"),
)
#: And our own: `level(2)` is the second level of the topic, "" if there is none.
LEVEL: Final = "level"

#: Of CEL, but not here: what loops or matches patterns. No plugin gives them back by their names.
_LOOPS: Final = frozenset({"all", "exists", "exists_one", "filter", "map", "matches"})

#: A text in an expression.
TEXT: Final = re.compile(
    r"""[rRbB]{0,2}(?:'''(?:.|\n)*?'''|\"""(?:.|\n)*?\"""|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*")"""
)
_CALL: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*\(")
_PLACE: Final = re.compile(r"<input>:(\d+):(\d+): ([^\n]*)")
_MEMBER: Final = re.compile(r"\w+\s*\.\s*([A-Za-z_][A-Za-z0-9_]*)(?![A-Za-z0-9_]|\s*\()")
_BEFORE: Final = re.compile(r"\.\s*\Z")
_HAS: Final = re.compile(r"\bhas\b")
#: What is not there.
_NOTHING: Final = object()


class CelError(ValueError):
    """No expression, or one that may not be; the text says where and what is known."""


def compiled(
    text: str, more: Collection[str] | None = (), variables: Collection[str] = VARIABLES
) -> Any:
    """The program of an expression, with `execute` and `variables`.

    Args:
        text: the expression.
        more: names of functions that plugins bring; None: that is not known yet, and any name may be one.
        variables: what it may look at.

    Raises:
        CelError: with column and reason.
    """
    from cel import compile as compile_text  # late: most brokers have no expressions

    if not text.strip():
        raise CelError("it is empty; accepted: an expression, as in json.temp > 20.0")
    if len(text.encode()) > LONGEST:
        raise CelError(f"it has more than {LONGEST} bytes")
    _check_calls(text, more)
    try:
        program = compile_text(text)
    except Exception as error:  # noqa: BLE001 - whatever the library raises
        raise CelError(_told(text, str(error))) from None
    for name in program.variables():
        if name not in variables:
            where = _column(text, rf"\b{re.escape(name)}\b")
            raise CelError(f"{where}: there is no {name}; known: {', '.join(variables)}")
    return program


def _check_calls(text: str, more: Collection[str] | None) -> None:
    bare = TEXT.sub(lambda found: "'" * len(found[0]), text)
    for found in _CALL.finditer(bare):
        name = found[1]
        if name in FUNCTIONS or name == LEVEL or name == "in":
            continue
        if name in _LOOPS or (more is not None and name not in more):
            known = ", ".join(sorted({*FUNCTIONS, LEVEL, *(more or ())} - _LOOPS))
            raise CelError(
                f"column {found.start() + 1}: there is no function {name}; known: {known}"
            )


def _told(text: str, error: str) -> str:
    """What the library says of a text, in one line."""
    found = _PLACE.search(error)
    if found is None:
        return " ".join(error.split())[:300]
    column = int(found[2])
    if column > len(text.rstrip()):
        return f"column {column}: it ends there, and is not complete"
    return f"column {column}: {found[3][:200]}"


def _column(text: str, pattern: str) -> str:
    bare = TEXT.sub(lambda found: "'" * len(found[0]), text)
    found = re.search(pattern, bare)
    return f"column {found.start() + 1}" if found else "column 1"


class ByMember(NamedTuple):
    """An expression that looks at members only: its text, and the member of each variable."""

    text: str
    members: Mapping[str, str]


def by_member(text: str, root: str) -> ByMember | None:
    """An expression with the members of a variable as variables.

    Without members where it does not look at that variable; None: it looks at it in another way.
    """
    members: dict[str, str] = {}
    parts: list[str] = []
    at = 0
    code = TEXT.sub(lambda found: " " * len(found[0]), text)
    found_at = [found.start() for found in re.finditer(rf"\b{root}\b", code)]
    if found_at and (f"{root}__" in code or "//" in code or _HAS.search(code)):
        return None
    for start in found_at:
        member = _MEMBER.match(code, start)
        if member is None or _BEFORE.search(code, 0, start):
            return None
        variable = f"{root}__{member[1]}"
        members[variable] = member[1]
        parts += (text[at:start], variable)
        at = member.end()
    return ByMember("".join([*parts, text[at:]]), members)


def all_by_member(texts: Iterable[str], root: str) -> list[ByMember] | None:
    """Several expressions as of `by_member`; None: one looks at the variable in another way, or none does."""
    found = [by_member(each, root) for each in texts]
    whole = [each for each in found if each is not None]
    return whole if len(whole) == len(found) and any(each.members for each in whole) else None


def decoder_of(members: Mapping[str, str]) -> Callable[[bytes], dict[str, Any]]:
    """What reads the variables out of JSON: those whose members it has, none if it is no object."""
    fields = [(variable, Any, _NOTHING) for variable in members]
    wanted = msgspec.defstruct("Members", fields, rename=dict(members).get)
    decoder = msgspec.json.Decoder(wanted)

    def decode(payload: bytes) -> dict[str, Any]:
        try:
            found = decoder.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return {}
        values = {variable: getattr(found, variable) for variable in members}
        return {variable: value for variable, value in values.items() if value is not _NOTHING}

    return decode

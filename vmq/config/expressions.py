"""Expressions that an operator writes: CEL (https://cel.dev), a part of it that ends soon.

Nothing is evaluated here. What loops over a list, and what matches patterns, takes a time that grows faster than the
message, so it is refused by its name: an expression is evaluated in the pass of the message.
"""

import re
from collections.abc import Collection
from typing import Any, Final

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

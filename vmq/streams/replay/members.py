"""Members of the payload as variables of their own, in an expression.

The library turns each value that an expression may look at into one of its own, at 5 us a member of a JSON object. So
`payload.temp > 20.0` becomes `payload__temp > 20.0`, and only `temp` is read of the payload. What looks at the payload
in another way (`payload`, `payload["temp"]`, `has(payload.temp)`, a method of it) stays as it is.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from vmq.streams.replay.expressions import TEXT

_PREFIX: Final = "payload__"
_PAYLOAD: Final = re.compile(r"\bpayload\b")
_MEMBER: Final = re.compile(r"payload\s*\.\s*([A-Za-z_][A-Za-z0-9_]*)(?![A-Za-z0-9_]|\s*\()")
_BEFORE: Final = re.compile(r"\.\s*\Z")
#: What is not there: then there is no such variable, and the expression is neither true nor false.
_NOTHING: Final = object()


class ByMember(NamedTuple):
    """An expression that looks at members only: its text, and the member of each variable."""

    text: str
    members: Mapping[str, str]


def by_member(text: str) -> ByMember | None:
    """The expression with members as variables; None: it looks at the payload in another way, or not at all."""
    members: dict[str, str] = {}
    parts: list[str] = []
    at = 0
    code = TEXT.sub(lambda found: " " * len(found[0]), text)
    if _PREFIX in code or "//" in code or re.search(r"\bhas\b", code):
        return None
    for found in _PAYLOAD.finditer(code):
        member = _MEMBER.match(code, found.start())
        if member is None or _BEFORE.search(code, 0, found.start()):
            return None
        variable = _PREFIX + member[1]
        members[variable] = member[1]
        parts += (text[at : found.start()], variable)
        at = member.end()
    return ByMember("".join([*parts, text[at:]]), members) if members else None


def decoder_of(members: Mapping[str, str]) -> Callable[[bytes], dict[str, Any]]:
    """What reads the variables out of a payload: those whose members it has, none if it is no JSON object."""
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

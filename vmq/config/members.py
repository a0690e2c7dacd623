"""Members of a JSON object as variables of their own, in an expression of CEL.

The library turns each value that an expression may look at into one of its own, at some microseconds a member of an
object. So `json.temp > 20.0` becomes `json__temp > 20.0`, and only `temp` is read of the payload. What looks at the
object in another way (`json`, `json["temp"]`, `has(json.temp)`, a method of it) stays as it is.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from vmq.config.expressions import TEXT

_MEMBER: Final = re.compile(r"\w+\s*\.\s*([A-Za-z_][A-Za-z0-9_]*)(?![A-Za-z0-9_]|\s*\()")
_BEFORE: Final = re.compile(r"\.\s*\Z")
_HAS: Final = re.compile(r"\bhas\b")
#: What is not there.
_NOTHING: Final = object()


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
    """The same of several expressions; None: one of them looks at the variable in another way, or none does."""
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

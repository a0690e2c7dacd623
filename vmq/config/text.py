"""The words of the configuration: how values are written and what an option accepts, for messages and the reference."""

import json
import re
import types
from collections.abc import Collection, Mapping
from typing import Annotated, Final, Literal, Union, get_args, get_origin

from msgspec import Meta

#: The ends of the keys whose values are shown to nobody.
SECRETS: Final = (".keypasswd",)
#: What stands for them, and the keys by which those of plugins are known.
HIDDEN: Final = "(hidden)"
SECRET_KEY: Final = re.compile(
    "password|passwd|passphrase|psk|secret|token|key|authorization|cookie|credential", re.IGNORECASE
)

_LONGEST_TEXT: Final = 120
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+\Z")
_PLAIN_WORDS: Final[dict[object, str]] = {
    bool: "true, false",
    int: "a whole number",
    float: "a number",
    str: "a text",
}


def is_secret(parameter: str) -> bool:
    """Whether the value of an operation's parameter may be a secret; `key` alone says how a stream is partitioned."""
    return parameter != "key" and SECRET_KEY.search(parameter) is not None


def without_secrets(value: object) -> object:
    """A value with the secrets in its tables hidden: a plugin's options may be tables of tables."""
    match value:
        case dict():
            return {
                key: HIDDEN if SECRET_KEY.search(str(key)) else without_secrets(each)
                for key, each in value.items()
            }
        case list() | tuple():
            return [without_secrets(each) for each in value]
        case _:
            return value


def toml_value(value: object) -> str:
    """A value as TOML writes it; one that TOML lacks, so that a person sees what it is."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return printable(json.dumps(value, ensure_ascii=False))
        case dict():
            pairs = (f"{toml_key(str(key))} = {toml_value(v)}" for key, v in value.items())
            return "{" + ", ".join(pairs) + "}"
        case list() | tuple():
            return "[" + ", ".join(toml_value(item) for item in value) + "]"
        case None:
            return "(unset)"
        case _:
            return str(value)


def toml_key(key: str) -> str:
    """A key as TOML writes it: in quotes where it needs them."""
    return key if _BARE_KEY.match(key) else printable(json.dumps(key, ensure_ascii=False))


def printable(text: str) -> str:
    """The text with control characters, odd blanks and the like as TOML's escapes: one line, harmless to a terminal."""
    return "".join(
        char
        if char.isprintable()
        else f"\\u{ord(char):04x}"
        if ord(char) < 0x10000
        else f"\\U{ord(char):08x}"
        for char in text
    )


def shortened(text: str) -> str:
    """The text, cut where it would flood a message."""
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "..."


def described(option_type: object) -> str:
    """The one-line meaning in the annotation of an option."""
    return _split(option_type)[1].description or ""


def accepted(option_type: object) -> str:
    """What an option accepts, in words: from its annotation, else from its type and bounds."""
    plain, meta = _split(option_type)
    words = (meta.extra or {}).get("accepts")
    return str(words) if words is not None else _type_words(plain) + _bounds(meta)


def is_live(option_type: object) -> bool:
    """Whether a running broker takes over another value of an option."""
    return bool((_split(option_type)[1].extra or {}).get("live"))


def _split(option_type: object) -> tuple[object, Meta]:
    """The type proper of an annotation, and what is said about it."""
    if get_origin(option_type) is not Annotated:
        return option_type, Meta()
    plain, *metas = get_args(option_type)
    return plain, next((meta for meta in metas if isinstance(meta, Meta)), Meta())


def _type_words(plain: object) -> str:
    origin = get_origin(plain)
    if origin is Literal:
        return ", ".join(toml_value(value) for value in get_args(plain))
    if origin in {Union, types.UnionType}:
        return ", ".join(_type_words(kind) for kind in get_args(plain) if kind is not type(None))
    if origin is Annotated:
        return accepted(plain)
    held = [kind for kind in get_args(plain) if kind is not ...]
    if held and isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a table, each value: {accepted(held[-1])}"
    if len(held) == 1 and isinstance(origin, type) and issubclass(origin, Collection):
        return f"a list, each: {accepted(held[0])}"
    return _PLAIN_WORDS[plain]


def _bounds(meta: Meta) -> str:
    if meta.gt is not None:
        low = f"above {meta.gt}"
    elif meta.ge is not None:
        low = f"at least {meta.ge}" if meta.le is None else str(meta.ge)
    else:
        return ""
    if meta.le is None:
        return f", {low}"
    return f", {low}, at most {meta.le}" if meta.gt is not None else f", {low} to {meta.le}"

"""Payloads as an operator can read them."""

from typing import Annotated

from msgspec import Meta, Struct

from vmq.admin.listing import LARGEST


class Shown(Struct, frozen=True):
    """A payload, or its beginning, as text or in hexadecimal."""

    text: str
    encoding: str
    truncated: bool


PayloadBytes = Annotated[
    int,
    Meta(ge=0, le=LARGEST, description="At most so many bytes of each payload; 0 = all of it"),
]
Encoding = Annotated[str, Meta(description="How payload is written: text, or hex if it is none")]


def show_payload(payload: bytes, limit: int) -> Shown:
    """At most `limit` bytes of a payload (0: all): as text if it is printable, else in hexadecimal."""
    truncated = 0 < limit < len(payload)
    part = payload[:limit] if truncated else payload
    for cut in range(4 if truncated else 1):  # the limit may lie within a character
        try:
            text = part[: len(part) - cut].decode()
        except UnicodeDecodeError:
            continue
        if all(char.isprintable() or char in "\n\r\t" for char in text):
            return Shown(text, "text", truncated)
        break
    return Shown(part.hex(), "hex", truncated)

"""What `vmq stream tail` asks for and gets: plain structs, which need none of the libraries of streams."""

from datetime import UTC, datetime
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

#: The most messages from the end of a stream, and the most bytes that a text may have.
MOST: Final = 100_000
START_FORMS: Final = (
    "earliest, latest, an offset as in 1500, or a time as in 2026-03-01T12:00 "
    "(UTC, unless it ends in +HH:MM)"
)

_Offset = Annotated[int, Meta(ge=0, le=1 << 62)]


class TailQuery(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which messages of a stream.

    Where to begin is `start`, or `offset`, or `time` (microseconds since 1970), or else `last`: so many
    messages before the end. `limit`: end after so many. `payload_bytes`: more of a payload is left out;
    0 = all of it is wanted.
    """

    stream: Annotated[str, Meta(min_length=1, max_length=100)]
    last: Annotated[int, Meta(ge=0, le=MOST)] = 10
    start: Literal["earliest", "latest"] | None = None
    offset: _Offset | None = None
    time: _Offset | None = None
    limit: _Offset | None = None
    partition: _Offset | None = None
    filter: Annotated[str, Meta(min_length=1, max_length=32_768)] | None = None
    follow: bool = False
    payload_bytes: _Offset = 0


class StreamMessage(Struct, frozen=True, kw_only=True, tag="message"):
    """A message of a stream. `size` is that of the whole payload, `timestamp` in microseconds since 1970."""

    timestamp: int
    partition: int
    offset: int
    topic: str
    qos: int
    retain: bool
    client_id: str | None
    key: bytes | None
    headers: list[dict[str, str | None]] | None
    size: int
    payload: bytes


class Notice(Struct, frozen=True, tag="notice"):
    """What is to be known of the messages that come, or do not."""

    text: str


class Ended(Struct, frozen=True, tag="ended"):
    """No more messages come: all were told, or `error` says what went wrong."""

    error: str = ""


def start_of(text: str) -> dict[str, str | int]:
    """The fields of a `TailQuery` for a text of a person: where to begin.

    Raises:
        ValueError: it means nothing; the text says what is accepted.
    """
    if text in {"earliest", "latest"}:
        return {"start": text}
    if text.isascii() and text.isdigit() and len(text) < 19:
        return {"offset": int(text)}
    try:
        when = datetime.fromisoformat(text)
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)  # as such times are printed, and taken by pyspark_vmq
        micros = round(when.timestamp() * 1_000_000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{text!r:.80}; accepted: {START_FORMS}") from None
    if micros < 0:
        raise ValueError(f"{text!r:.80} is before 1970; accepted: {START_FORMS}")
    return {"time": micros}

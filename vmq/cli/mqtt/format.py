"""What `vmq sub` prints for a message: plain, verbose, or by a format string of mosquitto_sub."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from vmq.cli.terminal.rows import clean, json_clean


@dataclass(frozen=True)
class Received:
    """A message from the broker, and when it came."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    packet_id: int  # 0 at QoS 0
    when: datetime  # aware, local time
    #: It goes to a terminal, which what strangers wrote must not steer: their control characters are escaped.
    is_shown: bool = False

    @property
    def topic_text(self) -> bytes:
        """The topic as it is printed."""
        return (clean(self.topic) if self.is_shown else self.topic).encode()

    @property
    def payload_text(self) -> bytes:
        """The payload as it is printed; on a terminal bytes that are no UTF-8 as \\xNN."""
        if not self.is_shown:
            return self.payload
        return clean(self.payload.decode(errors="backslashreplace")).encode()


class FormatError(ValueError):
    """The format string has a sequence that means nothing."""


Formatter = Callable[[Received], bytes]

_ESCAPES: Final = {
    "\\": b"\\",
    "0": b"\0",
    "a": b"\a",
    "e": b"\x1b",
    "n": b"\n",
    "r": b"\r",
    "t": b"\t",
    "v": b"\v",
}
_VALUES: Final[dict[str, Formatter]] = {
    "t": lambda message: message.topic_text,
    "p": lambda message: message.payload_text,
    "q": lambda message: b"%d" % message.qos,
    "r": lambda message: b"%d" % message.retain,
    "l": lambda message: b"%d" % len(message.payload),
    "m": lambda message: b"%d" % message.packet_id,
    "x": lambda message: message.payload.hex().encode(),
    "X": lambda message: message.payload.hex().upper().encode(),
    "I": lambda message: message.when.strftime("%Y-%m-%dT%H:%M:%S%z").encode(),
    "U": lambda message: b"%d.%06d000" % (message.when.timestamp(), message.when.microsecond),
    "j": lambda message: _json(message, message.payload.decode(errors="replace")),
    "J": lambda message: _json(message, _parsed(message)),
    "%": lambda message: b"%",
}
# Numbers and bytes in hex; for the rest, zeros on the left would be a lie.
_ZERO_PADDED: Final = "lmxX"
_SEQUENCE: Final = re.compile(
    r"%(?P<flags>[-0]*)(?P<width>\d*)(?:\.(?P<most>\d+))?(?P<letter>.?)"
    r"|@(?P<time>.?)"
    r"|\\(?P<escape>.?)",
    re.DOTALL,
)


def payload_only(message: Received) -> bytes:
    """The payload."""
    return message.payload_text


def verbose(message: Received) -> bytes:
    """Topic and payload; "(null)" for an empty payload, as mosquitto_sub -v has it."""
    return message.topic_text + b" " + (message.payload_text or b"(null)")


def compiled(text: str) -> Formatter:
    """The formatter for a format string of `vmq sub -F`.

    Raises:
        FormatError: there is an unknown or unfinished sequence; the message names it.
    """
    parts: list[Formatter] = []
    start = 0
    for match in _SEQUENCE.finditer(text):
        parts.append(_literal(text[start : match.start()].encode(errors="surrogateescape")))
        parts.append(_sequence(match))
        start = match.end()
    parts.append(_literal(text[start:].encode(errors="surrogateescape")))
    return lambda message: b"".join(part(message) for part in parts)


def _literal(text: bytes) -> Formatter:
    return lambda _message: text


def _sequence(match: re.Match[str]) -> Formatter:
    escape, time = match["escape"], match["time"]
    if escape is not None:
        if escape not in _ESCAPES:
            raise FormatError(f"unknown sequence {match.group()!r}")
        return _literal(_ESCAPES[escape])
    if time is not None:
        return _time(time)
    value = _VALUES.get(match["letter"])
    if value is None:
        raise FormatError(f"unknown sequence {match.group()!r}")
    if not (match["flags"] or match["width"] or match["most"]):
        return value
    return _padded(value, match)


def _padded(value: Formatter, match: re.Match[str]) -> Formatter:
    width = int(match["width"] or 0)
    most = int(match["most"]) if match["most"] else None
    left = "-" in match["flags"]
    fill = b"0" if "0" in match["flags"] and match["letter"] in _ZERO_PADDED else b" "

    def format_padded(message: Received) -> bytes:
        text = value(message)[:most]
        return text.ljust(width) if left else text.rjust(width, fill)

    return format_padded


def _time(letter: str) -> Formatter:
    """`@X` is strftime's `%X`; `@N` the nanoseconds, `@@` the sign itself."""
    if not letter:
        raise FormatError("unfinished sequence '@'")
    if letter == "@":
        return _literal(b"@")
    if letter == "N":
        return lambda message: b"%06d000" % message.when.microsecond
    return lambda message: message.when.strftime(f"%{letter}").encode(errors="surrogateescape")


def _json(message: Received, payload: object) -> bytes:
    tree: dict[str, object] = {
        "tst": message.when.strftime("%Y-%m-%dT%H:%M:%S.%f%z"),
        "topic": message.topic,
        "qos": message.qos,
        "retain": int(message.retain),
        "payloadlen": len(message.payload),
    }
    if message.qos:
        tree["mid"] = message.packet_id
    tree["payload"] = payload
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
    return (json_clean(text) if message.is_shown else text).encode(errors="surrogatepass")


def _parsed(message: Received) -> object:
    """The payload as JSON. Raises ValueError if it is none: `vmq sub` says so and goes on."""
    return json.loads(message.payload, parse_constant=_no_json)


def _no_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")

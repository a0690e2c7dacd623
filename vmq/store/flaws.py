"""What a record of a store may look like, and how an operator is told which one it is."""

from collections.abc import Callable

from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.topics import decode_filter, decode_text, decode_topic_name
from vmq.store.entries import (
    FLAG_GROUP,
    FLAG_HIGHER,
    FLAG_NOTE,
    FLAG_REF,
    FLAG_RELEASED,
    NOTE,
    decode_retained,
    split_group,
    split_scope,
)
from vmq.store.lines import is_end


def is_not_retained(value: bytes) -> bool:
    """Whether the record of a retained message is none, or has no payload."""
    try:
        return not decode_retained(b"", value).payload
    except ValueError:
        return True


def is_no_session(value: bytes) -> bool:
    """Whether the record of a session has neither 16 bytes nor a user behind them."""
    if len(value) == 16:
        return False
    try:
        value[17:].decode()
    except UnicodeDecodeError:
        return True
    return value[16:17] != b"\1"


def show(key: bytes) -> str:
    """A record as an operator is told of it."""
    kind, number, rest = key[:1], int.from_bytes(key[1:9], "big"), key[9:]
    if key[:1] in (b"q", b"i", b"u", b"x", b"h") and is_end(key):
        return f"session {number}, end of its line {kind.decode()!r}"
    if kind == b"s":
        return f"client {scoped_text(key[1:])}"
    if kind == b"r":
        return f"topic {scoped_text(key[1:])}"
    if kind in (b"q", b"i", b"h") and len(key) == 17:
        return f"session {number}, place {int.from_bytes(rest, 'big')}"
    if kind == b"u":
        return f"session {number}, filter {rest.decode(errors='replace')!r}"
    if kind in (b"x", b"z") and len(key) == 11:
        return f"session {number}, packet id {int.from_bytes(rest, 'big')}"
    if kind in (b"m", b"c") and len(key) == 9:
        return f"message {number}"
    if kind in (b"g", b"j", b"k", b"w", b"f") and len(key) == 9:
        return f"session {number}"
    if kind == b"a" and len(key) >= 9:
        return f"session {number}, node {key[9:].decode(errors='replace')!r}"
    if kind == b"o" and len(key) > 2:
        return f"messages to node {key[1:].partition(bytes(1))[0].decode(errors='replace')!r}"
    if kind == b"d":
        return (
            f"messages that node {key[1:].partition(bytes(1))[0].decode(errors='replace')!r} left"
        )
    if kind in (b"t", b"e"):
        return f"node {key[1:].decode(errors='replace')!r}"
    return f"key {key[:40]!r}"


def scoped_text(raw: bytes) -> str:
    """A client id or topic, and its mountpoint if it has one."""
    if raw[:1] != b"\0":
        return repr(raw.decode(errors="replace"))
    mountpoint, _, rest = raw[1:].partition(b"\0")
    at = mountpoint.decode(errors="replace")
    return f"{rest.decode(errors='replace')!r} at mountpoint {at!r}"


def has_flaw(decode: Callable[[bytes], str], raw: bytes) -> bool:
    """Whether bytes are not what a decoder makes a text of, or that text is empty."""
    try:
        return not decode(raw)
    except ProtocolError:
        return True


def has_scoped_flaw(decode: Callable[[bytes], str], raw: bytes) -> bool:
    """Whether bytes, behind a mountpoint or not, have a flaw as of `has_flaw`."""
    try:
        mountpoint, rest = split_scope(raw)
    except UnicodeDecodeError:
        return True
    return has_flaw(decode, rest) or (raw[:1] == b"\0" and not mountpoint)


def decode_client_id(raw: bytes) -> str:
    """The text of a client id."""
    return decode_text(raw, "client id")


def message_flaw(raw: bytes, start: int) -> bool:
    """Whether no message begins at `start`."""
    body = start + 2
    end = body + int.from_bytes(raw[start:body], "big")
    return len(raw) < max(body, end) or has_flaw(decode_topic_name, raw[body:end])


def entry_flaw(key: bytes, value: bytes) -> bool:
    """Whether a record of kind q or i is none that a broker writes."""
    if len(key) != 17 or not int.from_bytes(key[9:], "big") or len(value) < 3:
        return True
    flags = value[0]
    qos = flags & 3
    if not 1 <= qos <= 2:
        return True
    if flags & FLAG_HIGHER and (qos != 1 or not flags & FLAG_GROUP):
        return True
    if key[:1] == b"i" and value[1:3] == b"\0\0":
        return True
    if flags & FLAG_NOTE:
        if flags & FLAG_RELEASED or len(value) < 5 + NOTE:
            return True
        value = value[:-NOTE]
    if flags & FLAG_GROUP:
        if flags & FLAG_RELEASED or len(value) < 5 + int.from_bytes(value[-2:], "big"):
            return True
        if has_flaw(decode_filter, value[:-2][-int.from_bytes(value[-2:], "big") :]):
            return True
        value = split_group(value)[0]
    if flags & FLAG_RELEASED:
        return key[:1] != b"i" or qos != 2 or flags & FLAG_REF != 0
    if flags & FLAG_REF:
        return len(value) != 11 or not any(value[3:])
    return message_flaw(value, 3)

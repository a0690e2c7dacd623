"""Replies to bytes, in RESP 2 and 3."""

from typing import Final

#: What there is none of, in RESP 2 as an array and as a bulk, and in RESP 3.
NO_ARRAY: Final = b"*-1\r\n"
NO_BULK: Final = b"$-1\r\n"
NOTHING: Final = b"_\r\n"
OK: Final = b"+OK\r\n"
_LONGEST_ERROR: Final = 200


def error(text: str) -> bytes:
    """An error; its first word is its kind. Never more than one line, whatever came from a client."""
    line = text[:_LONGEST_ERROR].replace("\r", " ").replace("\n", " ")
    return b"-" + line.encode("utf-8", "replace") + b"\r\n"


def number(value: int) -> bytes:
    """A number."""
    return b":%d\r\n" % value


def bulk(data: bytes) -> bytes:
    """A string of bytes."""
    return b"$%d\r\n%b\r\n" % (len(data), data)


def array(items: list[bytes]) -> bytes:
    """An array of replies."""
    return b"*%d\r\n" % len(items) + b"".join(items)


def strings(items: list[bytes]) -> bytes:
    """An array of strings."""
    return array([bulk(each) for each in items])


def pairs(items: list[tuple[str, bytes]], is_map: bool) -> bytes:
    """Names and replies: a map in RESP 3, an array of both in RESP 2."""
    head = b"%%%d\r\n" % len(items) if is_map else b"*%d\r\n" % (2 * len(items))
    return head + b"".join(bulk(name.encode()) + value for name, value in items)

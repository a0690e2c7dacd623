"""Replies of RESP, as a client reads them."""

from typing import Any, Final

#: What a reply has at most: one that says more is no broker's.
_MOST: Final = 1 << 30


class JobError(Exception):
    """The broker refuses; the text begins with its word for why."""


class BrokenReplyError(ConnectionError):
    """What came is no reply."""


class ReplyReader:
    """Takes replies out of what has come. A copy of what is not whole yet is walked again when there is more."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._start = 0

    def feed(self, data: bytes) -> None:
        """More has come."""
        if self._start:
            del self._data[: self._start]
            self._start = 0
        self._data += data

    def next(self) -> tuple[bool, Any]:
        """Whether a reply is whole, and what it says; an error is a `JobError`, which is not raised.

        Raises:
            BrokenReplyError: what came is none.
        """
        try:
            value, self._start = self._read(self._start)
        except IndexError:
            return False, None
        return True, value

    def _read(self, at: int) -> tuple[Any, int]:
        end = self._data.find(b"\r\n", at)
        if end < 0:
            raise IndexError
        kind, text = bytes(self._data[at : at + 1]), bytes(self._data[at + 1 : end])
        end += 2
        if kind == b"+":
            return text, end
        if kind == b"-":
            return JobError(text.decode("utf-8", "replace")), end
        if kind not in {b":", b"$", b"*"}:
            raise BrokenReplyError(f"no reply begins with {kind!r}")
        try:
            number = int(text)
        except ValueError:
            raise BrokenReplyError(f"no number: {text[:40]!r}") from None
        if kind == b":":
            return number, end
        if number < 0:
            return None, end
        if number > _MOST:
            raise BrokenReplyError(f"a reply of {number}")
        if kind == b"$":
            if len(self._data) < end + number + 2:
                raise IndexError
            return bytes(self._data[end : end + number]), end + number + 2
        found = []
        for _ in range(number):
            value, end = self._read(end)
            found.append(value)
        return found, end


def command(*words: str | bytes | int) -> bytes:
    """A command as bytes."""
    pieces = [b"*%d\r\n" % len(words)]
    for word in words:
        raw = word if isinstance(word, bytes) else str(word).encode()
        pieces.append(b"$%d\r\n%b\r\n" % (len(raw), raw))
    return b"".join(pieces)

r"""Bytes to commands. Every length is checked before anything of it is kept.

A command is an array of bulk strings (`*2\r\n$4\r\nQLEN\r\n$1\r\nq\r\n`), or a line of words as people
type it (`QLEN q`). Memory is bounded by the limit of one command: what comes of a larger one is passed over, so that a
client that writes all of it before it reads gets its reply.
"""

from typing import Final

from mypy_extensions import i64

#: Arguments of a command, digits of a length, bytes of a line of words.
MOST_ARGUMENTS: Final = 1024
_MOST_DIGITS: Final = 10
_LONGEST_LINE: Final = 4096

_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "a": "\a"}


class RespError(Exception):
    """The peer does not speak RESP: its connection ends. The text is its reply."""

    def __init__(self, reason: str) -> None:
        super().__init__("ERR Protocol error: " + reason)


class TooLargeError(Exception):
    """A command is above a limit: it is passed over, and those behind it are done. The text is its reply."""


class RespReader:
    """Finds commands in a byte stream that arrives in chunks of any size.

    Duties of the caller: `feed(chunk)`, then `next()` until it is None; `next` may be put off.

    Args:
        limit: bytes of one command with all its headers.
    """

    def __init__(self, limit: int) -> None:
        self.limit: i64 = limit
        self.data: bytes = b""
        self.size: i64 = 0
        self.position: i64 = 0
        #: Where the next header begins, once `number` has read one.
        self.cursor: i64 = 0
        self.rest: bytearray | None = None
        self.wanted: i64 = 0
        #: Of a command that is cut: its whole arguments, how many are to come, and the bytes that it had up to
        #: here. They are not read again, however small the pieces are in which the others come.
        self.found: list[bytes] | None = None
        self.missing: i64 = 0
        self.taken: i64 = 0
        #: Of a command that is passed over: bytes that are to come of its present argument; `missing` are behind it.
        self.is_passing = False
        self.passed_by: i64 = 0

    def feed(self, chunk: bytes) -> None:
        """Takes the next bytes; those of before that were not taken come first."""
        rest = self.rest
        if rest is not None:
            rest += chunk
            if len(rest) < self.wanted:
                return
            self.rest = None
            self.data = bytes(rest)
        elif self.position < self.size:
            self.data = self.data[self.position :] + chunk
        else:
            self.data = chunk
        self.size = len(self.data)
        self.position = 0

    def kept(self) -> int:
        """Bytes that came and are not taken."""
        rest = self.rest
        return self.taken + self.size - self.position + (0 if rest is None else len(rest))

    def unread(self) -> int:
        """Bytes of those that nobody has asked for yet."""
        return self.size - self.position

    def next(self) -> list[bytes] | None:
        """The next whole command, never empty; None if the chunk holds no further one.

        Raises:
            RespError: what comes is no command.
            TooLargeError: one is above a limit; ask again for the one behind it.
        """
        while self.position < self.size:
            if self.is_passing:
                found = self.pass_over()
            elif self.found is not None or self.data[self.position] == 42:  # *
                found = self.array()
            else:
                found = self.line()
            if found is None or found:
                return found
        if self.rest is None:
            self.data = b""
            self.position = self.size = 0
        return None

    def array(self) -> list[bytes] | None:
        """A command in full form, or what comes of one; empty if it has no arguments, which Redis ignores."""
        at: i64 = self.position
        found = self.found
        missing: i64 = self.missing
        taken: i64 = self.taken
        if found is None:
            missing = self.number(at + 1)
            if missing == -1:
                return self.keep(at, 0)
            taken = self.cursor - at
            at = self.cursor
            if missing > MOST_ARGUMENTS:
                self.begin_passing(missing, 0)
                raise TooLargeError(f"ERR a command has at most {MOST_ARGUMENTS} arguments here")
            found = []
        data = self.data
        size: i64 = self.size
        while missing > 0:
            if at >= size:
                return self.cut(found, missing, taken, at, 0)
            length: i64 = self.length(at)
            if length == -1:
                return self.cut(found, missing, taken, at, 0)
            end: i64 = self.cursor + length
            if taken + end + 2 - at > self.limit:
                self.begin_passing(missing - 1, length + 2)
                raise TooLargeError(
                    f"TOOBIG a command has at most {self.limit} bytes here (limits.max_job_size)"
                )
            if end + 2 > size:
                return self.cut(found, missing, taken, at, end + 2)
            if data[end] != 13 or data[end + 1] != 10:
                raise RespError("a bulk does not end where its length says")
            found.append(data[self.cursor : end])
            taken += end + 2 - at
            at = end + 2
            missing -= 1
        self.found = None
        self.taken = 0
        self.position = at
        return found

    def cut(
        self, found: list[bytes], missing: i64, taken: i64, start: i64, end: i64
    ) -> list[bytes] | None:
        """Keeps the arguments that are whole, and what came of the next one: from `start`, at least up to `end`."""
        self.found = found
        self.missing = missing
        self.taken = taken
        return self.keep(start, end)

    def begin_passing(self, missing: i64, rest: i64) -> None:
        """Passes over the rest of an argument, which begins at `cursor`, and so many behind it."""
        self.is_passing = True
        self.found = None
        self.taken = 0
        self.missing = missing
        self.passed_by = rest
        self.position = self.cursor

    def pass_over(self) -> list[bytes] | None:
        """Passes over what came of a command that is too large, up to its end at most: empty."""
        while True:
            step: i64 = min(self.passed_by, self.size - self.position)
            self.position += step
            self.passed_by -= step
            if not self.passed_by and not self.missing:
                self.is_passing = False
                return []
            if self.position >= self.size:
                return []
            length: i64 = self.length(self.position)
            if length == -1:
                return self.keep(self.position, 0)
            self.missing -= 1
            self.passed_by = length + 2
            self.position = self.cursor

    def length(self, at: i64) -> i64:
        """The length of an argument, with `cursor` behind its header; -1: the header is not whole."""
        kind = self.data[at]
        if kind != 36:  # $
            raise RespError("expected '$', got '" + chr(kind) + "'")
        found: i64 = self.number(at + 1)
        if found < -1:
            raise RespError("invalid bulk length")
        return found

    def number(self, start: i64) -> i64:
        """The number of a header, with `cursor` behind its line; -1: the line is not whole; -2: it is negative."""
        data = self.data
        size: i64 = self.size
        at: i64 = start
        found: i64 = 0
        is_negative = False
        if at < size and data[at] == 45:  # -
            is_negative = True
            at += 1
        first: i64 = at
        while at < size:
            digit: i64 = data[at] - 48
            if digit < 0 or digit > 9:
                break
            found = found * 10 + digit
            at += 1
            if at - first > _MOST_DIGITS:
                raise RespError("invalid bulk length")
        if at + 1 >= size:
            if at < size and data[at] != 13:
                raise RespError("a length that is no number")
            return -1
        if data[at] != 13 or data[at + 1] != 10 or at == first:
            raise RespError("a length that is no number")
        self.cursor = at + 2
        return -2 if is_negative else found

    def line(self) -> list[bytes] | None:
        """A command as a line of words; empty if the line is."""
        start: i64 = self.position
        end: i64 = self.data.find(b"\n", start)
        if end < 0:
            if self.size - start > _LONGEST_LINE:
                raise RespError("too big inline request")
            return self.keep(start, 0)
        if end - start > min(_LONGEST_LINE, self.limit):
            raise RespError("too big inline request")
        self.position = end + 1
        return split_words(self.data[start:end])

    def keep(self, start: i64, end: i64) -> list[bytes] | None:
        """Keeps what is cut until the rest arrives; `end`: where at least it reaches, if that is known."""
        if self.size - start > self.limit:
            raise RespError("too big request")
        self.rest = bytearray(self.data[start:])
        self.wanted = end - start
        self.data = b""
        self.position = self.size = 0
        return None


def split_words(line: bytes) -> list[bytes]:
    """The words of a line, with quotes and escapes as redis-cli has them.

    Raises:
        RespError: a quote has no end, or a word goes on behind it.
    """
    if b'"' not in line and b"'" not in line:
        return line.split()
    text = line.decode("latin-1").rstrip("\r")
    words: list[bytes] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        word: list[str] = []
        if text[at] in "\"'":
            at = _quoted(text, at, word)
            if at < len(text) and not text[at].isspace():
                raise RespError("unbalanced quotes in request")
        else:
            while at < len(text) and not text[at].isspace():
                word.append(text[at])
                at += 1
        words.append("".join(word).encode("latin-1"))
    if len(words) > MOST_ARGUMENTS:
        raise RespError("too big inline request")
    return words


def _quoted(text: str, start: int, word: list[str]) -> int:
    """Reads a word in quotes; returns what is behind it."""
    quote = text[start]
    at = start + 1
    while at < len(text) and text[at] != quote:
        if text[at] != "\\" or at + 1 >= len(text):
            word.append(text[at])
        elif quote == '"' and text[at + 1] == "x" and _is_hexadecimal(text[at + 2 : at + 4]):
            word.append(chr(int(text[at + 2 : at + 4], 16)))
            at += 3
        elif quote == '"':
            at += 1
            word.append(_ESCAPES.get(text[at], text[at]))
        elif text[at + 1] == "'":
            at += 1
            word.append("'")
        else:
            word.append(text[at])
        at += 1
    if at >= len(text):
        raise RespError("unbalanced quotes in request")
    return at + 1


def _is_hexadecimal(text: str) -> bool:
    return len(text) == 2 and all(each in "0123456789abcdefABCDEF" for each in text)

"""Job ids, in the form of Disque's: `D-` node `-` 24 random characters `-` time to live.

The last four hexadecimal digits are the minutes that the job lives, 65,535 at most; they are odd if the job is
delivered at least once and even if at most once, so that a node which never saw the job knows its class. The random
part is base64 with `-` and `_`: ids are levels of MQTT topics, where `+` and `/` mean something else.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from mypy_extensions import i64

#: Bytes of an id.
LENGTH: Final = 40
#: Random bytes in one id, and how many ids' worth is drawn at once.
_RANDOM: Final = 18
_BATCH: Final = 256
#: Characters of the random part.
_TOKEN: Final = 24
_MOST_MINUTES: Final = 0xFFFF
_HEXADECIMAL: Final = b"0123456789abcdef"
_TOKEN_BYTES: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/="


class JobIds:
    """Makes ids.

    Args:
        node: eight hexadecimal digits that name this node.
        draw: so many random bytes; `os.urandom`, or that of a seeded generator.
    """

    def __init__(self, node: bytes, draw: Callable[[int], bytes]) -> None:
        assert len(node) == 8
        self.prefix = b"D-" + node + b"-"
        self.draw = draw
        self.tokens: bytes = b""
        self.used: i64 = 0
        self.suffixes: dict[int, bytes] = {}

    def new(self, ttl: int, repeats: bool) -> bytes:
        """An id for a job that lives `ttl` seconds; `repeats`: it is delivered at least once."""
        start: i64 = self.used
        if start >= len(self.tokens):
            self.tokens = urlsafe_b64encode(self.draw(_RANDOM * _BATCH))
            start = 0
        self.used = start + _TOKEN
        key = ttl * 2 + (1 if repeats else 0)
        suffix = self.suffixes.get(key)
        if suffix is None:
            suffix = self.remember(key, ttl, repeats)
        return self.prefix + self.tokens[start : start + _TOKEN] + suffix

    def remember(self, key: int, ttl: int, repeats: bool) -> bytes:
        """The end of ids of one time to live. Few are in use; a client that takes ever new ones fills nothing."""
        if len(self.suffixes) > 1000:
            self.suffixes.clear()
        minutes = min((ttl + 59) // 60, _MOST_MINUTES)
        minutes = minutes | 1 if repeats else minutes & ~1
        suffix = b"-%04x" % minutes
        self.suffixes[key] = suffix
        return suffix


def named(name: bytes, ttl: int, repeats: bool) -> bytes:
    """The id of a job that has a name: whoever makes it makes the same."""
    digest = sha256(name).digest()
    minutes = min((ttl + 59) // 60, _MOST_MINUTES)
    minutes = minutes | 1 if repeats else minutes & ~1
    token = urlsafe_b64encode(digest[4 : 4 + _RANDOM])
    return b"D-" + digest[:4].hex().encode() + b"-" + token + b"-%04x" % minutes


def derived(job_id: bytes, name: bytes) -> bytes:
    """The id of the same job under another name: whoever makes it makes the same."""
    token = urlsafe_b64encode(sha256(job_id + b"@" + name).digest()[:_RANDOM])
    return job_id[:11] + token + job_id[35:]


def is_job_id(text: bytes) -> bool:
    """Whether this has the form of a job id, ours or Disque's."""
    if len(text) != LENGTH or text[:2] != b"D-" or text[10:11] != b"-" or text[35:36] != b"-":
        return False
    rest = text[11:35].translate(None, _TOKEN_BYTES)
    return not rest and not (text[2:10] + text[36:40]).translate(None, _HEXADECIMAL)


def are_job_ids(joined: bytes) -> bool:
    """Whether these are ids of jobs, one behind the other; many are looked at as fast as one."""
    count, rest = divmod(len(joined), LENGTH)
    if rest or joined.translate(None, _TOKEN_BYTES):
        return False
    for place, byte in ((0, b"D"), (1, b"-"), (10, b"-"), (35, b"-")):
        if joined[place::LENGTH].count(byte) != count:
            return False
    lives = joined[36::LENGTH] + joined[37::LENGTH] + joined[38::LENGTH] + joined[39::LENGTH]
    return not lives.translate(None, _HEXADECIMAL)


def is_repeated(job_id: bytes) -> bool:
    """Whether the job of an id is delivered at least once, as the parity of its last digit says."""
    return int(job_id[39:40], 16) % 2 == 1

"""Hashes of passwords: argon2, and what mosquitto_passwd and vmq-passwd write.

| begins with | what | made by |
| --- | --- | --- |
| `$argon2id$` | argon2 in the PHC format, also `$argon2i$` and `$argon2d$` | vmq, mosquitto 2.1 |
| `$7$` | PBKDF2 with SHA-512: `$7$ITERATIONS$SALT$HASH`, base64 | mosquitto 1.6 and later |
| `$6$` | SHA-512 of password and salt: `$6$SALT$HASH`, base64 | older mosquitto, VerneMQ |
"""

import base64
import binascii
import hashlib
import hmac
import os
import re
from typing import Final, Protocol

import argon2
import msgspec
from argon2.exceptions import Argon2Error, InvalidHash

#: What OWASP advises for argon2id with little memory: a broker computes many at once when devices come back.
_HASHER: Final = argon2.PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)

#: A line of the file must not be able to stall the broker.
MAX_ITERATIONS: Final = 10_000_000
MAX_ARGON2_KIB: Final = 1 << 20
MAX_ARGON2_PASSES: Final = 64
MAX_ARGON2_LANES: Final = 64

_ARGON2: Final = re.compile(
    r"\$argon2(?:id|i|d)\$v=\d{1,3}\$m=(\d{1,9}),t=(\d{1,9}),p=(\d{1,9})\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{6,}"
)


class Hash(Protocol):
    """The hash of a password."""

    def verify(self, password: bytes) -> bool:
        """Whether this is the password. Computes for long: not for the event loop."""


class Sha512(msgspec.Struct, frozen=True):
    """Mosquitto's `$6$`."""

    salt: bytes
    digest: bytes

    def verify(self, password: bytes) -> bool:
        return hmac.compare_digest(hashlib.sha512(password + self.salt).digest(), self.digest)


class Pbkdf2(msgspec.Struct, frozen=True):
    """Mosquitto's `$7$`."""

    iterations: int
    salt: bytes
    digest: bytes

    def verify(self, password: bytes) -> bool:
        digest = hashlib.pbkdf2_hmac("sha512", password, self.salt, self.iterations)
        return hmac.compare_digest(digest, self.digest)


class Argon2(msgspec.Struct, frozen=True):
    """Argon2, which says itself how it was made."""

    text: str

    def verify(self, password: bytes) -> bool:
        try:
            return _HASHER.verify(self.text, password)
        except (Argon2Error, InvalidHash):
            return False


def make_hash(password: bytes) -> str:
    """A new hash, for the file."""
    return _HASHER.hash(password)


def make_decoy() -> Argon2:
    """A hash that no password has, and that takes as long to check as a new one; it takes no time to make."""
    salt, digest = (
        base64.b64encode(os.urandom(size)).decode().rstrip("=")
        for size in (_HASHER.salt_len, _HASHER.hash_len)
    )
    costs = f"m={_HASHER.memory_cost},t={_HASHER.time_cost},p={_HASHER.parallelism}"
    return Argon2(f"$argon2id$v={argon2.low_level.ARGON2_VERSION}${costs}${salt}${digest}")


def quick_hash(password: bytes) -> str:
    """A hash of one pass, for passwords that lie open anyway: it makes nothing harder for who has it."""
    salt = os.urandom(12)
    digest = hashlib.pbkdf2_hmac("sha512", password, salt, 1)
    parts = (base64.b64encode(each).decode() for each in (salt, digest))
    return "$7$1$" + "$".join(parts)


def parse_hash(text: str) -> Hash:
    """A hash as it stands in the file.

    Raises:
        ValueError: it is none; the text does not repeat it.
    """
    if text.startswith("$argon2"):
        return _argon2(text)
    match text.split("$"):
        case ["", "6", salt, digest]:
            return Sha512(_base64(salt), _digest(digest))
        case ["", "7", iterations, salt, digest]:
            return Pbkdf2(_iterations(iterations), _base64(salt), _digest(digest))
    raise ValueError("no hash of a password; accepted: $argon2id$..., $7$..., $6$...")


def _argon2(text: str) -> Argon2:
    found = _ARGON2.fullmatch(text)
    if found is None:
        raise ValueError("not of the form $argon2id$v=19$m=KIB,t=PASSES,p=LANES$SALT$HASH")
    limits = (MAX_ARGON2_KIB, MAX_ARGON2_PASSES, MAX_ARGON2_LANES)
    if any(
        not 1 <= int(given) <= limit for given, limit in zip(found.groups(), limits, strict=True)
    ):
        raise ValueError("argon2: accepted: m up to {}, t up to {}, p up to {}".format(*limits))
    return Argon2(text)


def _iterations(text: str) -> int:
    # Digits of other scripts are digits to int(), but not to mosquitto.
    if not (
        text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= MAX_ITERATIONS and len(text) < 9
    ):
        raise ValueError(f"$7$: accepted: 1 to {MAX_ITERATIONS} iterations")
    return int(text)


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError("the salt or the hash is not base64") from None


def _digest(text: str) -> bytes:
    digest = _base64(text)
    if len(digest) != hashlib.sha512().digest_size:
        raise ValueError("the hash is not of 64 bytes")
    return digest

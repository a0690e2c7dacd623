"""The API keys: who may use the HTTP API.

A key is shown once, when it is made; the data directory holds its SHA-256 only. That hash is enough, and a slow one
would be waste: a key is 256 random bits, not a password that could be guessed.
"""

import hashlib
import hmac
import secrets
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from vmq.admin.errors import AdminError, NotFoundError, RefusedError
from vmq.runtime.private_files import replace_private

FILE: Final = "api_keys.json"
PREFIX: Final = "vmq_"


#: What a key is good for.
Scope = Literal["all", "read"]


class KeyRow(Struct, frozen=True, kw_only=True):
    """One API key, without the key."""

    id: str
    name: str
    created_at: str
    scope: Annotated[Scope, Meta(description="read = it may look, and change nothing")] = "all"


class NewKey(KeyRow, frozen=True, kw_only=True):
    """An API key that was just made."""

    key: Annotated[str, Meta(description="The key itself; it is not shown again")]


class KeyDeleted(Struct, frozen=True):
    """What a delete did."""

    id: str


class _Stored(KeyRow, frozen=True, kw_only=True):
    sha256: str


class _KeyFile(Struct, frozen=True):
    keys: list[_Stored]


class ApiKeys:
    """The keys in a data directory. Objects for the same directory agree: the file is the truth."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        self._stamp: tuple[int, int, int] | None = None
        self._keys: list[_Stored] = []

    def create(self, name: str = "", scope: Scope = "all") -> NewKey:
        """Makes a key.

        Raises:
            RefusedError: the keys cannot be read or written.
        """
        keys = self._load()
        text = PREFIX + secrets.token_urlsafe(32)
        when = datetime.fromtimestamp(int(time.time()), UTC).isoformat()
        row = _Stored(
            id=secrets.token_hex(4),
            name=name,
            created_at=when.removesuffix("+00:00") + "Z",
            scope=scope,
            sha256=_hash(text),
        )
        self._save([*keys, row])
        return NewKey(**_public(row), key=text)

    def list_keys(self) -> list[KeyRow]:
        """The keys, the oldest first."""
        return [KeyRow(**_public(each)) for each in self._load()]

    def delete(self, key_id: str) -> KeyDeleted:
        """Deletes a key: whoever uses it is refused from now on.

        Raises:
            NotFoundError: there is none with this id.
        """
        keys = self._load()
        left = [each for each in keys if each.id != key_id]
        if len(left) == len(keys):
            raise NotFoundError(f"there is no API key with id {key_id!r}")
        self._save(left)
        return KeyDeleted(key_id)

    def find(self, key: str) -> KeyRow | None:
        """What is known of a key; None = it is none. Takes the same time whichever it is, and however wrong."""
        wanted = _hash(key)
        found: KeyRow | None = None
        for each in self._load():
            if hmac.compare_digest(each.sha256, wanted):
                found = each
        return found

    def _load(self) -> list[_Stored]:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self._stamp = None
            self._keys = []
            return self._keys
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if stamp != self._stamp:
            try:
                self._keys = msgspec.json.decode(self.path.read_bytes(), type=_KeyFile).keys
            except (OSError, msgspec.MsgspecError) as error:
                raise RefusedError(f"the API keys cannot be read: {self.path}: {error}") from None
            self._stamp = stamp
        return self._keys

    def _save(self, keys: list[_Stored]) -> None:
        try:
            replace_private(self.path, _KeyFile(keys))
        except OSError as error:
            raise RefusedError(f"the API keys cannot be written: {error}") from None


def _public(row: KeyRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in KeyRow.__struct_fields__}


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()


def check_name(name: str) -> str:
    """A name for a key, which is for people.

    Raises:
        AdminError: it is too long, or not printable.
    """
    if len(name) > 100 or not name.isprintable():
        raise AdminError("name: accepted: up to 100 printable characters")
    return name

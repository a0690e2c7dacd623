"""The file of users: `NAME:HASH`, one a line, and `#` for comments."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from vmq_hooks.files import FileError

from vmq_passwd.hashes import Hash, parse_hash

#: U+FEFF: what some editors put before a text; it is no part of it.
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class Users:
    """Names and hashes."""

    def __init__(self, hashes: Mapping[str, Hash]) -> None:
        self._hashes = hashes
        self._in_order = tuple(hashes.values())
        #: What tells the hash of a user from another one, and is of no use for more.
        self.marks = {
            name: hashlib.blake2b(repr(each).encode(), digest_size=16).hexdigest()
            for name, each in hashes.items()
        }

    def __len__(self) -> int:
        return len(self._in_order)

    def __contains__(self, name: str) -> bool:
        return name in self._hashes

    def get(self, name: str) -> Hash | None:
        """A user's hash."""
        return self._hashes.get(name)

    def nth(self, index: int) -> Hash:
        """The hash that stands in this place of the file."""
        return self._in_order[index]


def missing(before: Mapping[str, str], later: Mapping[str, str], with_passwords: bool) -> set[str]:
    """Who is not there any more, by their `marks`; on demand also who has another hash."""
    if with_passwords:
        return {name for name, had in before.items() if later.get(name) != had}
    return set(before) - set(later)


def parse(data: bytes, path: Path) -> Users:
    """The users of a file and their hashes.

    Raises:
        FileError: a line is none of this, or a user stands there twice. The text holds no hash.
    """
    users: dict[str, Hash] = {}
    for number, raw in enumerate(data.removeprefix(_BYTE_ORDER_MARK).split(b"\n"), 1):
        try:
            line = raw.decode().strip()
        except UnicodeDecodeError:
            raise FileError(path, number, "not UTF-8") from None
        if not line or line[0] == "#":
            continue
        name, colon, text = (part.strip() for part in line.partition(":"))
        if not (name and colon):
            raise FileError(path, number, "accepted: NAME:HASH")
        if name in users:
            raise FileError(path, number, f"user {name!r} stands in the file twice")
        try:
            users[name] = parse_hash(text)
        except ValueError as error:
            raise FileError(path, number, f"user {name!r}: {error}") from None
    return Users(users)


def check_name(name: str) -> None:
    """Raises ValueError for a user name that the file cannot hold."""
    if not name or name != name.strip():
        raise ValueError("a user name is not empty and neither begins nor ends with a blank")
    if name[0] == "#" or any(each in name for each in ":\n\r\0"):
        raise ValueError("a user name has no colon or line break, and does not begin with #")
    if len(name.encode()) > 65535:
        raise ValueError("a user name has at most 65535 bytes [MQTT-1.5.3]")


def with_user(data: bytes, name: str, line: str | None) -> bytes:
    """The file with a user's line set, or with None taken out. All else stays as it is."""
    text = data.removeprefix(_BYTE_ORDER_MARK)
    mark = data[: len(data) - len(text)]
    lines = text.split(b"\n")
    if lines[-1] == b"":
        lines.pop()
    new = [] if line is None else [line.encode()]
    for index, raw in enumerate(lines):
        if _name(raw) == name:
            lines[index : index + 1] = new
            break
    else:
        if line is None:
            return data
        lines += new
    text = b"".join(each + b"\n" for each in lines)
    if text.startswith(_BYTE_ORDER_MARK):
        # A name may begin with U+FEFF [MQTT-1.5.3-3]: first in a file without a mark, it would be taken for one.
        mark = _BYTE_ORDER_MARK
    return mark + text


def _name(raw: bytes) -> str | None:
    """Whose line it is."""
    text = raw.decode(errors="replace").strip()
    return None if text.startswith("#") else text.partition(":")[0].strip()

"""Bans: clients, users and addresses that the operator lets in no more, for a while or for good.

They lie in a file of the data directory, which all workers of a broker share: the file is the truth, and who reads it
sees a whole one. Nothing but the operator's word puts one there.
"""

import fcntl
import ipaddress
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from vmq.listeners.trust import parse_address
from vmq.runtime.private_files import replace_private

FILE: Final = "bans.json"
LOCK: Final = "bans.lock"
#: Bans that one broker keeps.
MAX_BANS: Final = 10_000
#: Bits before an IPv4 address in IPv6's form of it (RFC 4291, 2.5.5.2).
_MAPPED: Final = 96

Kind = Literal["client_id", "user", "address"]


class BansError(Exception):
    """The bans cannot be read, written or taken; the text says what to do."""


class Ban(Struct, frozen=True):
    """One ban. Times are seconds since 1970; without `until` it holds until it is removed."""

    kind: Kind
    value: str
    since: float
    until: float | None = None
    reason: str = ""

    def said(self) -> str:
        """For the log: what is banned, and why."""
        because = f": {self.reason}" if self.reason else ""
        return f"banned by {self.kind} {self.value}{because} (vmq ban)"


class _BanFile(Struct, frozen=True):
    bans: list[Ban]


class Bans:
    """The bans of a broker.

    Args:
        folder: the data directory.
        clock: seconds since 1970.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        self.path = folder / FILE
        self._clock = clock
        self._stamp: tuple[int, int, int] | None = None
        self._bans: dict[tuple[Kind, str], Ban] = {}
        #: Lengths of the banned networks' prefixes, by version: what an address is looked up by.
        self._prefixes: set[tuple[int, int]] = set()

    def __len__(self) -> int:
        return len(self._bans)

    def now(self) -> float:
        """Seconds since 1970."""
        return self._clock()

    def reload(self) -> bool:
        """Reads the file if it has changed; whether it had.

        Raises:
            BansError: it cannot be read, or is none; what was known still holds.
        """
        stamp = self._look()
        if stamp == self._stamp:
            return False
        self._stamp = stamp  # a broken file is told once
        found: list[Ban] = []
        if stamp is not None:
            try:
                found = msgspec.json.decode(self.path.read_bytes(), type=_BanFile).bans
                found = [
                    msgspec.structs.replace(each, value=checked(each.kind, each.value))
                    for each in found
                ]
            except (OSError, msgspec.MsgspecError, BansError) as error:
                raise BansError(f"the bans cannot be read: {self.path}: {error}") from None
        self._take(found)
        return True

    def add(self, kind: Kind, value: str, seconds: float | None = None, reason: str = "") -> Ban:
        """Bans from now on, in place of a ban of the same client, user or address.

        Raises:
            BansError: the value is none of its kind, there are too many, or the file cannot be written.
        """
        now = self._clock()
        until = None if seconds is None else now + seconds
        ban = Ban(kind, checked(kind, value), now, until, reason)
        self.take(ban)
        return ban

    def take(self, ban: Ban) -> None:
        """Has a ban, in place of one of the same client, user or address.

        Raises:
            BansError: there are too many, or the file cannot be read or written.
        """
        with self._changing() as bans:
            if bans.get((ban.kind, ban.value)) == ban:
                return
            bans[ban.kind, ban.value] = ban
            if len(bans) > MAX_BANS:
                raise BansError(f"there are {MAX_BANS} bans already; vmq ban remove makes room")
            self._save(list(bans.values()))

    def remove(self, kind: Kind, value: str) -> Ban | None:
        """Ends a ban, and returns it; None if there is none.

        Raises:
            BansError: the value is none of its kind, or the file cannot be written.
        """
        key = (kind, checked(kind, value))
        with self._changing() as bans:
            found = bans.pop(key, None)
            if found is not None:
                self._save(list(bans.values()))
            return found

    def all(self) -> list[Ban]:
        """Those that hold, the oldest first."""
        now = self._clock()
        return [each for each in self._bans.values() if each.until is None or each.until > now]

    def find(self, client_id: str, user: str | None, host: str) -> Ban | None:
        """The ban that keeps a client out."""
        keys: list[tuple[Kind, str]] = [("client_id", client_id)]
        if user is not None:
            keys.append(("user", user))
        address = parse_address(host) if self._prefixes else None
        if address is not None:
            keys += [
                ("address", _network(address, length))
                for version, length in self._prefixes
                if version == address.version
            ]
        now = self._clock()
        for key in keys:
            ban = self._bans.get(key)
            if ban is not None and (ban.until is None or ban.until > now):
                return ban
        return None

    def refusal(self, client_id: str, user: str | None, host: str) -> str:
        """Why a client is not let in; empty if it is."""
        ban = self.find(client_id, user, host)
        return "" if ban is None else ban.said()

    @contextmanager
    def _changing(self) -> Iterator[dict[tuple[Kind, str], Ban]]:
        """The bans that hold, as the file has them, and no other process changes it meanwhile."""
        try:
            lock = os.open(self.path.with_name(LOCK), os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise BansError(f"the bans cannot be written: {error}") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.reload()
            yield {(each.kind, each.value): each for each in self.all()}
        finally:
            os.close(lock)

    def _look(self) -> tuple[int, int, int] | None:
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BansError(f"the bans cannot be read: {self.path}: {error}") from None
        return (status.st_mtime_ns, status.st_size, status.st_ino)

    def _take(self, bans: list[Ban]) -> None:
        self._bans = {(each.kind, each.value): each for each in bans}
        networks = [ipaddress.ip_network(each.value) for each in bans if each.kind == "address"]
        self._prefixes = {(each.version, each.prefixlen) for each in networks}

    def _save(self, bans: list[Ban]) -> None:
        try:
            replace_private(self.path, _BanFile(bans))
        except OSError as error:
            raise BansError(f"the bans cannot be written: {error}") from None
        self._take(bans)
        self._stamp = self._look()


def checked(kind: Kind, value: str) -> str:
    """A value in the one form that it is looked up by: an address as its network.

    Raises:
        BansError: it is none of its kind.
    """
    if not value or len(value.encode()) > 65_535:
        raise BansError(f"{kind}: accepted: 1 to 65535 bytes")
    if kind != "address":
        return value
    try:
        network = ipaddress.ip_network(value, strict=False)
        mapped = getattr(network.network_address, "ipv4_mapped", None)
        if mapped is not None and network.prefixlen >= _MAPPED:  # clients are looked up as IPv4
            network = ipaddress.ip_network((mapped, network.prefixlen - _MAPPED))
        return str(network)
    except ValueError:
        raise BansError(
            f"address: {value!r} is none; accepted: 192.0.2.7, 192.0.2.0/24, 2001:db8::/64"
        ) from None


def _network(address: ipaddress.IPv4Address | ipaddress.IPv6Address, length: int) -> str:
    shift = address.max_prefixlen - length
    return str(ipaddress.ip_network((int(address) >> shift << shift, length)))

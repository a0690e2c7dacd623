"""The plugin: lets in who knows the password."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from vmq_hooks import Broker, Checking, Mistake, Peer, Plugin, Refuse, hook
from vmq_hooks.files import FileOptions, WatchedFile, file_option
from vmq_hooks.replacing import replace_file
from vmq_hooks.turns import TurnsClosedError
from vmq_hooks.verdicts import RegisterVerdict

from vmq_passwd.users import Users, check_name, missing, parse
from vmq_passwd.verifier import Verifier


class PasswdConfig(FileOptions, frozen=True, forbid_unknown_fields=True):
    """The plugin's section of the configuration."""

    file: Annotated[str, file_option("The file of users")] = "passwd"
    passwords: Annotated[
        dict[str, str],
        Meta(
            description="Users and hashes that stand here, as `vmq passwd add` writes them; then the file is not read.",
            extra={"accepts": "a table of texts"},
        ),
    ] = msgspec.field(default_factory=dict)
    end_connections: Annotated[
        Literal["deleted", "changed", "never"],
        Meta(
            description="Whose connections a new file ends: those of users that it no longer has, or also of those "
            "with another password, or nobody's."
        ),
    ] = "deleted"
    unknown_users: Annotated[
        Literal["refuse", "next"],
        Meta(
            description="Users that are not in the file: refused, or for the next plugin to decide."
        ),
    ] = "refuse"
    accept_certificates: Annotated[
        bool,
        Meta(
            description="A verified certificate whose common name is the user name stands for the password."
        ),
    ] = False
    threads: Annotated[
        int, Meta(ge=1, le=64, description="Passwords that are checked at a time.")
    ] = 2
    cache_size: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000_000,
            description="Right passwords that are remembered, as keyed hashes; 0 = none.",
        ),
    ] = 100_000
    cache_seconds: Annotated[
        float, Meta(ge=0, le=31_536_000, description="Seconds for which they are.")
    ] = 86_400.0

    def __post_init__(self) -> None:
        for name in self.passwords:
            try:
                check_name(name)
            except ValueError as error:
                raise ValueError(f"passwords: {name!r}: {error}") from None

    def in_place(self) -> tuple[str, str] | None:
        if not self.passwords:
            return None
        return "passwords", "".join(f"{name}:{text}\n" for name, text in self.passwords.items())


class PasswdPlugin(Plugin):
    """Users and passwords from a file. A new one ends the connections of users that are gone.

    Who was there is kept in the data folder: who is deleted while the broker is down is gone, too.
    """

    Config = PasswdConfig

    _broker: Broker
    _config: PasswdConfig
    #: Those who were there last, and where that is kept.
    _known: dict[str, str]
    _path: Path
    _file: WatchedFile[Users]
    _verifier: Verifier

    def check(self, broker: Checking, config: PasswdConfig) -> Iterator[Mistake]:
        return WatchedFile.mistakes(broker, config, parse)

    async def start(self, broker: Broker, config: PasswdConfig) -> None:
        self._broker = broker
        self._config = config
        self._changing = asyncio.Lock()
        self._path = broker.data_dir / "users"
        self._known = _read(self._path)
        self._file = WatchedFile.follow(broker, config, parse, self._on_change)
        self._verifier = Verifier(
            broker.run_in_thread,
            time.monotonic,
            threads=config.threads,
            cache_size=config.cache_size,
            cache_seconds=config.cache_seconds,
        )
        await self._on_change()

    async def stop(self) -> None:
        """Takes a last look at the file: who takes over from here does not know whom it was that we let in."""
        self._verifier.close()
        await self._file.look(self._broker, self._on_change)

    async def _on_change(self) -> None:
        """Ends connections. What is remembered belongs to the hashes that it was checked against."""
        async with self._changing:
            now = self._file.content.marks
            if now == self._known:
                return
            await self._end(missing(self._known, now, self._config.end_connections == "changed"))
            self._known = now
            try:
                data = msgspec.json.encode(now)
                await self._broker.run_in_thread(replace_file, self._path, data, 0o600)
            except OSError as error:
                self._broker.log.error("who has a password cannot be kept: %s", error)

    async def _end(self, gone: set[str]) -> None:
        if not gone:
            return
        if self._config.end_connections == "never":
            await self._broker.drop_wills(gone)
            return
        ended = await self._broker.disconnect_users(gone)
        if ended:
            self._broker.log.info("connections ended of users that are gone or changed: %d", ended)

    @hook
    async def auth_on_register(
        self, peer: Peer, username: str | None, password: bytes | None
    ) -> RegisterVerdict:
        if username is None:
            return None
        if self._config.accept_certificates and username == peer.common_name:
            return True
        try:
            while True:
                users = self._file.content
                if username not in users and self._config.unknown_users == "next":
                    return None
                is_right = await self._verifier.verify(users, username, password or b"", peer)
                if self._file.content is users:
                    break
                # A new file came meanwhile, and has ended the connections of those who were in.
        except TurnsClosedError:
            return Refuse("vmq_passwd was reloaded", unavailable=True)
        if is_right:
            return True
        reason = "wrong password" if username in users else "unknown user"
        if username == peer.common_name:
            reason += "; its certificate counts with accept_certificates = true"
        return Refuse(reason, bad_credentials=True)


def _read(path: Path) -> dict[str, str]:
    """Who was there when the broker ran last, as far as that is known."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.MsgspecError):
        return {}

"""The plugin: lets in who knows the password."""

import time
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from vmq_hooks import Broker, Checking, Mistake, Peer, Plugin, Refuse, hook
from vmq_hooks.files import FileOptions, WatchedFile, file_option
from vmq_hooks.turns import TurnsClosedError
from vmq_hooks.verdicts import RegisterVerdict

from vmq_passwd.users import Users, check_name, parse
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

    def in_place(self) -> tuple[str, str] | None:
        if not self.passwords:
            return None
        for name in self.passwords:
            check_name(name)
        return "passwords", "".join(f"{name}:{text}\n" for name, text in self.passwords.items())


class PasswdPlugin(Plugin):
    """Users and passwords from a file. A new one ends the connections of users that are gone."""

    Config = PasswdConfig

    _broker: Broker
    _config: PasswdConfig
    _users: Users
    _file: WatchedFile[Users]
    _verifier: Verifier

    def check(self, broker: Checking, config: PasswdConfig) -> Iterator[Mistake]:
        return WatchedFile.mistakes(broker, config, parse)

    def start(self, broker: Broker, config: PasswdConfig) -> None:
        self._broker = broker
        self._config = config
        self._file = WatchedFile.follow(broker, config, parse, self._on_change)
        self._users = self._file.content
        self._verifier = Verifier(
            broker.run_in_thread,
            time.monotonic,
            threads=config.threads,
            cache_size=config.cache_size,
            cache_seconds=config.cache_seconds,
        )

    async def stop(self) -> None:
        """Takes a last look at the file: who takes over from here does not know whom it was that we let in."""
        self._verifier.close()
        await self._file.look(self._broker, self._on_change)

    async def _on_change(self) -> None:
        """Ends connections. What is remembered belongs to the hashes that it was checked against."""
        before, self._users = self._users, self._file.content
        if self._config.end_connections == "never":
            gone = before.missing_in(self._users, with_passwords=False)
            if gone:
                await self._broker.drop_wills(gone)
            return
        with_passwords = self._config.end_connections == "changed"
        gone = before.missing_in(self._users, with_passwords=with_passwords)
        ended = await self._broker.disconnect_users(gone) if gone else 0
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

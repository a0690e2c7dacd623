"""The plugin: lets in who knows the password."""

import time
from typing import Annotated, Literal

from msgspec import Meta, Struct
from vmq_hooks import Broker, Counter, Peer, Plugin, Refuse, hook
from vmq_hooks.files import WatchedFile
from vmq_hooks.verdicts import RegisterVerdict

from vmq_passwd.users import Users, parse
from vmq_passwd.verifier import BusyError, Verifier


class PasswdConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The plugin's section of the configuration."""

    file: Annotated[
        str,
        Meta(
            min_length=1,
            description="The file of users; relative to the folder of this file.",
            extra={"accepts": "a path"},
        ),
    ] = "passwd"
    reload_interval: Annotated[
        float,
        Meta(ge=0, le=86400, description="Seconds between looks at the file; 0 = never."),
    ] = 10.0
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
    max_waiting: Annotated[
        int,
        Meta(
            ge=0, le=1_000_000, description="Clients that wait for that; further ones are refused."
        ),
    ] = 100
    max_wait: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            description="Seconds that they wait at most; above the deadline, waiting counts as the plugin's failure.",
        ),
    ] = 4.0
    cache_size: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000_000,
            description="Right passwords that are remembered, as keyed hashes; 0 = none.",
        ),
    ] = 10_000
    cache_seconds: Annotated[
        float, Meta(ge=0, le=31_536_000, description="Seconds for which they are.")
    ] = 3600.0


class PasswdPlugin(Plugin):
    """Users and passwords from a file. Connected clients stay when it changes."""

    Config = PasswdConfig

    _config: PasswdConfig
    _file: WatchedFile[Users]
    _verifier: Verifier
    _busy: Counter

    def start(self, broker: Broker, config: PasswdConfig) -> None:
        path = broker.config_dir / config.file
        self._config = config
        self._file = WatchedFile(path, lambda data: parse(data, path))
        self._file.load()
        self._verifier = Verifier(
            broker.run_in_thread,
            time.monotonic,
            threads=config.threads,
            max_waiting=config.max_waiting,
            max_wait=config.max_wait,
            cache_size=config.cache_size,
            cache_seconds=config.cache_seconds,
        )
        self._busy = broker.counter(
            "passwd_busy", "Clients refused because too many passwords waited to be checked."
        )
        if config.reload_interval:
            broker.spawn(
                self._file.watch(broker, config.reload_interval, self._on_change), "passwd file"
            )

    async def _on_change(self) -> None:
        """Nothing to do: what is remembered belongs to the hashes that it was checked against."""

    @hook
    async def auth_on_register(
        self, peer: Peer, username: str | None, password: bytes | None
    ) -> RegisterVerdict:
        if username is None:
            return None
        if self._config.accept_certificates and username == peer.common_name:
            return True
        users = self._file.content
        if username not in users and self._config.unknown_users == "next":
            return None
        try:
            is_right = await self._verifier.verify(users, username, password or b"")
        except BusyError:
            self._busy.add()
            return Refuse("too many passwords wait to be checked")
        if is_right:
            return True
        reason = "wrong password" if username in users else "unknown user"
        return Refuse(reason, bad_credentials=True)

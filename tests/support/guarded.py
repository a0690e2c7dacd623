"""A broker that asks vmq_passwd and vmq_acl, whose files a test writes and has read again by SIGHUP."""

from __future__ import annotations

import base64
import hashlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.support.wire import CONNACK, Packet, Will, Wire, connect_packet
from vmq.testing.closing import Closing
from vmq.testing.process import BrokerProcess

if TYPE_CHECKING:
    from tests.conftest import BrokerFactory

#: They look at their files when they are told to, and at no other time.
CONFIG = """
[listeners.tcp]
url = "tcp://127.0.0.1:0"
[plugins.vmq_passwd]
file = "passwd"
reload_interval = 0
[plugins.vmq_acl]
file = "acl"
reload_interval = 0
"""
USERS = ("alice", "bob", "carol")


def line_of(name: str, password: str) -> str:
    """A line of a file of mosquitto's; the cheapest hash there is."""
    salt = name.encode()
    digest = hashlib.sha512(password.encode() + salt).digest()
    return f"{name}:$6${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}\n"


class Guarded(Closing):
    """The folder with the files, and the broker. Each user's password is the user's name."""

    def __init__(self, factory: BrokerFactory, folder: Path) -> None:
        self._factory = factory
        self.folder = folder
        self._env: Mapping[str, str] = {}
        self._more: tuple[str, ...] = ()
        self._config = ""
        self._wires: list[Wire] = []
        self.broker: BrokerProcess

    def start(
        self, acl: str, config: str = "", env: Mapping[str, str] | None = None, *more: str
    ) -> Self:
        """Starts it; `acl` is the file of rules."""
        self._config, self._env, self._more = config, env or {}, more
        self.folder.mkdir(exist_ok=True)
        self.write_users(*USERS)
        (self.folder / "acl").write_text(acl)
        self._start()
        return self

    def _start(self) -> None:
        file = self.folder / "vmq.toml"
        file.write_text(CONFIG + self._config)
        self.broker = self._factory(
            listen=(),
            data_dir=self.folder / "data",
            env=self._env,
            args=("--config", str(file), *self._more),
        )

    def restart(self) -> None:
        """Ends it and starts it on the same data, with the files as they are."""
        assert self.broker.terminate() == 0
        self._start()

    def write_users(self, *names: str) -> None:
        """The file of users; it counts once it is read."""
        (self.folder / "passwd").write_text("".join(line_of(each, each) for each in names))

    def reload(self, *, users: tuple[str, ...] | None = None, acl: str | None = None) -> None:
        """Has it take over new files; returns when they are in force."""
        before = self.broker.stderr_text().count("new content is in force")
        changed = 0
        if users is not None:
            self.write_users(*users)
            changed += 1
        if acl is not None:
            (self.folder / "acl").write_text(acl)
            changed += 1
        os.kill(self.broker.pid, signal.SIGHUP)
        self.broker.wait_count(before + changed, "new content is in force")

    def connect(
        self, user: str, client_id: str, *, clean: bool = True, will: Will | None = None
    ) -> Wire:
        wire, connack = self.ask(user, client_id, clean=clean, will=will)
        assert connack.return_code == 0, f"refused: {connack}"
        return wire

    def ask(
        self, user: str, client_id: str, *, clean: bool = True, will: Will | None = None
    ) -> tuple[Wire, Packet]:
        """A client of a user, and the CONNACK that it got."""
        wire = self.wire()
        packet = connect_packet(client_id, clean=clean, will=will, username=user, password=user)
        wire.send(packet)
        return wire, wire.expect(CONNACK)

    def wire(self) -> Wire:
        """A connection that nothing was sent on yet; it ends with the test."""
        wire = Wire.connect_tcp(self.broker.tcp)
        self._wires.append(wire)
        return wire

    def close(self) -> None:
        """Ends all connections; the broker is its factory's to end."""
        for wire in self._wires:
            wire.close()

"""What can be done to a broker from outside while it runs: SIGHUP, SIGUSR1, a service manager."""

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.conftest import BrokerFactory
from tests.support.until import reach
from tests.support.wire import CONNACK, Wire, connect_packet
from vmq.testing.process import BrokerProcess

LISTENERS = """
[listeners.tcp]
url = "tcp://127.0.0.1:0"
"""


class Configured:
    """A broker with a configuration file that a test may write anew."""

    def __init__(self, factory: BrokerFactory, file: Path, env: dict[str, str]) -> None:
        self.file = file
        self._factory = factory
        self._env = env
        self.broker: BrokerProcess

    def start(self, text: str = "", *arguments: str) -> Self:
        self.write(text)
        args = ("--config", str(self.file), *arguments)
        self.broker = self._factory(listen=(), env=self._env, args=args)
        return self

    def write(self, text: str) -> None:
        self.file.write_text(text + LISTENERS)

    def reload(self, text: str) -> None:
        self.write(text)
        os.kill(self.broker.pid, signal.SIGHUP)


@pytest.fixture
def configured(fresh_broker: BrokerFactory, tmp_path: Path) -> Configured:
    return Configured(fresh_broker, tmp_path / "vmq.toml", {})


def test_a_change_that_needs_a_restart_is_refused_by_name_and_nothing_applied(
    configured: Configured,
) -> None:
    running = configured.start()
    running.reload('[session]\nmax_client_id_size = 23\n[store]\ndurability = "fsync"\n')
    line = running.broker.wait_log("reload refused").string
    assert "store.durability: cannot change while the broker runs" in line
    wire = Wire.connected(running.broker.tcp, "x" * 24)
    wire.close()


def test_a_file_that_is_read_anew_is_refused_with_its_mistake_or_warned_of_as_at_the_start(
    configured: Configured,
) -> None:
    running = configured.start()
    running.reload('[queue]\ndrop = "everything"\n')
    line = running.broker.wait_log("reload refused").string
    assert f"{running.file}: queue.drop" in line
    running.reload("[queue]\nmax_age = '30m'\n")
    running.broker.wait_log('reloaded changed="queue.max_age"')
    running.broker.wait_log("warning queue.max_age: 30m is 900d, not 30min")


def test_the_level_of_the_log_changes_live(configured: Configured) -> None:
    running = configured.start('[log]\nlevel = "info"\n')
    running.reload('[log]\nlevel = "debug"\n')
    running.broker.wait_log('reloaded changed="log.level"')
    wire = Wire.connected(running.broker.tcp, "debugged")
    running.broker.wait_log("debug connected client=debugged")
    wire.close()


def test_what_the_command_line_says_still_wins(configured: Configured) -> None:
    running = configured.start("", "--log-level", "warning")
    running.reload('[log]\nlevel = "debug"\n[queue]\nqueue_type = "lifo"\n')
    line = running.broker.wait_log("reload refused").string
    assert "log.level" not in line


def messages(file: Path) -> list[str]:
    """What stands in a log of JSON lines, but for the watchdog's, who speaks of machines that are busy."""
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return [each["message"] for each in lines if each["logger"] != "vmq.watchdog"]


def test_a_log_file_is_opened_anew_on_a_signal(configured: Configured, tmp_path: Path) -> None:
    file = tmp_path / "vmq.log"
    running = configured.start(f'[log]\nfile = "{file}"\nformat = "json"\n')
    file.rename(tmp_path / "vmq.log.1")
    os.kill(running.broker.pid, signal.SIGUSR1)
    reach(lambda: file.exists() and messages(file))
    assert messages(tmp_path / "vmq.log.1") == ["started"]
    assert messages(file) == ["log opened anew"]
    assert running.broker.terminate() == 0
    assert messages(file)[-1] == "stopped"
    assert running.broker.stderr_text() == ""


#: Sends a program a signal while it begins.
EARLY = """
import os, signal, sys

class Finder:
    def find_spec(self, name, *_):
        if name == "vmq.broker":
            os.kill(os.getpid(), signal.SIGUSR1)

sys.meta_path.insert(0, Finder())
"""


def test_a_signal_that_comes_before_the_start_waits(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(EARLY)
    running = Configured(fresh_broker, tmp_path / "vmq.toml", {"PYTHONPATH": str(tmp_path)})
    file = tmp_path / "vmq.log"
    running.start(f'[log]\nfile = "{file}"\nformat = "json"\n')
    reach(lambda: sorted(messages(file)) == ["log opened anew", "started"])


def test_a_log_file_that_cannot_be_is_an_error(tmp_path: Path) -> None:
    from tests.vmq.cli.program import run

    file = tmp_path / "nowhere" / "vmq.log"
    done = run("start", "--data-dir", str(tmp_path / "data"), env={"VMQ_LOG__FILE": str(file)})
    done.fails(2, f"{file}: there is no folder {file.parent}")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_password_is_never_in_the_log(configured: Configured, form: str) -> None:
    running = configured.start(f'[log]\nlevel = "debug"\nformat = "{form}"\n')
    for client_id in ("good", "x" * 200):
        wire = Wire.connect_tcp(running.broker.tcp)
        wire.ask(connect_packet(client_id, username="u", password="s3cr3t-word"), CONNACK)
        wire.send(b"\x00\x00")
        wire.close()
    running.broker.wait_log("longer than max_client_id_size")
    assert running.broker.terminate() == 0
    assert "s3cr3t" not in running.broker.stderr_text()


def test_a_flood_of_events_is_summed_up(configured: Configured) -> None:
    running = configured.start("[log]\nflood_limit = 2\n")
    for number in range(5):
        wire = Wire.connected(running.broker.tcp, f"flood-{number}")
        wire.ended_by(b"\x00\x00")
        wire.close()
    assert running.broker.terminate() == 0
    text = running.broker.stderr_text()
    assert text.count("closed client=flood-") == 2
    assert 'warning suppressed count=3 of="closed"' in text


class Manager:
    """The service manager's end of the notification socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(path))
        self.socket.settimeout(60)

    def hear(self, wanted: str) -> list[str]:
        """The next message that says it, line by line."""
        while True:
            lines = self.socket.recv(4096).decode().splitlines()
            if wanted in lines:
                return lines


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    told = Manager(tmp_path / "notify")
    yield told
    told.socket.close()


def test_a_service_manager_hears_of_every_step(
    fresh_broker: BrokerFactory, tmp_path: Path, manager: Manager
) -> None:
    env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "300000"}
    running = Configured(fresh_broker, tmp_path / "vmq.toml", env).start()
    assert f"STATUS={running.broker.urls[0]}" in manager.hear("READY=1")
    manager.hear("WATCHDOG=1")
    manager.hear("WATCHDOG=1")
    running.reload("[queue]\nmax_online_messages = 7\n")
    assert manager.hear("RELOADING=1")[1].startswith("MONOTONIC_USEC=")
    manager.hear("READY=1")
    running.broker.terminate()
    manager.hear("STOPPING=1")

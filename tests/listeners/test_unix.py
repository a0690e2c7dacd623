"""Unix sockets, from outside."""

import os
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.listeners.conftest import ListenerFactory
from tests.support.streams import unix_wire
from tests.support.tools import require_tool
from vmq.testing.process import BrokerStartError


@pytest.fixture
def path() -> Iterator[str]:
    """Where a socket is to be; pytest's own folders have too long names."""
    with tempfile.TemporaryDirectory(prefix="vmq-") as folder:
        yield f"{folder}/mqtt.sock"


def test_mqtt_over_a_unix_socket(start: ListenerFactory, path: str) -> None:
    broker = start({"local": {"url": f"unix://{path}"}})
    assert broker.urls == [f"unix://{path}"]
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    with unix_wire(path) as wire:
        wire.connect("a")  # anonymous: whoever gets here is on this machine
        wire.subscribe(("t", 1))
        wire.publish("t", b"x", qos=1)
        wire.acknowledge(wire.expect_publish("t", b"x", qos=1))
    broker.wait_log("closed client=a peer=unix ")
    assert broker.terminate() == 0
    assert not Path(path).exists()


def test_mosquitto_comes_through_a_unix_socket(start: ListenerFactory, path: str) -> None:
    program = require_tool("mosquitto_pub")
    start({"local": {"url": f"unix://{path}"}})
    with unix_wire(path) as wire:
        wire.connect("a")
        wire.subscribe(("t", 0))
        command = [program, "--unix", path, "-t", "t", "-m", "hello", "-q", "1"]
        subprocess.run(command, check=True, timeout=30)
        wire.expect_publish("t", b"hello")


def test_mode_and_owner_are_those_of_the_options(start: ListenerFactory, path: str) -> None:
    owner = f"{os.getuid()}:{os.getgid()}"
    start({"local": {"url": f"unix://{path}", "unix_mode": "0660", "unix_owner": owner}})
    found = Path(path).stat()
    assert stat.S_IMODE(found.st_mode) == 0o660
    assert (found.st_uid, found.st_gid) == (os.getuid(), os.getgid())


def test_what_a_dead_broker_left_is_replaced(start: ListenerFactory, path: str) -> None:
    start({"local": {"url": f"unix://{path}"}}).kill()
    assert Path(path).exists()
    start({"local": {"url": f"unix://{path}"}})
    with unix_wire(path) as wire:
        wire.connect("a")


def test_a_living_socket_and_a_file_are_not_replaced(start: ListenerFactory, path: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(path)
        other.listen(1)
        with pytest.raises(BrokerStartError, match="already in use"):
            start({"local": {"url": f"unix://{path}"}})
    Path(path).unlink()
    Path(path).write_text("precious")
    with pytest.raises(BrokerStartError, match="a file that is no socket is in the way"):
        start({"local": {"url": f"unix://{path}"}})
    assert Path(path).read_text() == "precious"

"""Wills that are kept for the next start, and a broker that is killed with clients that have some."""

import errno
import os
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import pytest
from vmq_passwd import editing

from tests.conftest import BrokerFactory
from tests.support.wire import DISCONNECT_BYTES, Will, Wire
from vmq.mqtt.message import Message
from vmq.persistence.wills import LEAST, StoredWills
from vmq.protocol.publish import Publisher
from vmq.testing.process import BrokerProcess, BrokerStartError

FAILS = """
from vmq_hooks import Plugin

class Fails(Plugin):
    def start(self, broker, config):
        raise ValueError("fails at its start")
"""


class Client:
    mountpoint = "m"

    def __init__(self, number: int) -> None:
        self.client_id = f"c{number}"
        self.username = None
        self.registry = self
        self.will = Message(b"gone", b"\n\xff%d" % number, 1, True)


def left_over(folder: Path) -> list[str]:
    found = StoredWills(folder).left_over()
    assert all(each.payload == b"\n\xff" + each.client_id[1:].encode() for each in found)
    return [each.client_id for each in found]


def test_what_is_not_over_is_left_over_and_the_files_stay_short(tmp_path: Path) -> None:
    wills = StoredWills(tmp_path)
    wills.begin()
    staying = []
    for number in range(10 * LEAST):
        client = cast(Publisher, Client(number))
        wills.left(client)
        if number % 100:
            wills.over(client)
        else:
            staying.append(client)
        if number % 777 == 0:
            assert left_over(tmp_path) == [each.client_id for each in staying]
    lines = sum(each.read_bytes().count(b"\n") for each in tmp_path.iterdir())
    assert lines < 4 * LEAST
    with (tmp_path / "wills").open("ab") as file:
        file.write(b'[1,"cut')
    assert left_over(tmp_path) == [each.client_id for each in staying]
    (tmp_path / "wills").write_bytes((tmp_path / "wills").read_bytes().removesuffix(b'[1,"cut'))
    for client in staying:
        wills.over(client)
        wills.over(client)
    assert left_over(tmp_path) == []
    wills.close()
    assert not list(tmp_path.iterdir())


def test_a_disk_that_is_full_costs_what_is_not_written_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wills = StoredWills(tmp_path)
    wills.begin()
    clients = [cast(Publisher, Client(number)) for number in range(6)]
    for client in clients[:2]:
        wills.left(client)
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, line: write(file, line[:5]))
        for client in clients[2:4]:
            wills.left(client)
    wills.over(clients[0])
    wills.left(clients[4])
    assert left_over(tmp_path) == ["c1", "c4"]
    with monkeypatch.context() as full:
        full.setattr(wills, "_open", Mock(side_effect=OSError(errno.EMFILE, "no file left")))
        for _ in range(LEAST):
            wills.left(clients[5])
            wills.over(clients[5])
    assert left_over(tmp_path) == ["c1", "c4"]
    for client in clients[2:4]:
        wills.over(client)
    # The files change, and no will is lost on its way from one to the other.
    for step in (wills.left, wills.over) * LEAST:
        step(clients[5])
        with monkeypatch.context() as full:
            full.setattr(os, "write", lambda file, line: write(file, line[:5]))
            wills.left(clients[0])
            wills.over(clients[0])
    assert left_over(tmp_path) == ["c1", "c4"]
    wills.over(clients[1])
    assert left_over(tmp_path) == ["c4"]
    assert [each.message.split(":")[0] for each in caplog.records] == [
        "wills are not kept for the next start",
        "wills are kept for the next start again",
        "the file of wills grows",
        *["wills are not kept for the next start", "wills are kept for the next start again"]
        * (2 * LEAST),
    ]


def test_a_broker_that_was_killed_publishes_wills_once_before_it_lets_clients_in(
    fresh_broker: BrokerFactory,
) -> None:
    broker = fresh_broker()
    with Wire.connected(broker.tcp, "watcher", clean=False) as watcher:
        watcher.subscribe(("gone/#", 1))
    device = Wire.connected(broker.tcp, "a", will=Will("gone/a", b"", qos=1, retain=True))
    device.publish("gone/a", b"here", qos=1, retain=True)
    with Wire.connected(broker.tcp, "b", will=Will("gone/b", b"b", qos=1)) as wire:
        wire.send(DISCONNECT_BYTES)
        wire.expect_closed()
    broker.restart()
    device.close()
    with Wire.connected(broker.tcp, "watcher", clean=False) as watcher:
        for payload in (b"here", b""):
            watcher.expect_publish("gone/a", payload, qos=1)
        watcher.expect_nothing()
        watcher.subscribe(("gone/#", 1))
        watcher.expect_nothing()
    broker.restart()
    broker.wait_log("started version")
    assert "settled wills" not in broker.stderr_text()


def test_the_will_of_who_was_deleted_while_the_broker_was_down_is_not_published(
    tmp_path: Path,
) -> None:
    path = tmp_path / "passwd"
    for name in ("gone", "stays"):
        editing.add(path, name, b"1")
    fails = {"path": "fails.py", "enabled": False}
    plugins = {"vmq_passwd": {"file": str(path)}, "zfails": fails}
    (tmp_path / "fails.py").write_text(FAILS)
    with BrokerProcess.configured(data_dir=tmp_path / "data", plugins=plugins) as broker:

        def client(name: str, will: Will | None = None) -> Wire:
            return Wire.connected(broker.tcp, "c" + name, username=name, password=b"1", will=will)

        gone, stays = (Will(f"will/{name}", b"x", 1, True) for name in ("gone", "stays"))
        with client("gone", gone), client("stays", stays):
            broker.kill()
        editing.delete(path, "gone")
        other = tmp_path / "data.toml"  # a start that does not succeed takes nothing from that
        text = other.read_text()
        other.write_text(text.replace("enabled = false", "enabled = true"))
        with pytest.raises(BrokerStartError, match="fails at its start"):
            broker.restart()
        other.write_text(text)
        broker.restart()
        with client("stays") as watcher:
            watcher.subscribe(("will/#", 1))
            watcher.expect_publish("will/stays", b"x", qos=1, retain=True)
            watcher.expect_nothing()

"""A broker in the test's process, and its faults."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest
from vmq_hooks import Message, Plugin, SubscriberId, hook

import vmq
from vmq.testing import BrokerThread, MqttClient, Will


class Counting(Plugin):
    """Counts its starts and what it is told."""

    def __init__(self) -> None:
        self.starts = 0
        self.published: list[str] = []
        self.gone: list[str] = []

    def start(self, broker: object, config: object) -> None:
        self.starts += 1

    @hook
    def on_publish(self, message: Message) -> None:
        self.published.append(message.topic)

    @hook
    def on_client_gone(self, subscriber_id: SubscriberId) -> None:
        self.gone.append(subscriber_id.client_id)


def test_a_crash_keeps_what_was_acknowledged_and_the_next_start_publishes_the_wills(
    tmp_path: Path,
) -> None:
    with BrokerThread(folder=tmp_path) as broker:
        watcher = MqttClient(broker.url, "watcher", clean=False).open()
        watcher.subscribe("#", qos=1)
        watcher.close()
        url = broker.url
        lamp = MqttClient(url, "lamp", will=Will("gone", b"", 1, False)).open()
        lamp.publish("state", "on", qos=1)
        broker.crash()
        lamp.wait_closed()
        assert broker.url == url
        with MqttClient(url, "watcher", clean=False) as again:
            assert again.receive().topic == "state"
            assert again.receive().topic == "gone"
            again.publish("after", "", qos=1)
            assert again.receive().topic == "after"
        lamp.close()


def test_a_crash_loses_what_waited_for_a_commit(tmp_path: Path) -> None:
    options: dict[str, Any] = {"store": {"durability": "memory", "flush_interval": 60.0}}
    with BrokerThread(folder=tmp_path, **options) as broker:
        with MqttClient(broker.url) as client:
            client.publish("a", "lost", qos=1, retain=True)
        broker.crash()
        with MqttClient(broker.url) as client:
            client.subscribe("#", qos=1)
            client.publish("a", "new", qos=1)
            assert client.receive().payload == b"new"


def test_a_restart_keeps_it_all(tmp_path: Path) -> None:
    options: dict[str, Any] = {"store": {"durability": "memory", "flush_interval": 60.0}}
    with BrokerThread(folder=tmp_path, **options) as broker:
        broker.publish("a", "kept", qos=1, retain=True)
        addresses = broker.addresses
        broker.restart()
        assert broker.addresses == addresses
        with MqttClient(broker.url) as client:
            client.subscribe("a")
            assert client.receive().payload == b"kept"


def test_a_plugin_of_the_test_is_started_again(tmp_path: Path) -> None:
    plugin = Counting()
    with BrokerThread(folder=tmp_path, plugins={"counting": plugin}) as broker:
        with MqttClient(broker.url) as client:
            client.publish("a", "", qos=1)
        broker.crash()
        with MqttClient(broker.url) as client:
            client.publish("b", "", qos=1)
    assert plugin.starts == 2
    assert plugin.published == ["a", "b"]


def test_one_connection_drops_and_the_others_stay(tmp_path: Path) -> None:
    plugin = Counting()
    with (
        BrokerThread(folder=tmp_path, plugins={"counting": plugin}) as broker,
        MqttClient(broker.url, "a") as a,
        MqttClient(broker.url, "b") as b,
    ):
        assert broker.drop("a") == 1
        a.wait_closed()
        with pytest.raises(ConnectionError):
            a.publish("x", "", qos=1)
        b.publish("x", "", qos=1)
        assert plugin.gone == ["a"]
        assert broker.drop("nobody") == 0
        assert broker.drop() == 1
        b.wait_closed()


def test_while_it_stalls_nothing_is_answered(tmp_path: Path) -> None:
    with BrokerThread(folder=tmp_path) as broker, MqttClient(broker.url) as client:
        client.subscribe("a")
        with broker.stall():
            client.publish("a", "1")
            with socket.create_connection((broker.host, broker.port)) as newcomer:
                newcomer.settimeout(0.05)
                newcomer.sendall(b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01n")
                with pytest.raises(TimeoutError):
                    newcomer.recv(1)
        assert client.receive().payload == b"1"


async def test_a_coroutine_uses_it_without_holding_its_own_loop(tmp_path: Path) -> None:
    beats = 0

    async def beat() -> None:
        nonlocal beats
        while True:
            beats += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(beat())
    async with BrokerThread(folder=tmp_path) as broker:
        assert await broker.reach(asyncio.sleep(0, "there")) == "there"
    task.cancel()
    assert beats > 10


def test_tls_is_trusted_by_whom_it_may_be(tmp_path: Path) -> None:
    with BrokerThread(folder=tmp_path, tls=True) as broker:
        with MqttClient(broker.url, context=broker.context) as client:
            client.publish("a", "", qos=1)
        with pytest.raises(ConnectionError, match="certificate"):
            MqttClient(broker.url).open()


def test_what_it_cannot_be_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(vmq.ConfigError, match=r"queue\.drop"):
        BrokerThread(folder=tmp_path, queue={"drop": "latest"})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        broker = BrokerThread(folder=tmp_path, listen=url)
        with pytest.raises(vmq.StartError):
            broker.start()


def test_its_folder_goes_with_it_unless_it_is_the_test_s(tmp_path: Path) -> None:
    with BrokerThread() as broker:
        folder = broker.folder
        assert (folder / "data" / "store").is_dir()
    assert not folder.exists()
    with BrokerThread(folder=tmp_path):
        pass
    assert (tmp_path / "data" / "store").is_dir()

"""A broker as a process of its own that a test configures, kills, stops and starts again."""

import os
from pathlib import Path

import pytest
from vmq_hooks import Plugin

from vmq.testing import BrokerProcess, BrokerStartError, MqttClient


def test_it_is_killed_and_comes_back_where_it_was(tmp_path: Path) -> None:
    with BrokerProcess.configured(data_dir=tmp_path / "data", users={"a": "secret"}) as broker:
        url, pid = broker.url, broker.pid
        with MqttClient(url, username="a", password="secret") as client:
            client.publish("t", "kept", qos=1, retain=True)
            broker.kill()
            client.wait_closed()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        broker.restart()
        assert broker.url == url
        with pytest.raises(ConnectionRefusedError, match="code 4"):
            MqttClient(url, username="a", password="wrong").open()
        with MqttClient(url, username="a", password="secret") as client:
            client.subscribe("t")
            assert client.receive().payload == b"kept"


def test_it_is_stopped_and_goes_on(tmp_path: Path) -> None:
    with (
        BrokerProcess.configured(data_dir=tmp_path / "data") as broker,
        MqttClient(broker.url) as client,
    ):
        client.subscribe("t")
        with broker.stall():
            client.publish("t", "1")
            with pytest.raises(TimeoutError):
                client.receive(0.05)
        assert client.receive().payload == b"1"


def test_what_it_left_is_removed_with_it() -> None:
    with BrokerProcess.configured(queue={"drop": "oldest"}) as broker:
        folder = broker.data_dir
        config = folder.with_name(f"{folder.name}.toml")
        assert 'drop = "oldest"' in config.read_text()
    assert not folder.exists()
    assert not config.exists()


def test_what_cannot_be_is_told(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="name its path"):
        BrokerProcess.configured(data_dir=tmp_path / "data", plugins={"mine": Plugin()})
    with pytest.raises(BrokerStartError, match=r"queue\.drop"):
        BrokerProcess.configured(data_dir=tmp_path / "data", queue={"drop": "latest"})
    with pytest.raises(BrokerStartError, match=r"not ready after 0 s, at \d{4}-[-0-9]+T[:.0-9]+Z"):
        BrokerProcess.start(data_dir=tmp_path / "slow", timeout=0)

"""The section [cluster]."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.vmq.refusals import refused
from vmq.config import Config
from vmq.config_load import load


def test_by_default_there_is_no_cluster() -> None:
    assert Config().cluster.listen == ""


def test_the_environment_states_a_node() -> None:
    environ = {
        "VMQ_CLUSTER__NODE_NAME": "a",
        "VMQ_CLUSTER__LISTEN": "tcp://127.0.0.1:0",
        "VMQ_CLUSTER__JOIN": '["tcp://127.0.0.1:44053"]',
    }
    cluster = load(None, environ).config.cluster
    assert (cluster.node_name, cluster.join) == ("a", ["tcp://127.0.0.1:44053"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('node_name = "a b"', "letters, digits"),
        ('listen = "127.0.0.1:1"', "is no address: tcp://HOST:PORT or ipc://PATH"),
        ('listen = "tcp://10.0.0.1:1"', "needs a cluster key"),
        ('listen = "tcp://127.0.0.1:0"\njoin = ["tcp://10.0.0.1:1"]', "needs a cluster key"),
        ('listen = "tcp://127.0.0.1:0"\njoin = ["b"]', "cluster.join"),
        ('join = ["tcp://127.0.0.1:1"]', "no cluster without cluster.listen"),
        ('advertise = "tcp://127.0.0.1:1"', "no cluster without cluster.listen"),
        ('listen = "tcp://0.0.0.0:1"\nkey_file = "k"', "is no address that other nodes can use"),
        ("heartbeat_timeout = 1.5", "at least twice heartbeat_interval, which is 1"),
        ("dead_node_timeout = -1", "0 to 31536000"),
    ],
)
def test_what_cannot_work_is_refused(file: Path, text: str, line: str) -> None:
    file.write_text(f"[cluster]\n{text}\n")
    lines = refused(path=file)
    assert len(lines) == 1
    assert line in lines[0]
    assert "cluster." in lines[0]


def test_with_a_key_other_machines_may_be_reached(file: Path) -> None:
    listen = 'listen = "tcp://0.0.0.0:44053"\nadvertise = "tcp://10.0.0.1:44053"'
    file.write_text(f'[cluster]\n{listen}\njoin = ["tcp://10.0.0.2:44053"]\nkey_file = "k"\n')
    assert load(file).config.cluster.key_file == "k"

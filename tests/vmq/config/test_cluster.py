"""The section [cluster]."""

from pathlib import Path

import pytest

from tests.vmq.refusals import refused
from vmq.clustering.messages.codec import HEAD, encode
from vmq.clustering.messages.publishes import RemotePublish
from vmq.config.cluster import LARGEST_PACKET
from vmq.config.load import load
from vmq.config.options import Config
from vmq_cluster.messages import MAX_PAYLOAD


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
        ('listen = "127.0.0.1:1"', "is no address; accepted: tcp://HOST:PORT, ipc://PATH"),
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
    assert lines[0].startswith(("cluster.", str(file)))


def test_with_a_key_other_machines_may_be_reached(file: Path) -> None:
    listen = 'listen = "tcp://0.0.0.0:44053"\nadvertise = "tcp://10.0.0.1:44053"'
    file.write_text(f'[cluster]\n{listen}\njoin = ["tcp://10.0.0.2:44053"]\nkey_file = "k"\n')
    assert load(file).config.cluster.key_file == "k"


def test_no_packet_is_larger_than_what_can_go_to_another_node(tmp_path: Path) -> None:
    file = tmp_path / "vmq.toml"
    node = '[cluster]\nlisten = "tcp://127.0.0.1:0"\n'
    for size, extra in ((LARGEST_PACKET, node), (LARGEST_PACKET + 1, "")):
        file.write_text(f"[session]\nmax_packet_size = {size}\n{extra}")
        assert load(file, {}).config.session.max_packet_size == size
    text = f"[session]\nmax_packet_size = {LARGEST_PACKET + 1}\n{node}"
    file.write_text(text)
    [line] = refused(path=file, environ={})
    assert "session.max_packet_size" in line
    assert f"at most {LARGEST_PACKET} with cluster.listen" in line


def test_the_largest_publish_fits_into_a_lane() -> None:
    topic = b"t" * 65_535
    group = "$share/g/" + "t" * 65_000
    payload = bytes(LARGEST_PACKET - len(topic) - 9)
    publish = RemotePublish(topic, payload, 2, "m" * 255, group, 8)
    assert len(encode(publish)) + HEAD + 1000 < MAX_PAYLOAD

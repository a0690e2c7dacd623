"""The brokers that are started for a comparison, and that nothing of them stays."""

import socket
import sys
from pathlib import Path

import pytest

from vmq.bench import peers
from vmq.bench.load.options import BenchError
from vmq.bench.peers import BenchPeer, RunningPeer, find_peers, known_peers


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_which", lambda _name: None)
    found, missing = find_peers(known_peers())
    assert missing == ["mosquitto", "nats-server"]
    assert [peer.name for peer in found] == ["vmq", "amqtt"]


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="known are vmq, mosquitto, nats-server, amqtt"):
        find_peers(["vmq", "frog"])


@pytest.mark.parametrize("name", ["vmq", "mosquitto", "amqtt"])
def test_a_peer_answers_while_it_is_wanted_and_leaves_nothing_behind(name: str) -> None:
    (peer,), _ = find_peers([name])
    with RunningPeer(peer) as running:
        assert running.address.host == "127.0.0.1"
        process, folder = running._process, running._folder
        assert process is not None
        assert folder is not None
        assert process.pid == running.pid
        assert folder.is_dir()
        socket.create_connection(("127.0.0.1", running.address.port), timeout=20).close()
    assert process.returncode is not None
    assert not folder.exists()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", running.address.port), timeout=20)


def test_a_broker_that_does_not_start_is_an_error_with_its_last_words() -> None:
    folders: list[Path] = []

    def command(folder: Path, _port: int) -> list[str]:
        folders.append(folder)
        return [sys.executable, "-c", "raise SystemExit('no, thanks')"]

    with pytest.raises(BenchError, match="frog ended while starting: no, thanks"):
        RunningPeer(BenchPeer("frog", "1", command)).__enter__()
    assert len(folders) == 3
    assert not any(folder.exists() for folder in folders)


def test_a_broker_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_STOP", 0.2)
    program = """
import signal, socket, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection, _ = server.accept()
    connection.sendall(bytes((0x20, 2, 0, 0)))
    connection.close()
"""
    peer = BenchPeer("mule", "1", lambda _folder, port: [sys.executable, "-c", program, str(port)])
    with RunningPeer(peer) as running:
        process = running._process
        assert process is not None
    assert process.returncode == -9


def test_options_for_vmq_do_not_reach_the_peers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VMQ_QUEUE__DROP", "oldest")
    monkeypatch.setenv("OTHER", "1")
    environment = peers._clean_environment()
    assert "VMQ_QUEUE__DROP" not in environment
    assert environment["OTHER"] == "1"

"""What survives a restart of the broker: the sessions and retained messages of its data folder."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conformance.peers import Peers
from tests.conftest import BrokerFactory
from tests.support import wire as mqtt


class Restarts:
    """A broker that a test stops and starts again over the same data folder."""

    def __init__(self, start: BrokerFactory, data_dir: Path, stack: ExitStack) -> None:
        self._start = start
        self._data_dir = data_dir
        self._stack = stack
        self._broker = start(data_dir=data_dir)

    def peers(self) -> Peers:
        """Clients of the broker as it runs now; ids and topics stay the same."""
        return Peers(self._broker, "r", self._stack)

    def stop_and_start(self) -> Peers:
        """Stop it cleanly (exit code 0) and start the next one."""
        assert self._broker.terminate() == 0
        return self._again()

    def kill_and_start(self) -> Peers:
        self._broker.kill()
        return self._again()

    def _again(self) -> Peers:
        self._broker = self._start(data_dir=self._data_dir)
        return self.peers()


Restart = Callable[[Restarts], Peers]


@pytest.fixture
def restarts(fresh_broker: BrokerFactory, tmp_path: Path) -> Iterator[Restarts]:
    with ExitStack() as stack:
        yield Restarts(fresh_broker, tmp_path, stack)


@pytest.mark.parametrize("restart", [Restarts.stop_and_start, Restarts.kill_and_start])
def test_expected_session_survives(restarts: Restarts, restart: Restart) -> None:
    """Subscriptions, messages in flight, released and waiting ones are there after a restart."""
    peers = restarts.peers()
    topic = peers.topic("a")
    wire = peers.subscriber((topic, 2), part="s", clean=False)
    for number, qos in enumerate((1, 2, 2)):
        peers.publish(topic, b"%d" % number, qos=qos)
    sent = [wire.expect_publish(topic, b"%d" % number) for number in range(3)]
    wire.pubrec(sent[2].packet_id)
    wire.expect(mqtt.PUBREL)
    wire.expect_nothing()
    wire.close()
    peers.publish(topic, b"waiting", qos=2)

    peers = restart(restarts)
    again = peers.resume("s")
    repeats = [again.recv_packet() for _ in range(4)]
    identifiers = [got.packet_id for got in sent]
    seen = [(got.first, got.packet_id) for got in repeats[:3]]
    assert sorted(seen) == sorted(zip((0x3A, 0x3C, 0x62), identifiers, strict=True))
    assert (repeats[3].first, repeats[3].payload) == (0x34, b"waiting")
    peers.publish(topic, b"later", qos=1)
    again.expect_publish(topic, b"later", qos=1)


def test_expected_received_qos_2_survives(restarts: Restarts) -> None:
    """A QoS 2 PUBLISH acknowledged by PUBREC and repeated after a restart is delivered once."""
    peers = restarts.peers()
    topic = peers.topic("a")
    peers.subscriber((topic, 2), part="s", clean=False).disconnect()
    publisher = peers.client("p", clean=False)
    publisher.ask(mqtt.publish_packet(topic, b"once", qos=2, packet_id=5), mqtt.PUBREC)
    peers = restarts.kill_and_start()
    publisher = peers.resume("p")
    publisher.ask(mqtt.publish_packet(topic, b"once", qos=2, packet_id=5, dup=True), mqtt.PUBREC)
    publisher.pubrel(5)
    publisher.expect(mqtt.PUBCOMP)
    wire = peers.resume("s")
    wire.acknowledge(wire.expect_publish(topic, b"once", qos=2))
    wire.expect_nothing()


def test_expected_retained_survive(restarts: Restarts) -> None:
    """Retained messages, and their erasure, outlive a restart."""
    peers = restarts.peers()
    for part in ("kept", "erased"):
        peers.publish(peers.topic(part), part.encode(), qos=1, retain=True)
    peers.publish(peers.topic("erased"), b"", qos=1, retain=True)
    peers = restarts.kill_and_start()
    peers.expect_retained(peers.topic("#"), peers.topic("kept"), b"kept", 1)


def test_expected_ended_sessions_stay_ended(restarts: Restarts) -> None:
    """A session that clean session 1 ended, and a filter that was removed, do not come back."""
    peers = restarts.peers()
    topic = peers.topic("a")
    peers.subscriber((topic, 1), part="gone", clean=False).disconnect()
    peers.subscriber((topic, 1), part="gone", clean=True).disconnect()
    kept = peers.subscriber((topic, 1), part="kept", clean=False)
    kept.unsubscribe(topic)
    kept.disconnect()
    peers = restarts.kill_and_start()
    peers.publish(topic, b"x", qos=1)
    wire = peers.raw()
    assert wire.connect(peers.id("gone"), clean=False).session_present == 0
    wire.expect_nothing()
    peers.resume("kept").expect_nothing()

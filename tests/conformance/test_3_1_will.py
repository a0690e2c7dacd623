"""Section 3.1.2: the will."""

from collections.abc import Callable

import pytest

from tests.conformance.peers import Peers
from tests.conftest import BrokerFactory
from tests.support.wire import Will, Wire, connect_packet
from vmq.testing.process import BrokerProcess


def end_by_cut(peers: Peers, part: str, will: Will) -> None:
    peers.client(part, will=will).close()


def end_by_keep_alive(peers: Peers, part: str, will: Will) -> None:
    """The connection ends by silence."""
    peers.client(part, will=will, keep_alive=1).expect_closed()


def end_by_error(peers: Peers, part: str, will: Will) -> None:
    """The server ends the connection for a protocol error."""
    wire = peers.client(part, will=will)
    wire.ended_by(b"\xf0\x00")


def end_by_takeover(peers: Peers, part: str, will: Will) -> None:
    """The server ends the connection for a newer one under the same id."""
    old = peers.client(part, will=will)
    peers.client(part)
    old.expect_closed()


@pytest.mark.parametrize("end", [end_by_cut, end_by_keep_alive, end_by_error, end_by_takeover])
def test_mqtt_3_1_2_8_will_is_published(
    peers: Peers, end: Callable[[Peers, str, Will], None]
) -> None:
    """However a connection ends without DISCONNECT, its will is published."""
    watcher = peers.watcher(qos=2)
    will = Will(peers.topic("will"), b"gone", qos=1)
    end(peers, "w", will)
    watcher.acknowledge(watcher.expect_publish(will.topic, will.payload, qos=1, retain=False))
    peers.expect_no_more(watcher)


def test_mqtt_3_1_2_10_published_once(peers: Peers, watcher: Wire) -> None:
    """A published will is gone: later connections of the client do not repeat it."""
    will = Will(peers.topic("will"), b"gone")
    peers.client("w", clean=False, will=will).close()
    watcher.expect_publish(will.topic, will.payload)
    peers.client("w", clean=False).close()
    peers.settle("w", clean=False)
    peers.client("w", clean=True).close()
    peers.expect_no_will(watcher, "w")


def test_mqtt_3_1_2_10_disconnected_and_gone(peers: Peers, watcher: Wire) -> None:
    """A will that DISCONNECT removed does not come with the end of a later connection."""
    will = Will(peers.topic("will"), b"gone")
    peers.client("w", clean=False, will=will).disconnect()
    peers.client("w", clean=False).close()
    peers.expect_no_will(watcher, "w")


def test_mqtt_3_1_2_12_no_will_no_message(
    fresh_broker: BrokerFactory, peers_at: Callable[[BrokerProcess], Peers]
) -> None:
    """The cut of a client without a will brings nothing to a subscriber to all topics."""
    peers = peers_at(fresh_broker())
    watcher = peers.subscriber(("#", 0))
    peers.client("w").close()
    peers.expect_no_will(watcher, "w")


def test_mqtt_3_1_2_14_will_qos_3(peers: Peers, watcher: Wire) -> None:
    """Will QoS 3 is refused: closed without CONNACK, and no will is published."""
    peers.refuses(connect_packet(peers.id("w"), will=Will(peers.topic("will"), b"x", qos=3)))
    peers.expect_no_will(watcher, "w")


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt_3_1_2_14_will_qos_and_retain(peers: Peers, qos: int, retain: bool) -> None:
    """A will is delivered at its QoS, and is there for those who subscribe later if will retain is 1."""
    watcher = peers.watcher(qos=2)
    will = Will(peers.topic("will"), b"gone", qos=qos, retain=retain)
    peers.client("w", will=will).close()
    watcher.acknowledge(watcher.expect_publish(will.topic, will.payload, qos=qos, retain=False))
    peers.expect_no_more(watcher)
    if retain:
        peers.expect_retained(peers.topic("will"), will.topic, will.payload, qos)
    else:
        peers.expect_none_retained(peers.topic("will"))

"""Section 3.1.2: the will."""

from collections.abc import Callable

import pytest

from tests.conformance.peers import Peers
from tests.conftest import BrokerFactory
from tests.support.wire import Will, Wire, connect_packet, encode_text
from vmq.testing.process import BrokerProcess

WILL, QOS_1, QOS_2, RETAIN, CLEAN = 0x04, 0x08, 0x10, 0x20, 0x02


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


def test_mqtt_3_1_2_9_will_fields_missing(peers: Peers) -> None:
    """Will flag 1 and a will field missing: closed without CONNACK."""
    topic = encode_text("a")
    for tail in (b"", topic[:1], topic[:2], topic, topic + b"\x00", topic + b"\x00\x05gone"):
        peers.refuses(connect_packet(peers.id(), flags=WILL | CLEAN, tail=tail))


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


@pytest.mark.parametrize("bits", [QOS_1, QOS_2, RETAIN, QOS_1 | RETAIN, QOS_2 | RETAIN])
def test_mqtt_3_1_2_11_will_bits_without_will(peers: Peers, bits: int) -> None:
    """Will flag 0 with another will bit set: closed without CONNACK."""
    peers.refuses(connect_packet(peers.id(), flags=CLEAN | bits))


def test_mqtt_3_1_2_11_will_fields_without_will(peers: Peers) -> None:
    """Will flag 0 with will fields in the payload: closed without CONNACK."""
    fields = encode_text("a") + encode_text("gone")
    peers.refuses(connect_packet(peers.id(), flags=CLEAN, tail=fields))


def test_mqtt_3_1_2_12_no_will_no_message(
    fresh_broker: BrokerFactory, peers_at: Callable[[BrokerProcess], Peers]
) -> None:
    """The cut of a client without a will brings nothing to a subscriber to all topics."""
    peers = peers_at(fresh_broker())
    watcher = peers.subscriber(("#", 0))
    peers.client("w").close()
    peers.expect_no_will(watcher, "w")


@pytest.mark.parametrize("bits", [QOS_1, QOS_2, QOS_1 | QOS_2])
def test_mqtt_3_1_2_13_will_qos_without_will(peers: Peers, bits: int) -> None:
    """Will flag 0 and a will QoS other than 0: closed without CONNACK."""
    peers.refuses(connect_packet(peers.id(), flags=CLEAN | bits))


def test_mqtt_3_1_2_14_will_qos_3(peers: Peers, watcher: Wire) -> None:
    """Will QoS 3 is refused: closed without CONNACK, and no will is published."""
    peers.refuses(connect_packet(peers.id("w"), will=Will(peers.topic("will"), b"x", qos=3)))
    peers.expect_no_will(watcher, "w")


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt_3_1_2_14_will_qos(peers: Peers, qos: int) -> None:
    """A will of QoS 0, 1 or 2 is delivered at that QoS."""
    watcher = peers.watcher(qos=2)
    will = Will(peers.topic("will"), b"gone", qos=qos)
    peers.client("w", will=will).close()
    watcher.acknowledge(watcher.expect_publish(will.topic, will.payload, qos=qos))
    peers.expect_no_more(watcher)


def test_mqtt_3_1_2_15_will_retain_without_will(peers: Peers) -> None:
    """Will flag 0 and will retain 1: closed without CONNACK."""
    peers.refuses(connect_packet(peers.id(), flags=CLEAN | RETAIN))


def test_mqtt_3_1_2_16_will_not_retained(peers: Peers) -> None:
    """A will without will retain is not there for those who subscribe later."""
    topic = peers.topic("will")
    watcher = peers.subscriber((topic, 0))
    peers.client("w", will=Will(topic, b"gone")).close()
    watcher.expect_publish(topic, b"gone", retain=False)
    peers.expect_none_retained(topic)


def test_mqtt_3_1_2_17_will_retained(peers: Peers) -> None:
    """A will with will retain is kept, and comes with RETAIN 1 to those who subscribe later."""
    topic = peers.topic("will")
    watcher = peers.subscriber((topic, 0))
    peers.client("w", will=Will(topic, b"gone", qos=1, retain=True)).close()
    watcher.expect_publish(topic, b"gone", retain=False)
    peers.expect_retained(topic, topic, b"gone", 1)

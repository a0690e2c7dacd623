"""Section 3.3.1.3: retained messages."""

import pytest

from tests.conformance.peers import Peers
from tests.support.wire import PINGREQ_BYTES, Packet, Wire, publish_packet


def drain(wire: Wire) -> list[Packet]:
    """All PUBLISH packets that came so far, acknowledged."""
    found: list[Packet] = []
    wire.send(PINGREQ_BYTES)
    while (received := wire.recv_packet()).first != 0xD0:
        found.append(received)
    for received in found:
        wire.acknowledge(received)
    return found


@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("kept", [0, 1, 2])
def test_mqtt_3_3_1_5_kept_with_its_qos(peers: Peers, topic: str, kept: int, granted: int) -> None:
    """A later subscriber gets the message at the lower of kept and granted QoS."""
    peers.publish(topic, b"kept", qos=kept, retain=True)
    wire = peers.subscriber((topic, granted))
    wire.expect_publish(topic, b"kept", qos=min(kept, granted), retain=True)
    wire.expect_nothing()


def test_mqtt_3_3_1_6_latest_of_each_topic(peers: Peers) -> None:
    """A new subscription brings the latest retained message of each topic it matches."""
    topics = [peers.topic(f"a/{n}") for n in range(5)] + [peers.topic("a"), peers.topic("a/0/b")]
    for text in (b"older", b"latest"):
        for topic in topics:
            peers.publish(topic, text, qos=1, retain=True)
    peers.publish(peers.topic("b"), b"another", qos=1, retain=True)
    found = drain(peers.subscriber((peers.topic("a/#"), 1)))
    assert sorted(got.topic for got in found) == sorted(topics)
    assert {got.payload for got in found} == {b"latest"}
    found = drain(peers.subscriber((peers.topic("a/+"), 1)))
    assert sorted(got.topic for got in found) == topics[:5]
    found = drain(peers.subscriber((peers.topic("a/0"), 1)))
    assert [got.topic for got in found] == topics[:1]


def test_mqtt_3_3_1_7_qos_0_ousts_the_older(peers: Peers, topic: str) -> None:
    """A retained QoS 0 message takes the place of the topic's older one, whatever its QoS."""
    peers.publish(topic, b"older", qos=2, retain=True)
    peers.publish(topic, b"newer", qos=0, retain=True)
    peers.expect_retained(topic, topic, b"newer", 0)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt_3_3_1_9_retain_clear_for_standing_subscriptions(
    peers: Peers, topic: str, qos: int
) -> None:
    """Those already subscribed see RETAIN 0, though the publisher set it."""
    wire = peers.subscriber((topic, 2))
    peers.publish(topic, b"x", qos=qos, retain=True)
    wire.acknowledge(wire.expect_publish(topic, b"x", qos=qos, retain=False))
    wire.expect_nothing()


def test_mqtt_3_3_1_9_retain_clear_after_absence(peers: Peers, topic: str) -> None:
    """A stored subscription stands already: what it gathered has RETAIN 0."""
    peers.subscriber((topic, 1), part="s", clean=False).disconnect()
    peers.publish(topic, b"x", qos=1, retain=True)
    peers.resume("s").expect_publish(topic, b"x", qos=1, retain=False)


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt_3_3_1_10_empty_message_erases(peers: Peers, topic: str, qos: int) -> None:
    """An empty retained PUBLISH is delivered as any message and erases what was retained."""
    peers.publish(topic, b"kept", qos=1, retain=True)
    wire = peers.subscriber((peers.topic("#"), 2))
    wire.acknowledge(wire.expect_publish(topic, b"kept", retain=True))
    peers.publish(topic, b"", qos=qos, retain=True)
    wire.acknowledge(wire.expect_publish(topic, b"", qos=qos, retain=False))
    peers.expect_none_retained(topic)


def test_mqtt_3_3_1_11_empty_message_is_not_kept(peers: Peers, topic: str) -> None:
    """An empty retained PUBLISH to a topic without retained message leaves nothing there."""
    peers.publish(topic, b"", qos=1, retain=True)
    peers.expect_none_retained(topic)


@pytest.mark.parametrize("payload", [b"other", b""])
def test_mqtt_3_3_1_12_no_retain_no_change(peers: Peers, payload: bytes) -> None:
    """A PUBLISH with RETAIN 0 neither stores, nor replaces, nor erases."""
    topic, bare = peers.topic("a"), peers.topic("b")
    peers.publish(topic, b"kept", qos=1, retain=True)
    peers.publish(topic, payload, qos=1)
    peers.publish(bare, payload, qos=1)
    peers.expect_retained(topic, topic, b"kept", 1)
    peers.expect_none_retained(bare)


def test_mqtt_3_3_1_12_within_one_segment(peers: Peers, wire: Wire, topic: str) -> None:
    """RETAIN counts for the very PUBLISH that has it, however close they stand."""
    wire.send(
        publish_packet(topic, b"1", retain=True),
        publish_packet(topic, b"2"),
        publish_packet(topic, b"3", retain=True),
        publish_packet(topic, b"4"),
    )
    wire.expect_nothing()
    peers.expect_retained(topic, topic, b"3", 0)

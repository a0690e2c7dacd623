"""Section 3.3: PUBLISH, its flags and its topic. Retained messages are in test_3_3_retain.py."""

import pytest

from tests.conformance.peers import Peers
from tests.support import wire as mqtt


def test_mqtt_3_3_1_2_qos_0_received_with_dup(peers: Peers, watcher: mqtt.Wire) -> None:
    """QoS 0 with DUP 1 from a client: our choice is to close, and nobody receives it."""
    for retain in (False, True):
        peers.closes(mqtt.publish_packet(peers.topic("a"), b"x", dup=True, retain=retain))
    peers.expect_no_more(watcher)


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt_3_3_1_3_dup_is_not_handed_on(peers: Peers, topic: str, qos: int) -> None:
    """A publisher's DUP 1 does not show at the subscribers, at that QoS or at QoS 0."""
    wire, other = peers.subscriber((topic, qos)), peers.subscriber((topic, 0))
    publisher = peers.client()
    publisher.send(mqtt.publish_packet(topic, b"x", qos=qos, packet_id=1, dup=True))
    if qos == 2:
        publisher.expect(mqtt.PUBREC)
        publisher.pubrel(1)
    wire.expect_publish(topic, b"x", qos=qos, dup=False)
    other.expect_publish(topic, b"x", qos=0, dup=False)


@pytest.mark.parametrize("first", [0x36, 0x37, 0x3E, 0x3F])
def test_mqtt_3_3_1_4_qos_3(peers: Peers, first: int, watcher: mqtt.Wire) -> None:
    """Both QoS bits set: closed, nobody receives it."""
    peers.closes(mqtt.packet(first, mqtt.encode_text(peers.topic("a")) + b"\x00\x01x"))
    peers.expect_no_more(watcher)


@pytest.mark.parametrize("topic", ["+", "#", "a/+", "a/#", "+/a", "a/+/b", "a+", "a#b", "#/a"])
def test_mqtt_3_3_2_2_wildcard_in_topic(peers: Peers, topic: str, watcher: mqtt.Wire) -> None:
    """A topic name with a wildcard anywhere closes the connection, and nobody receives it."""
    for name in (topic, peers.topic(topic)):
        peers.closes_for_topic(name)
    peers.expect_no_more(watcher)


def test_mqtt_3_3_4_1_answers(wire: mqtt.Wire, topic: str) -> None:
    """QoS 0 gets no answer, QoS 1 one PUBACK, QoS 2 one PUBREC, with the identifiers."""
    wire.send(mqtt.publish_packet(topic, b"x"))
    wire.expect_nothing()
    wire.ask(mqtt.publish_packet(topic, b"x", qos=1, packet_id=258), b"\x40\x02\x01\x02")
    wire.expect_nothing()
    wire.ask(mqtt.publish_packet(topic, b"x", qos=2, packet_id=772), b"\x50\x02\x03\x04")
    wire.expect_nothing()
    wire.ask(mqtt.pubrel_packet(772), b"\x70\x02\x03\x04")
    wire.expect_nothing()


@pytest.mark.parametrize("order", [1, -1])
def test_mqtt_3_3_5_1_highest_qos_of_overlapping_filters(peers: Peers, order: int) -> None:
    """Of several filters of one client that match, the highest QoS counts.

    Extra copies would be allowed; our choice is a single one.
    """
    topic = peers.topic("a/b")
    pairs = [(peers.topic("a/#"), 0), (topic, 2), (peers.topic("+/b"), 1)]
    wire = peers.client()
    for pair in pairs[::order]:
        wire.subscribe(pair)
    for qos in (0, 1, 2):
        peers.publish(topic, b"%d" % qos, qos=qos)
        wire.acknowledge(wire.expect_publish(topic, b"%d" % qos, qos=qos))
        wire.expect_nothing()

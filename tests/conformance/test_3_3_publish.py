"""Section 3.3: PUBLISH, its flags and its topic. Retained messages are in test_3_3_retain.py."""

import pytest

from tests.conformance.peers import ILL_FORMED, Peers
from tests.support import wire as mqtt


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt_3_3_1_1_repeats_have_dup(peers: Peers, topic: str, qos: int) -> None:
    """A PUBLISH that is sent another time after resuming has DUP 1, and had 0 before."""
    wire = peers.subscriber((topic, 2), part="s", clean=False)
    peers.publish(topic, b"x", qos=qos)
    wire.expect_publish(topic, b"x", qos=qos, dup=False)
    for _ in range(2):
        wire.close()
        wire = peers.resume("s")
        wire.expect_publish(topic, b"x", qos=qos, dup=True)


def test_mqtt_3_3_1_2_qos_0_sent_without_dup(peers: Peers, topic: str) -> None:
    """QoS 0 goes out with DUP 0, also where the publisher's QoS 1 had DUP 1."""
    wire = peers.subscriber((topic, 0))
    peers.publish(topic, b"0")
    wire.expect_publish(topic, b"0", qos=0, dup=False)
    peers.client().send(mqtt.publish_packet(topic, b"1", qos=1, packet_id=1, dup=True))
    wire.expect_publish(topic, b"1", qos=0, dup=False)


def test_mqtt_3_3_1_2_qos_0_received_with_dup(peers: Peers, watcher: mqtt.Wire) -> None:
    """QoS 0 with DUP 1 from a client: our choice is to close, and nobody receives it."""
    for retain in (False, True):
        peers.closes(mqtt.publish_packet(peers.topic("a"), b"x", dup=True, retain=retain))
    peers.expect_no_more(watcher)


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt_3_3_1_3_dup_is_not_handed_on(peers: Peers, topic: str, qos: int) -> None:
    """A publisher's DUP 1 does not show at the subscribers."""
    wire = peers.subscriber((topic, qos))
    publisher = peers.client()
    publisher.send(mqtt.publish_packet(topic, b"x", qos=qos, packet_id=1, dup=True))
    if qos == 2:
        publisher.expect(mqtt.PUBREC)
        publisher.pubrel(1)
    wire.expect_publish(topic, b"x", qos=qos, dup=False)


@pytest.mark.parametrize("first", [0x36, 0x37, 0x3E, 0x3F])
def test_mqtt_3_3_1_4_qos_3(peers: Peers, first: int, watcher: mqtt.Wire) -> None:
    """Both QoS bits set: closed, nobody receives it."""
    peers.closes(mqtt.packet(first, mqtt.encode_text(peers.topic("a")) + b"\x00\x01x"))
    peers.expect_no_more(watcher)


@pytest.mark.parametrize("kind", ILL_FORMED)
def test_mqtt_3_3_2_1_topic_ill_formed(peers: Peers, kind: str) -> None:
    """A topic name that is no UTF-8 closes the connection, at each QoS."""
    topic = peers.name.encode() + b"/" + ILL_FORMED[kind]
    watcher = peers.watcher(qos=2)
    peers.closes(mqtt.publish_packet(topic, b"x"))
    for qos in (1, 2):
        peers.closes(mqtt.publish_packet(topic, b"x", qos=qos, packet_id=1))
    peers.expect_no_more(watcher)


@pytest.mark.parametrize("first", [0x30, 0x32, 0x34])
def test_mqtt_3_3_2_1_topic_cut_short(peers: Peers, first: int) -> None:
    """A PUBLISH that ends inside its topic name, or before it, closes the connection."""
    for body in (b"", b"\x00", b"\x00\x01", b"\x00\x05abcd", b"\xff\xffabcd\x00\x01"):
        peers.closes(mqtt.packet(first, body))


@pytest.mark.parametrize("topic", ["+", "#", "a/+", "a/#", "+/a", "a/+/b", "a+", "a#b", "#/a"])
def test_mqtt_3_3_2_2_wildcard_in_topic(peers: Peers, topic: str, watcher: mqtt.Wire) -> None:
    """A topic name with a wildcard anywhere closes the connection, and nobody receives it."""
    for name in (topic, peers.topic(topic)):
        peers.closes(mqtt.publish_packet(name, b"x"))
        for qos in (1, 2):
            peers.closes(mqtt.publish_packet(name, b"x", qos=qos, packet_id=1, retain=True))
    peers.expect_no_more(watcher)


def test_mqtt_3_3_2_3_topics_match_the_filter(peers: Peers) -> None:
    """Whatever arrives stands on a topic that a filter of the client matches."""
    one = peers.subscriber((peers.topic("a/+"), 0))
    both = peers.subscriber((peers.topic("a/b"), 0), (peers.topic("c/#"), 0))
    for topic in ("a/b", "a/b/c", "a/c", "c", "c/d/e", "d", "a"):
        peers.publish(peers.topic(topic), topic.encode())
    for topic in ("a/b", "a/c"):
        one.expect_publish(peers.topic(topic), topic.encode())
    for topic in ("a/b", "c", "c/d/e"):
        both.expect_publish(peers.topic(topic), topic.encode())
    peers.expect_no_more(one, peers.topic("a/z"))
    peers.expect_no_more(both, peers.topic("c/z"))


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

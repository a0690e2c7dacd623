"""Section 3.8: SUBSCRIBE."""

import pytest

from tests.conformance.peers import ILL_FORMED, Peers
from tests.support import wire as mqtt


def test_mqtt_3_8_1_1_wrong_flags(peers: Peers) -> None:
    """SUBSCRIBE with other flags than 0010: closed, no SUBACK."""
    for first in range(0x80, 0x90):
        if first != 0x82:
            peers.closes(mqtt.subscribe_packet(1, (peers.topic("a"), 0), first=first))


@pytest.mark.parametrize("kind", ILL_FORMED)
def test_mqtt_3_8_3_1_ill_formed_filter(peers: Peers, kind: str) -> None:
    """A filter that is no UTF-8 closes the connection, also behind good ones: no SUBACK."""
    bad = ILL_FORMED[kind]
    peers.closes(mqtt.subscribe_packet(1, (bad, 0)))
    peers.closes(mqtt.subscribe_packet(1, (peers.topic("a"), 0), (b"a/" + bad, 0)))


def test_mqtt_3_8_3_1_cut_filter(peers: Peers) -> None:
    """A SUBSCRIBE that ends inside a filter, or before its QoS, closes the connection."""
    for pairs in (b"\x00", b"\x00\x01", b"\x00\x01a", b"\x00\x05a\x00", b"\x00\x01a\x00\x00"):
        peers.closes(mqtt.packet(0x82, b"\x00\x01" + pairs))


@pytest.mark.parametrize("name", ["#", "/#", "a/#", "a//#", "+/#", "+", "/+", "+/", "a/+/b", "+/+"])
def test_mqtt_3_8_3_2_wildcards_are_served(wire: mqtt.Wire, name: str) -> None:
    """Wildcards are supported: a filter with one is granted, not refused."""
    assert wire.subscribe((name, 1)).codes == [1]


def test_mqtt_3_8_3_3_no_filter(peers: Peers) -> None:
    """SUBSCRIBE without a filter closes the connection."""
    peers.closes(mqtt.packet(0x82, b"\x00\x01"))


def test_mqtt_3_8_3_4_requested_qos_byte(peers: Peers, topic: str) -> None:
    """Every requested-QoS byte from 03 to FF closes the connection, no SUBACK."""
    for qos in range(3, 256):
        wire = peers.raw()
        wire.send(mqtt.connect_packet(peers.id("q")), mqtt.subscribe_packet(1, (topic, qos)))
        wire.expect(b"\x20\x02\x00\x00")
        wire.expect_closed()
        wire.close()
    peers.closes(mqtt.subscribe_packet(1, (topic, 0), (topic, 3)))


def test_mqtt_3_8_4_1_suback_for_each(peers: Peers, wire: mqtt.Wire) -> None:
    """Each SUBSCRIBE is answered by one SUBACK."""
    wire.send(*(mqtt.subscribe_packet(n, (peers.topic(f"{n}"), 0)) for n in range(1, 21)))
    for _ in range(20):
        wire.expect(mqtt.SUBACK)
    wire.expect_nothing()


def test_mqtt_3_8_4_2_identifier(peers: Peers, wire: mqtt.Wire) -> None:
    """The SUBACK carries the identifier of its SUBSCRIBE."""
    for identifier in (65535, 1, 256, 1):
        wire.send(mqtt.subscribe_packet(identifier, (peers.topic("a"), 1)))
        wire.expect(b"\x90\x03" + identifier.to_bytes(2, "big") + b"\x01")


def test_mqtt_3_8_4_3_subscription_is_replaced(peers: Peers, wire: mqtt.Wire, topic: str) -> None:
    """The same filter once more replaces the subscription: single copies, at the new QoS."""
    for qos in (0, 2, 1, 0):
        wire.subscribe((topic, qos))
        peers.publish(topic, b"x", qos=2)
        wire.acknowledge(wire.expect_publish(topic, b"x", qos=qos))
        wire.expect_nothing()


def test_mqtt_3_8_4_3_retained_again(peers: Peers, topic: str) -> None:
    """Each repetition of a SUBSCRIBE brings the retained messages anew, at the new QoS."""
    peers.publish(topic, b"kept", qos=2, retain=True)
    wire = peers.client()
    for qos in (1, 1, 0, 2):
        wire.subscribe((peers.topic("+"), qos))
        wire.acknowledge(wire.expect_publish(topic, b"kept", qos=qos, retain=True))
        wire.expect_nothing()


def test_mqtt_3_8_4_3_no_gap(peers: Peers, topic: str) -> None:
    """The flow of messages has no gap and no double while a subscription is replaced."""
    wire = peers.subscriber((topic, 0))
    wire.send(
        *(
            mqtt.publish_packet(topic, b"%d" % n) + mqtt.subscribe_packet(n, (topic, 0))
            for n in range(1, 51)
        )
    )
    found = [wire.recv_packet() for _ in range(100)]
    payloads = [got.payload for got in found if got.type == mqtt.PUBLISH]
    assert payloads == [b"%d" % n for n in range(1, 51)]
    wire.expect_nothing()


def test_mqtt_3_8_4_4_many_filters(peers: Peers, wire: mqtt.Wire) -> None:
    """Many filters in one SUBSCRIBE: one SUBACK, and every filter works."""
    topics = [peers.topic(f"{n}") for n in range(20)]
    wire.send(mqtt.subscribe_packet(5, *((topic, 0) for topic in topics)))
    wire.expect(b"\x90\x16\x00\x05" + bytes(20))
    wire.expect_nothing()
    for topic in topics:
        peers.publish(topic, b"x")
        wire.expect_publish(topic, b"x")


def test_mqtt_3_8_4_4_filter_listed_twice(peers: Peers, topic: str) -> None:
    """A filter listed twice has a code for each and ends with the later QoS."""
    for first, second in ((2, 0), (0, 2), (2, 1)):
        wire = peers.subscriber((topic, first), (topic, second))
        peers.publish(topic, b"x", qos=2)
        wire.acknowledge(wire.expect_publish(topic, b"x", qos=second))
        wire.expect_nothing()


def test_mqtt_3_8_4_5_a_code_for_each_pair(peers: Peers, wire: mqtt.Wire) -> None:
    """A SUBACK has as many codes as its SUBSCRIBE has pairs, each the QoS granted."""
    for count in (1, 2, 50, 200):
        pairs = [(peers.topic(f"{n}"), n % 3) for n in range(count)]
        assert wire.subscribe(*pairs).codes == [qos for _, qos in pairs]


@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_mqtt_3_8_4_6_lower_qos(peers: Peers, topic: str, published: int, granted: int) -> None:
    """A message is delivered at the lower of the published and the granted QoS."""
    wire = peers.subscriber((topic, granted))
    peers.publish(topic, b"x", qos=published)
    wire.acknowledge(wire.expect_publish(topic, b"x", qos=min(published, granted)))
    wire.expect_nothing()

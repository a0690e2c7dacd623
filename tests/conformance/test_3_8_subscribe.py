"""Sections 3.8 and 3.9: SUBSCRIBE and SUBACK."""

import pytest

from tests.conformance.peers import Peers
from tests.support import wire as mqtt


def test_mqtt_3_8_3_4_requested_qos_byte(peers: Peers, topic: str) -> None:
    """Every requested-QoS byte from 03 to FF closes the connection, no SUBACK."""
    for qos in range(3, 256):
        wire = peers.raw()
        wire.send(mqtt.connect_packet(peers.id("q")), mqtt.subscribe_packet(1, (topic, qos)))
        wire.expect(b"\x20\x02\x00\x00")
        wire.expect_closed()
        wire.close()
    peers.closes(mqtt.subscribe_packet(1, (topic, 0), (topic, 3)))


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


def test_mqtt_3_9_3_2_codes_of_the_table(wire: mqtt.Wire) -> None:
    """SUBACK codes are 00, 01, 02 and 80 only, whatever the kind of filter."""
    names = ("a", "a/+", "#", "/", "$SYS/#", "$SYS/+/x", "$share/g/a", "$x/#", " ")
    for qos in (0, 1, 2):
        codes = wire.subscribe(*((name, qos) for name in names)).codes
        assert len(codes) == len(names)
        assert set(codes) <= {0x00, 0x01, 0x02, 0x80}

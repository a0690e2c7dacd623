"""Section 3.10: UNSUBSCRIBE."""

import pytest

from tests.conformance.peers import Peers
from tests.support import wire as mqtt


def test_mqtt_3_10_4_1_letter_by_letter(peers: Peers) -> None:
    """Only the very filter goes: one that matches it, or that it matches, does not."""
    held = (peers.topic("a/b"), peers.topic("c/+"), peers.topic("d/#"))
    wire = peers.subscriber(*((name, 0) for name in held))
    near = ("a/#", "a/+", "+/b", "#", "a/B", "a/b/", "a", "c/x", "c/#", "d", "d/x", "d/+")
    wire.unsubscribe(*map(peers.topic, near))
    for part in ("a/b", "c/x", "d/x"):
        peers.publish(peers.topic(part), b"x")
        wire.expect_publish(peers.topic(part), b"x")
    wire.unsubscribe(peers.topic("c/+"))
    peers.publish(peers.topic("c/x"), b"x")
    peers.expect_no_more(wire, peers.topic("d/sentinel"))


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt_3_10_4_2_nothing_new_afterwards(peers: Peers, topic: str, qos: int) -> None:
    """A message published after the UNSUBACK does not come, unless another filter matches."""
    wire = peers.subscriber((topic, qos), (peers.topic("b"), 0))
    assert wire.unsubscribe(topic).body == b"\x00\x02"
    peers.publish(topic, b"x", qos=qos)
    peers.expect_no_more(wire, peers.topic("b"))
    wire.subscribe((peers.topic("+"), 0))
    peers.publish(topic, b"other", qos=qos)
    wire.expect_publish(topic, b"other", qos=0)


def test_mqtt_3_10_4_2_nothing_queued_for_the_absent(peers: Peers, topic: str) -> None:
    """Nothing joins a stored session for a subscription that is gone."""
    wire = peers.subscriber((topic, 1), part="s", clean=False)
    wire.unsubscribe(topic)
    wire.disconnect()
    peers.publish(topic, b"x", qos=1)
    peers.resume("s").expect_nothing()


def test_mqtt_3_10_4_3_exchanges_are_finished(peers: Peers, topic: str) -> None:
    """QoS 1 and 2 deliveries under way are brought to their end after UNSUBSCRIBE."""
    wire = peers.subscriber((topic, 2), part="s", clean=False)
    peers.publish(topic, b"1", qos=1)
    peers.publish(topic, b"2", qos=2)
    one = wire.expect_publish(topic, b"1", qos=1)
    two = wire.expect_publish(topic, b"2", qos=2)
    wire.unsubscribe(topic)
    wire.pubrec(two.packet_id)
    assert wire.expect(mqtt.PUBREL).packet_id == two.packet_id
    wire.close()
    again = peers.resume("s")
    assert again.expect_publish(topic, b"1", qos=1, dup=True).packet_id == one.packet_id
    assert again.expect(mqtt.PUBREL).packet_id == two.packet_id
    again.puback(one.packet_id)
    again.pubcomp(two.packet_id)
    again.expect_nothing()


def test_mqtt_3_10_4_5_unknown_filter(peers: Peers, wire: mqtt.Wire) -> None:
    """UNSUBACK comes even though no subscription was there to remove."""
    wire.send(mqtt.unsubscribe_packet(9, peers.topic("never"), "#", "+/x", "$SYS/#"))
    wire.expect(b"\xb0\x02\x00\x09")


def test_mqtt_3_10_4_6_many_filters(peers: Peers) -> None:
    """Many filters in one UNSUBSCRIBE: one UNSUBACK, every filter listed is gone."""
    topics = [peers.topic(f"{n}") for n in range(20)]
    wire = peers.subscriber(*((topic, 0) for topic in topics), (peers.topic("sentinel"), 0))
    wire.ask(mqtt.unsubscribe_packet(9, *topics, topics[0], peers.topic("never")), mqtt.UNSUBACK)
    publisher = peers.client()
    publisher.send(*(mqtt.publish_packet(topic, b"x") for topic in topics))
    publisher.ping()
    peers.expect_no_more(wire)

"""Section 4.6: the order of messages."""

import pytest

from tests.conformance.peers import Peers
from tests.support import wire as mqtt


def numbered(topic: str, qos: int, count: int) -> bytes:
    """PUBLISH packets with payloads 0, 1, 2 ... and identifiers 1, 2, 3 ..."""
    return b"".join(
        mqtt.publish_packet(topic, b"%d" % n, qos=qos, packet_id=n + 1 if qos else None)
        for n in range(count)
    )


def test_mqtt_4_6_0_1_repeats_keep_their_order(peers: Peers, topic: str) -> None:
    """Repeats after resuming come in the order of their first sending, then what waited."""
    wire = peers.subscriber((topic, 2), part="s", clean=False)
    publisher = peers.client()
    for number in range(10):
        publisher.publish(topic, b"%d" % number, qos=1 + number % 2)
        wire.expect_publish(topic, b"%d" % number)
    wire.close()
    for number in range(10, 15):
        publisher.publish(topic, b"%d" % number, qos=1 + number % 2)
    for _ in range(2):
        wire = peers.resume("s")
        for number in range(10):
            wire.expect_publish(topic, b"%d" % number, dup=True)
        for number in range(10, 15):
            wire.expect_publish(topic, b"%d" % number)
        wire.close()


def test_mqtt_4_6_0_1_order_after_gaps(peers: Peers, topic: str) -> None:
    """Acknowledging some out of turn leaves the order of the other repeats as it was."""
    wire = peers.subscriber((topic, 1), part="s", clean=False)
    peers.client().send(numbered(topic, 1, 10))
    sent = [wire.expect_publish(topic, b"%d" % n) for n in range(10)]
    wire.send(*(mqtt.puback_packet(sent[n].packet_id) for n in (8, 0, 5)))
    wire.expect_nothing()
    wire.close()
    again = peers.resume("s")
    for number in (1, 2, 3, 4, 6, 7, 9):
        again.expect_publish(topic, b"%d" % number, dup=True)
    again.expect_nothing()


def test_mqtt_4_6_0_3_answers_follow_arrival(peers: Peers, topic: str) -> None:
    """Expected of a server too: its PUBACKs and PUBRECs have the order of the PUBLISH packets."""
    peers.subscriber((topic, 2), part="s", clean=False).disconnect()
    wire = peers.client()
    for qos, answer in ((1, mqtt.PUBACK), (2, mqtt.PUBREC)):
        wire.send(numbered(topic, qos, 200))
        assert [wire.expect(answer).packet_id for _ in range(200)] == list(range(1, 201))
    wire.send(*(mqtt.pubrel_packet(n) for n in range(1, 201)))
    assert [wire.expect(mqtt.PUBCOMP).packet_id for _ in range(200)] == list(range(1, 201))


def test_mqtt_4_6_0_4_pubrels_follow_pubrecs(peers: Peers, topic: str) -> None:
    """PUBRELs have the order of the subscriber's PUBRECs, here not that of the PUBLISHes."""
    wire = peers.subscriber((topic, 2), part="s", clean=False)
    publisher = peers.client()
    for number in range(10):
        publisher.publish(topic, b"%d" % number, qos=2)
    sent = [wire.expect_publish(topic).packet_id for _ in range(10)]
    order = [sent[n] for n in (3, 1, 4, 0, 5, 9, 2, 6, 8, 7)]
    wire.send(*map(mqtt.pubrec_packet, order))
    assert [wire.expect(mqtt.PUBREL).packet_id for _ in range(10)] == order
    wire.close()
    again = peers.resume("s")
    assert [again.expect(mqtt.PUBREL).packet_id for _ in range(10)] == order


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mqtt_4_6_0_5_every_topic_is_ordered(peers: Peers, publisher: mqtt.Wire, qos: int) -> None:
    """With the default configuration messages keep their order on each of several topics."""
    topics = [peers.topic(part) for part in ("a", "b/c", "d/", "/e")]
    wire = peers.subscriber((peers.topic("#"), qos))
    found: dict[str, list[int]] = {topic: [] for topic in topics}
    for number in range(20):
        for topic in topics:
            publisher.publish(topic, b"%d" % number, qos=qos)
    for _ in range(20 * len(topics)):
        got = wire.expect_publish(qos=qos)
        wire.acknowledge(got)
        found[got.topic].append(int(got.payload))
    assert all(numbers == list(range(20)) for numbers in found.values())


def take_in_order(wire: mqtt.Wire, topic: str, count: int) -> None:
    """Receive messages 0 to `count`, acknowledged as they come to their end; they must ascend."""
    received: list[int] = []
    unreleased = 0
    while len(received) < count or unreleased:
        found: mqtt.Packet = wire.recv_packet()
        if found.type == mqtt.PUBREL:
            wire.pubcomp(found.packet_id)
            unreleased -= 1
            continue
        assert found.topic == topic
        received.append(int(found.payload))
        if found.qos == 1:
            wire.puback(found.packet_id)
        elif found.qos == 2:
            wire.pubrec(found.packet_id)
            unreleased += 1
    assert received == list(range(count))


@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.parametrize("granted", [0, 1, 2])
def test_mqtt_4_6_0_6_order_at_every_subscriber(
    peers: Peers, publisher: mqtt.Wire, topic: str, published: int, granted: int
) -> None:
    """Numbered messages of one publisher, sent at once, ascend at every subscriber.

    There are far more than fit into the window of messages in flight.
    """
    wires = [peers.subscriber((name, granted)) for name in (topic, peers.topic("+"))]
    publisher.send(numbered(topic, published, 300))
    if published == 2:
        for _ in range(300):
            publisher.pubrel(publisher.expect(mqtt.PUBREC).packet_id)
    for wire in wires:
        take_in_order(wire, topic, 300)


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt_4_6_0_6_order_while_away(peers: Peers, topic: str, qos: int) -> None:
    """What gathered in the absence comes in order, and what is published meanwhile behind it."""
    peers.subscriber((topic, qos), part="s", clean=False).disconnect()
    publisher = peers.client()
    for number in range(150):
        publisher.publish(topic, b"%d" % number, qos=qos)
    wire = peers.resume("s")
    for number in range(150, 300):
        publisher.publish(topic, b"%d" % number, qos=qos)
    take_in_order(wire, topic, 300)
    wire.expect_nothing()


def test_mqtt_4_6_0_6_retained_before_newer(peers: Peers, wire: mqtt.Wire, topic: str) -> None:
    """A retained message does not come behind a newer one of its topic."""
    wire.ask(mqtt.publish_packet(topic, b"0", qos=1, packet_id=1, retain=True), mqtt.PUBACK)
    wire.subscribe((topic, 1))
    peers.publish(topic, b"1", qos=1, retain=True)
    take_in_order(wire, topic, 2)

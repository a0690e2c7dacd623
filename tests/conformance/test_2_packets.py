"""Chapter 2: fixed header and packet identifiers."""

from collections.abc import Callable

import pytest

from tests.conformance.peers import Peers
from tests.conftest import BrokerFactory
from tests.support import wire as mqtt
from vmq.testing.process import BrokerProcess

# A well-formed body for every packet that a client may send after CONNECT, but for PUBLISH.
BODIES = {
    "puback": (0x40, b"\x00\x01"),
    "pubrec": (0x50, b"\x00\x01"),
    "pubrel": (0x62, b"\x00\x01"),
    "pubcomp": (0x70, b"\x00\x01"),
    "subscribe": (0x82, b"\x00\x01\x00\x01a\x00"),
    "unsubscribe": (0xA2, b"\x00\x01\x00\x01a"),
    "pingreq": (0xC0, b""),
    "disconnect": (0xE0, b""),
}


def wrong_flags(first: int) -> list[int]:
    """The first byte with each of the fifteen low nibbles that are not its own."""
    return [first & 0xF0 | low for low in range(16) if low != first & 0x0F]


def test_mqtt_2_2_2_1_flags_sent(peers: Peers, raw: mqtt.Wire, topic: str) -> None:
    """Every packet that the server sends has the first byte of the flags table."""
    assert raw.connect(peers.id()).first == 0x20
    assert raw.subscribe((topic, 2)).first == 0x90
    raw.send(mqtt.publish_packet(topic, b"x", qos=1, packet_id=1))
    assert {raw.recv_packet().first for _ in range(2)} == {0x40, 0x32}
    # The message may be handed on before the PUBREC, before the PUBCOMP, or behind both.
    raw.send(mqtt.publish_packet(topic, b"x", qos=2, packet_id=2), mqtt.pubrel_packet(2))
    received = {found.first: found for found in (raw.recv_packet() for _ in range(3))}
    assert set(received) == {0x50, 0x70, 0x34}
    raw.pubrec(received[0x34].packet_id)
    assert raw.expect(mqtt.PUBREL).first == 0x62
    assert raw.unsubscribe(topic).first == 0xB0
    raw.send(b"\xc0\x00")
    assert raw.recv_packet().first == 0xD0


@pytest.mark.parametrize("kind", BODIES)
def test_mqtt_2_2_2_2_wrong_flags(peers: Peers, kind: str) -> None:
    """Any packet but PUBLISH with any wrong low nibble closes the connection unanswered."""
    first, body = BODIES[kind]
    for wrong in wrong_flags(first):
        peers.closes(mqtt.packet(wrong, body))


def test_mqtt_2_2_2_2_wrong_flags_of_connect(peers: Peers) -> None:
    """CONNECT with a wrong low nibble closes the connection without CONNACK."""
    good = mqtt.connect_packet(peers.id())
    for wrong in wrong_flags(0x10):
        peers.refuses(bytes([wrong]) + good[1:])


def test_mqtt_2_3_1_1_identifier_zero(peers: Peers, topic: str, watcher: mqtt.Wire) -> None:
    """Identifier 0 in SUBSCRIBE, UNSUBSCRIBE and PUBLISH at QoS 1 or 2 closes the connection."""
    peers.closes(mqtt.subscribe_packet(0, (topic, 0)))
    peers.closes(mqtt.unsubscribe_packet(0, topic))
    for qos in (1, 2):
        peers.closes(mqtt.publish_packet(topic, b"x", qos=qos, packet_id=0))
    peers.expect_no_more(watcher)


@pytest.mark.parametrize("identifier", [1, 255, 256, 32768, 65535])
def test_mqtt_2_3_1_1_any_other_identifier(wire: mqtt.Wire, topic: str, identifier: int) -> None:
    """Identifiers from 1 to 65535 are all good, in each of the packets that need one."""
    number = identifier.to_bytes(2, "big")
    wire.ask(mqtt.subscribe_packet(identifier, (topic, 0)), b"\x90\x03" + number + b"\x00")
    wire.ask(mqtt.unsubscribe_packet(identifier, topic), b"\xb0\x02" + number)
    wire.ask(mqtt.publish_packet(topic, b"x", qos=1, packet_id=identifier), b"\x40\x02" + number)
    wire.ask(mqtt.publish_packet(topic, b"x", qos=2, packet_id=identifier), b"\x50\x02" + number)


@pytest.fixture
def unlimited(fresh_broker: BrokerFactory, peers_at: Callable[[BrokerProcess], Peers]) -> Peers:
    """Clients at a broker whose in-flight window has no limit."""
    return peers_at(fresh_broker(env={"VMQ_QUEUE__MAX_INFLIGHT_MESSAGES": "0"}))


def take(wire: mqtt.Wire, count: int) -> list[mqtt.Packet]:
    return [wire.expect_publish() for _ in range(count)]


def test_mqtt_2_3_1_4_unfinished_identifiers_differ(unlimited: Peers) -> None:
    """Messages in flight to one client have different identifiers; a repeat keeps its own."""
    topic = unlimited.topic("a")
    wire = unlimited.subscriber((topic, 1), part="s", clean=False)
    publisher = unlimited.client()
    publisher.send(
        *(mqtt.publish_packet(topic, b"%d" % n, qos=1, packet_id=n) for n in range(1, 301))
    )
    first = {found.payload: found.packet_id for found in take(wire, 300)}
    assert len(set(first.values())) == 300
    wire.close()
    again = {found.payload: found.packet_id for found in take(unlimited.resume("s"), 300)}
    assert again == first


def test_mqtt_2_3_1_4_identifiers_come_round(unlimited: Peers) -> None:
    """Of more messages than there are identifiers, none has 0, or that of one whose exchange is under way.

    One is not acknowledged at QoS 1, one is not at QoS 2, and of one only the last packet is missing.
    """
    topic = unlimited.topic("a")
    wire = unlimited.subscriber((topic, 2))
    for qos in (1, 2, 2):
        unlimited.publish(topic, b"x", qos=qos)
    in_use = {found.packet_id for found in take(wire, 3)}
    assert len(in_use - {0}) == 3
    released = max(in_use)
    wire.pubrec(released)
    assert wire.expect(mqtt.PUBREL).packet_id == released
    publisher = unlimited.client()
    batch, sent = 500, 3
    burst = b"".join(
        mqtt.publish_packet(topic, b"x", qos=1, packet_id=n) for n in range(1, batch + 1)
    )
    while sent <= 65535 + batch:  # once round, and past the identifiers that are in use
        publisher.send(burst)
        identifiers = {found.packet_id for found in take(wire, batch)}
        assert len(identifiers) == batch
        assert identifiers.isdisjoint({0, *in_use})
        wire.send(*map(mqtt.puback_packet, identifiers))
        for _ in range(batch):
            publisher.expect(mqtt.PUBACK)
        sent += batch


def test_mqtt_2_3_1_5_qos_0_has_no_identifier(peers: Peers, topic: str) -> None:
    """In a QoS 0 PUBLISH from the server the payload stands right behind the topic."""
    wire = peers.subscriber((topic, 0))
    peers.publish(topic, b"payload", qos=0)
    wire.expect(mqtt.packet(0x30, mqtt.encode_text(topic) + b"payload"))
    peers.publish(topic, b"payload", qos=2)
    wire.expect(mqtt.packet(0x30, mqtt.encode_text(topic) + b"payload"))


def test_mqtt_2_3_1_5_qos_0_received(peers: Peers, topic: str) -> None:
    """In a QoS 0 PUBLISH to the server all that follows the topic is payload."""
    wire = peers.subscriber((topic, 0))
    wire.send(mqtt.packet(0x30, mqtt.encode_text(topic) + b"\x00\x01"))
    wire.expect_publish(topic, b"\x00\x01", qos=0)


def test_mqtt_2_3_1_6_answers_repeat_the_identifier(peers: Peers, topic: str) -> None:
    """PUBACK and PUBREC carry the client's identifier, PUBREL that of the server's PUBLISH."""
    publisher = peers.client()
    subscriber = peers.subscriber((topic, 2))
    publisher.ask(mqtt.publish_packet(topic, b"1", qos=1, packet_id=4711), b"\x40\x02\x12\x67")
    publisher.ask(mqtt.publish_packet(topic, b"2", qos=2, packet_id=4712), b"\x50\x02\x12\x68")
    publisher.pubrel(4712)
    publisher.expect(b"\x70\x02\x12\x68")
    subscriber.puback(subscriber.expect_publish(topic, b"1", qos=1).packet_id)
    identifier = subscriber.expect_publish(topic, b"2", qos=2).packet_id
    subscriber.pubrec(identifier)
    assert subscriber.expect(mqtt.PUBREL).packet_id == identifier


def test_mqtt_2_3_1_7_each_answer_its_own_request(peers: Peers, wire: mqtt.Wire) -> None:
    """Of several SUBSCRIBE and UNSUBSCRIBE in flight, each gets an answer under its own number."""
    one, two = peers.topic("1"), peers.topic("2")
    wire.send(
        mqtt.subscribe_packet(300, (one, 0)),
        mqtt.subscribe_packet(7, (two, 1)),
        mqtt.unsubscribe_packet(65535, one),
        mqtt.unsubscribe_packet(1, two),
        mqtt.subscribe_packet(8, (one, 2)),
    )
    answers = [wire.recv_packet() for _ in range(5)]
    wire.expect_nothing()
    assert sorted((found.type, found.packet_id) for found in answers) == [
        (mqtt.SUBACK, 7),
        (mqtt.SUBACK, 8),
        (mqtt.SUBACK, 300),
        (mqtt.UNSUBACK, 1),
        (mqtt.UNSUBACK, 65535),
    ]
    codes = {found.packet_id: found.codes for found in answers if found.type == mqtt.SUBACK}
    assert codes == {300: [0], 7: [1], 8: [2]}

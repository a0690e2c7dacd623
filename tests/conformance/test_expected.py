"""What the standard says without a number, and what we chose where it leaves room.

Packets, lengths, errors and sessions. Topics are in test_expected_topics.py, MQTT 3.1 clients in
test_expected_mqtt31.py, shared subscriptions in test_expected_shared.py, restarts in
test_expected_restart.py.
"""

from collections.abc import Callable

import pytest

from tests.conformance.peers import Peers
from tests.support import wire as mqtt


@pytest.mark.parametrize("remaining", [127, 128, 16_383, 16_384, 2_097_151, 2_097_152])
def test_expected_length_edges(peers: Peers, topic: str, remaining: int) -> None:
    """Packets on both sides of each edge of the length encoding pass unchanged, both ways."""
    wire = peers.subscriber((topic, 1))
    payload = bytes(remaining - len(mqtt.encode_text(topic)) - 2 - 1) + b"."
    wire.send(mqtt.publish_packet(topic, payload, qos=1, packet_id=9))
    found = [wire.recv_packet() for _ in range(2)]
    published = next(got for got in found if got.type != mqtt.PUBACK)
    assert len(published.body) == remaining
    assert published.payload == payload


def test_expected_longest_length_encoding(peers: Peers, raw: mqtt.Wire) -> None:
    """Lengths in more bytes than needed are accepted, in every kind of packet."""
    topic = mqtt.encode_text(peers.topic("a"))
    name = peers.id().encode()
    connect = mqtt.connect_packet(name)
    raw.ask(b"\x10" + bytes([0x80 | connect[1], 0x80, 0x80, 0x00]) + connect[2:], mqtt.CONNACK)
    raw.send(b"\xc0\x80\x00", b"\xc0\x80\x80\x00", b"\xc0\x80\x80\x80\x00")
    for _ in range(3):
        raw.expect(mqtt.PINGRESP_BYTES)
    raw.send(b"\x82", bytes([0x80 | len(topic) + 3, 0x00]), b"\x00\x01", topic, b"\x00")
    raw.expect(mqtt.SUBACK)
    raw.send(b"\x30", bytes([0x80 | len(topic) + 1, 0x80, 0x00]), topic, b"x")
    raw.expect_publish(payload=b"x")


def test_expected_many_packets_in_a_segment(peers: Peers, topic: str, watcher: mqtt.Wire) -> None:
    """A whole conversation in one segment, CONNECT and DISCONNECT included, is followed."""
    wire = peers.raw()
    wire.send(
        mqtt.connect_packet(peers.id(), will=mqtt.Will(peers.topic("will"), b"gone")),
        mqtt.subscribe_packet(1, (topic, 0)),
        mqtt.publish_packet(topic, b"1"),
        mqtt.publish_packet(topic, b"2", qos=1, packet_id=2),
        mqtt.PINGREQ_BYTES,
        mqtt.DISCONNECT_BYTES,
    )
    wire.expect(b"\x20\x02\x00\x00")
    assert sorted(wire.recv_packet().first for _ in range(5)) == [0x30, 0x30, 0x40, 0x90, 0xD0]
    wire.expect_closed()
    watcher.expect_publish(topic, b"1")
    watcher.expect_publish(topic, b"2")
    peers.expect_no_more(watcher)


def test_expected_packet_cut_by_the_end(peers: Peers, topic: str, watcher: mqtt.Wire) -> None:
    """A connection that ends inside a packet counts as cut: no delivery, but the will."""
    will = mqtt.Will(peers.topic("will"), b"gone")
    wire = peers.client("w", will=will)
    wire.send(mqtt.publish_packet(topic, b"whole"), mqtt.publish_packet(topic, b"half")[:-1])
    wire.close()
    watcher.expect_publish(topic, b"whole")
    peers.expect_will_once(watcher, "w", will)


def test_expected_identifiers_of_the_two_sides(peers: Peers, topic: str) -> None:
    """Both sides may use one identifier at the same time for exchanges of their own."""
    wire = peers.subscriber((topic, 2))
    peers.publish(topic, b"theirs", qos=2)
    identifier = wire.expect_publish(topic, b"theirs", qos=2).packet_id
    wire.send(mqtt.publish_packet(peers.topic("b"), b"mine", qos=2, packet_id=identifier))
    assert wire.expect(mqtt.PUBREC).packet_id == identifier
    wire.pubrec(identifier)
    wire.expect(b"\x62\x02" + identifier.to_bytes(2, "big"))
    wire.pubrel(identifier)
    wire.expect(b"\x70\x02" + identifier.to_bytes(2, "big"))
    wire.pubcomp(identifier)
    wire.expect_nothing()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_expected_empty_payload(peers: Peers, topic: str, qos: int) -> None:
    """A PUBLISH without payload is delivered as such."""
    wire = peers.subscriber((topic, 2))
    peers.publish(topic, b"", qos=qos)
    wire.expect_publish(topic, b"", qos=qos)


def test_expected_unknown_acknowledgements(wire: mqtt.Wire) -> None:
    """Unknown identifiers: PUBACK and PUBCOMP are ignored, PUBREC and PUBREL are answered."""
    for identifier in (1, 65535):
        number = identifier.to_bytes(2, "big")
        wire.puback(identifier)
        wire.expect_nothing()
        wire.pubcomp(identifier)
        wire.expect_nothing()
        wire.pubrec(identifier)
        wire.expect(b"\x62\x02" + number)
        wire.pubrel(identifier)
        wire.expect(b"\x70\x02" + number)
        wire.expect_nothing()


@pytest.mark.parametrize(
    ("qos", "wrong"),
    [
        (2, mqtt.puback_packet),
        (2, mqtt.pubcomp_packet),
        (1, mqtt.pubrec_packet),
        (1, mqtt.pubcomp_packet),
    ],
)
def test_expected_acknowledgement_of_another_kind(
    peers: Peers, topic: str, qos: int, wrong: Callable[[int], bytes]
) -> None:
    """PUBACK for QoS 2, PUBREC for QoS 1 and PUBCOMP before PUBREL close the connection; the message comes again."""
    wire = peers.subscriber((topic, 2), part="s", clean=False)
    peers.publish(topic, b"x", qos=qos)
    identifier = wire.expect_publish(topic, b"x", qos=qos).packet_id
    wire.ended_by(wrong(identifier))
    again = peers.resume("s")
    assert again.expect_publish(topic, b"x", qos=qos, dup=True).packet_id == identifier


def test_expected_acknowledgement_of_another_kind_once_released(peers: Peers, topic: str) -> None:
    """PUBACK instead of PUBCOMP closes the connection; PUBREL comes again."""
    wire = peers.subscriber((topic, 2), part="s", clean=False)
    peers.publish(topic, b"x", qos=2)
    identifier = wire.expect_publish(topic, b"x", qos=2).packet_id
    number = identifier.to_bytes(2, "big")
    wire.pubrec(identifier)
    wire.expect(b"\x62\x02" + number)
    wire.puback(identifier)
    wire.expect_closed()
    peers.resume("s").expect(b"\x62\x02" + number)


def test_expected_mqtt_5_connect(peers: Peers) -> None:
    """A client of MQTT 5 learns that its level is not served, though its CONNECT is another."""
    body = (
        b"\x00\x04MQTT\x05\x02\x00\x3c" + b"\x05\x11\x00\x00\x00\x0a" + mqtt.encode_text(peers.id())
    )
    peers.answers(mqtt.packet(0x10, body), b"\x20\x02\x00\x01")


def test_expected_keep_alive_zero(peers: Peers) -> None:
    """Keep alive 0 turns the watch off: silence as long as another's limit does no harm."""
    watched = peers.client(keep_alive=1)
    free = peers.client(keep_alive=0)
    watched.expect_closed()
    free.expect_nothing()


def test_expected_refused_connect_has_no_will(peers: Peers, watcher: mqtt.Wire) -> None:
    """The will of a CONNECT that was refused is never published."""
    will = mqtt.Will(peers.topic("will"), b"gone", retain=True)
    peers.answers(mqtt.connect_packet(peers.id("w"), will=will, level=6), b"\x20\x02\x00\x01")
    peers.refuses(mqtt.connect_packet(peers.id("w"), will=will, tail=b"\x00"))
    peers.expect_no_will(watcher, "w")
    peers.expect_none_retained(peers.topic("will"))


def test_expected_malformed_disconnect_keeps_the_will(peers: Peers, watcher: mqtt.Wire) -> None:
    """A malformed DISCONNECT does not remove the will."""
    will = mqtt.Will(peers.topic("will"), b"gone")
    wire = peers.client("w", will=will)
    wire.ended_by(b"\xe0\x01\x00")
    peers.expect_will_once(watcher, "w", will)


@pytest.mark.parametrize("payload", [b"", b"\x00\xff\xfe" * 100, bytes(65535)])
def test_expected_will_payload_is_bytes(peers: Peers, payload: bytes) -> None:
    """A will message is any 0 to 65535 bytes, published without its length."""
    topic = peers.topic("will")
    watcher = peers.subscriber((topic, 0))
    peers.client("w", will=mqtt.Will(topic, payload)).close()
    watcher.expect_publish(topic, payload)


def test_expected_will_of_the_taken_over(peers: Peers, watcher: mqtt.Wire) -> None:
    """A takeover publishes the old connection's will; the new one's is kept for its own end."""
    topic = peers.topic("will")
    old = peers.client("t", will=mqtt.Will(topic, b"old"))
    new = peers.client("t", will=mqtt.Will(topic, b"new"))
    old.expect_closed()
    watcher.expect_publish(topic, b"old")
    watcher.expect_nothing()
    new.close()
    watcher.expect_publish(topic, b"new")


def test_expected_resuming_is_no_new_subscription(peers: Peers, topic: str) -> None:
    """Retained messages do not come again when a session is resumed."""
    peers.publish(topic, b"kept", qos=1, retain=True)
    wire = peers.subscriber((topic, 1), part="s", clean=False)
    wire.acknowledge(wire.expect_publish(topic, b"kept", retain=True))
    wire.expect_nothing()
    wire.disconnect()
    peers.resume("s").expect_nothing()

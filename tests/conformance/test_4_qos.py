"""Sections 4.1 to 4.5: stored state, the QoS exchanges, repeats and receipt."""

import pytest

from tests.conformance.peers import Peers
from tests.support import wire as mqtt


def begin_qos_2(wire: mqtt.Wire, topic: str, payload: bytes, identifier: int = 1) -> None:
    """The first half of a QoS 2 exchange from a client: PUBLISH and PUBREC."""
    wire.send(mqtt.publish_packet(topic, payload, qos=2, packet_id=identifier))
    assert wire.expect(mqtt.PUBREC).packet_id == identifier


def test_mqtt_4_1_0_1_all_state_is_kept(peers: Peers) -> None:
    """Nothing of a session is missing after a reconnect.

    Its parts: subscriptions, messages sent and not acknowledged (QoS 1; QoS 2 before and after
    PUBREC), messages waiting, and the identifiers of QoS 2 messages received.
    """
    topic, other = peers.topic("a"), peers.topic("b")
    watcher = peers.subscriber((other, 2))
    wire = peers.subscriber((topic, 2), part="s", clean=False)
    begin_qos_2(wire, other, b"mine", 700)
    for payload, qos in ((b"one", 1), (b"two", 2), (b"released", 2)):
        peers.publish(topic, payload, qos=qos)
    one, two, released = (wire.expect_publish(topic, dup=False) for _ in range(3))
    wire.pubrec(released.packet_id)
    assert wire.expect(mqtt.PUBREL).packet_id == released.packet_id
    wire.close()
    peers.publish(topic, b"waiting", qos=1)

    again = peers.resume("s")
    repeats = [again.recv_packet() for _ in range(4)]
    assert sorted((got.first, got.packet_id) for got in repeats[:3]) == sorted(
        [(0x3A, one.packet_id), (0x3C, two.packet_id), (0x62, released.packet_id)]
    )
    assert (repeats[3].first, repeats[3].payload) == (0x32, b"waiting")
    again.send(mqtt.publish_packet(other, b"mine", qos=2, packet_id=700, dup=True))
    assert again.expect(mqtt.PUBREC).packet_id == 700
    again.pubrel(700)
    assert again.expect(mqtt.PUBCOMP).packet_id == 700
    assert watcher.expect_publish(other, b"mine", qos=2).payload == b"mine"
    peers.expect_no_more(watcher, other)


def test_mqtt_4_1_0_2_session_lasts_with_its_connection(peers: Peers, topic: str) -> None:
    """A connected client keeps its subscriptions while it does nothing but ping."""
    durable = peers.subscriber((topic, 1), part="d", clean=False)
    clean = peers.subscriber((topic, 1), part="c")
    for number in range(20):
        other = peers.client(f"o{number}", clean=number % 2 == 0)
        other.subscribe((topic, 0))
        other.unsubscribe(topic)
        other.disconnect()
        durable.expect_nothing()
        clean.expect_nothing()
    peers.publish(topic, b"x", qos=1)
    durable.expect_publish(topic, b"x", qos=1)
    clean.expect_publish(topic, b"x", qos=1)


def test_mqtt_4_3_1_1_qos_0(peers: Peers, topic: str) -> None:
    """QoS 0 goes out once with DUP 0, waits for no answer, and is not repeated."""
    wire = peers.subscriber((topic, 0), part="s", clean=False)
    peers.publish(topic, b"x")
    assert wire.expect_publish(topic, b"x").first == 0x30
    wire.expect_nothing()
    wire.close()
    peers.resume("s").expect_nothing()
    peers.publish(topic, b"kept", retain=True)
    wire = peers.subscriber((topic, 0))
    assert wire.expect_publish(topic, b"kept").first == 0x31


def test_mqtt_4_3_2_1_qos_1_until_acknowledged(peers: Peers, topic: str) -> None:
    """QoS 1 goes out with DUP 0; it is repeated on resuming until its PUBACK came, then not."""
    wire = peers.subscriber((topic, 1), part="s", clean=False)
    peers.publish(topic, b"x", qos=1)
    identifier = wire.expect_publish(topic, b"x", qos=1, dup=False).packet_id
    wire.expect_nothing()
    for _ in range(2):
        wire.close()
        wire = peers.resume("s")
        assert wire.expect_publish(topic, b"x", qos=1, dup=True).packet_id == identifier
        wire.expect_nothing()
    wire.puback(identifier)
    wire.expect_nothing()
    wire.close()
    peers.resume("s").expect_nothing()


@pytest.mark.parametrize("dup", [False, True])
def test_mqtt_4_3_2_2_identifier_is_free_after_puback(peers: Peers, topic: str, dup: bool) -> None:
    """Each QoS 1 PUBLISH is delivered and acknowledged; the same identifier again is new."""
    wire = peers.subscriber((topic, 0))
    publisher = peers.client()
    for number in range(3):
        publisher.send(mqtt.publish_packet(topic, b"x", qos=1, packet_id=9, dup=dup and number > 0))
        assert publisher.expect(mqtt.PUBACK).packet_id == 9
        wire.expect_publish(topic, b"x")
    wire.expect_nothing()


def test_mqtt_4_3_3_1_exchange_of_the_sender(peers: Peers, topic: str) -> None:
    """PUBREC brings PUBREL under the same identifier; PUBCOMP ends the exchange."""
    wire = peers.subscriber((topic, 2), part="s", clean=False)
    peers.publish(topic, b"x", qos=2)
    identifier = wire.expect_publish(topic, b"x", qos=2, dup=False).packet_id
    wire.expect_nothing()
    wire.pubrec(identifier)
    assert wire.expect(mqtt.PUBREL).packet_id == identifier
    wire.expect_nothing()
    wire.pubcomp(identifier)
    wire.expect_nothing()
    wire.close()
    peers.resume("s").expect_nothing()


def test_mqtt_4_3_3_2_repeats_before_pubrel(peers: Peers, publisher: mqtt.Wire, topic: str) -> None:
    """A QoS 2 PUBLISH repeated before PUBREL: PUBREC each time, one delivery."""
    wire = peers.subscriber((topic, 0), (peers.topic("sentinel"), 0))
    begin_qos_2(publisher, topic, b"x", 5)
    for dup in (True, False):
        publisher.send(mqtt.publish_packet(topic, b"x", qos=2, packet_id=5, dup=dup))
        assert publisher.expect(mqtt.PUBREC).packet_id == 5
    publisher.pubrel(5)
    assert publisher.expect(mqtt.PUBCOMP).packet_id == 5
    wire.expect_publish(topic, b"x")
    peers.expect_no_more(wire)


def test_mqtt_4_3_3_2_repeats_after_reconnecting(peers: Peers, topic: str) -> None:
    """A QoS 2 PUBLISH repeated on a resumed session before PUBREL is not delivered again."""
    wire = peers.subscriber((topic, 0), (peers.topic("sentinel"), 0))
    publisher = peers.client("p", clean=False)
    begin_qos_2(publisher, topic, b"x", 5)
    publisher.close()
    publisher = peers.resume("p")
    publisher.send(mqtt.publish_packet(topic, b"x", qos=2, packet_id=5, dup=True))
    assert publisher.expect(mqtt.PUBREC).packet_id == 5
    publisher.close()
    publisher = peers.resume("p")
    publisher.pubrel(5)
    assert publisher.expect(mqtt.PUBCOMP).packet_id == 5
    publisher.pubrel(5)
    assert publisher.expect(mqtt.PUBCOMP).packet_id == 5
    wire.expect_publish(topic, b"x")
    peers.expect_no_more(wire)


def test_mqtt_4_3_3_2_identifier_is_free_after_pubcomp(peers: Peers, topic: str) -> None:
    """After PUBCOMP the same identifier means a new message, DUP or not."""
    wire = peers.subscriber((topic, 0))
    publisher = peers.client()
    for dup in (False, False, True):
        publisher.ask(mqtt.publish_packet(topic, b"x", qos=2, packet_id=5, dup=dup), mqtt.PUBREC)
        publisher.pubrel(5)
        publisher.expect(mqtt.PUBCOMP)
        wire.expect_publish(topic, b"x")
    wire.expect_nothing()


def test_mqtt_4_4_0_1_repeats_on_resuming(peers: Peers, publisher: mqtt.Wire, topic: str) -> None:
    """Unacknowledged PUBLISH packets (DUP 1) and PUBRELs come again, under their identifiers."""
    wire = peers.subscriber((topic, 2), part="s", clean=False)
    for number in range(12):
        publisher.publish(topic, b"%d" % number, qos=1 + number % 2)
    sent = [wire.expect_publish(topic, b"%d" % number) for number in range(12)]
    released = [got for got in sent if got.qos == 2][:3]
    for got in released:
        wire.pubrec(got.packet_id)
        wire.expect(mqtt.PUBREL)
    done = [got for got in sent if got.qos == 1][:3]
    for got in done:
        wire.acknowledge(got)
    wire.expect_nothing()
    wire.close()

    again = peers.resume("s")
    repeats = [again.recv_packet() for _ in range(9)]
    again.expect_nothing()
    wanted = [(mqtt.PUBREL, got.packet_id, b"") for got in released]
    wanted += [
        (got.type, got.packet_id, got.payload)
        for got in sent
        if got not in released and got not in done
    ]
    assert sorted(map(_summary, repeats)) == sorted(wanted)
    assert all(got.dup for got in repeats if got.type != mqtt.PUBREL)


def _summary(found: mqtt.Packet) -> tuple[int, int, bytes]:
    payload = b"" if found.type == mqtt.PUBREL else found.payload
    return found.type, found.packet_id, payload


def test_mqtt_4_4_0_1_no_repeats_on_a_live_connection(peers: Peers, topic: str) -> None:
    """Without a reconnect nothing is repeated, however much traffic goes by."""
    wire = peers.subscriber((topic, 2))
    publisher = peers.client()
    for number in range(20):
        publisher.publish(topic, b"%d" % number, qos=1 + number % 2)
        wire.expect_publish(topic, b"%d" % number, dup=False)
        wire.expect_nothing()


@pytest.mark.parametrize("qos", [1, 2])
def test_mqtt_4_5_0_1_every_matching_session(peers: Peers, qos: int) -> None:
    """After PUBACK or PUBCOMP each matching session gets the message, connected or not."""
    topic = peers.topic("a/b")
    filters = [topic, peers.topic("a/+"), peers.topic("#"), peers.topic("+/b"), topic]
    here = [peers.subscriber((name, 2)) for name in filters]
    for number, name in enumerate(filters):
        peers.subscriber((name, 2), part=f"s{number}", clean=False).disconnect()
    peers.publish(topic, b"x", qos=qos)
    there = [peers.resume(f"s{number}") for number in range(len(filters))]
    for wire in here + there:
        wire.acknowledge(wire.expect_publish(topic, b"x", qos=qos))
        wire.expect_nothing()

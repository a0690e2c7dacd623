"""Clients of MQTT 3.1: name MQIsdp, level 3."""

import pytest

from tests.conformance.peers import Peers
from tests.support import wire as mqtt


def old_connect(client_id: str, *, clean: bool = True, will: mqtt.Will | None = None) -> bytes:
    return mqtt.connect_packet(client_id, clean=clean, will=will, protocol="MQIsdp", level=3)


def old_client(peers: Peers, part: str = "", *, clean: bool = True) -> mqtt.Wire:
    """An accepted client of MQTT 3.1."""
    wire = peers.raw()
    wire.ask(old_connect(peers.id(part), clean=clean), b"\x20\x02\x00\x00")
    return wire


def test_expected_31_is_served(peers: Peers, topic: str) -> None:
    """A 3.1 client publishes and subscribes at every QoS, with clients of 3.1.1."""
    old = old_client(peers)
    old.subscribe((topic, 2))
    new = peers.subscriber((topic, 2))
    for qos in (0, 1, 2):
        old.publish(topic, b"%d" % qos, qos=qos)
        for wire in (old, new):
            wire.acknowledge(wire.expect_publish(topic, b"%d" % qos, qos=qos, dup=False))
    old.unsubscribe(topic)
    old.ping()
    old.disconnect()


def test_expected_31_will(peers: Peers, raw: mqtt.Wire, watcher: mqtt.Wire) -> None:
    """The will of a 3.1 client is published."""
    will = mqtt.Will(peers.topic("will"), b"gone")
    raw.ask(old_connect(peers.id("w"), will=will), b"\x20\x02\x00\x00")
    raw.close()
    peers.expect_will_once(watcher, "w", will)


def test_expected_31_has_no_session_present(peers: Peers, topic: str) -> None:
    """A 3.1 client resumes its session, but its CONNACK has 00 where 3.1.1 says session present.

    A session may change the version with its client: it belongs to the client id.
    """
    wire = old_client(peers, "s", clean=False)
    wire.subscribe((topic, 1))
    wire.disconnect()
    peers.publish(topic, b"x", qos=1)
    again = old_client(peers, "s", clean=False)
    again.expect_publish(topic, b"x", qos=1)
    again.disconnect()
    new = peers.resume("s")
    new.acknowledge(new.expect_publish(topic, b"x", qos=1, dup=True))


@pytest.mark.parametrize("level", [0, 4, 5, 6])
def test_expected_31_name_with_another_level(peers: Peers, level: int) -> None:
    """Name MQIsdp with another level than 3: our choice is to close without CONNACK."""
    peers.refuses(mqtt.connect_packet(peers.id(), protocol="MQIsdp", level=level))


def test_expected_31_dup_of_requests(peers: Peers, topic: str) -> None:
    """PUBREL, SUBSCRIBE and UNSUBSCRIBE of a 3.1 client may have DUP set."""
    wire = old_client(peers)
    wire.ask(mqtt.subscribe_packet(1, (topic, 0), first=0x8A), mqtt.SUBACK)
    wire.send(mqtt.publish_packet(topic, b"x", qos=2, packet_id=2), b"\x6a\x02\x00\x02")
    assert {wire.recv_packet().first for _ in range(3)} == {0x50, 0x70, 0x30}
    wire.ask(mqtt.unsubscribe_packet(3, topic, first=0xAA), mqtt.UNSUBACK)
    wire.expect_nothing()


@pytest.mark.parametrize("flags", [0x03, 0x0A, 0x12, 0x1A, 0x22, 0x3B])
def test_expected_31_connect_flags(peers: Peers, raw: mqtt.Wire, flags: int) -> None:
    """MQTT 3.1 disregards the reserved connect flag, and QoS and RETAIN of a will that is not there."""
    raw.send(mqtt.connect_packet(peers.id(), protocol="MQIsdp", level=3, flags=flags))
    raw.expect(b"\x20\x02\x00\x00")


@pytest.mark.parametrize("flags", [0x1E, 0x42])
def test_expected_31_connect_flags_that_are_wrong(peers: Peers, flags: int) -> None:
    """A will of QoS 3, and a password without user name, are wrong in MQTT 3.1 too."""
    connect = mqtt.connect_packet(
        peers.id(), protocol="MQIsdp", level=3, flags=flags, tail=b"\0\1w\0\1x"
    )
    peers.refuses(connect)


@pytest.mark.parametrize("low", [0x1, 0x2, 0x8, 0xF])
def test_expected_31_low_bits_of_other_packets(peers: Peers, topic: str, low: int) -> None:
    """MQTT 3.1 does not use the low bits of PINGREQ, of the acknowledgements, and of DISCONNECT."""
    wire = old_client(peers)
    wire.ask(mqtt.subscribe_packet(1, (topic, 2), first=0x80 | low), mqtt.SUBACK)
    wire.ask(bytes([0xC0 | low, 0]), mqtt.PINGRESP_BYTES)
    peers.publish(topic, b"1", qos=1)
    number = wire.expect_publish(topic, b"1", qos=1).body[-3:-1]
    wire.send(bytes([0x40 | low, 2]) + number)
    peers.publish(topic, b"2", qos=2)
    number = wire.expect_publish(topic, b"2", qos=2).body[-3:-1]
    wire.ask(bytes([0x50 | low, 2]) + number, b"\x62\x02" + number)
    wire.send(bytes([0x70 | low, 2]) + number)
    wire.expect_nothing()
    wire.ended_by(bytes([0xE0 | low, 0]))


def test_expected_31_upper_bits_of_a_requested_qos(peers: Peers) -> None:
    """MQTT 3.1 does not use the upper six bits of a requested QoS; its lower two are no 3."""
    wire = old_client(peers)
    wire.send(mqtt.subscribe_packet(1, (peers.topic("a"), 0xFD), (peers.topic("b"), 0x04)))
    assert wire.expect(mqtt.SUBACK).codes == [1, 0]
    wire.ended_by(mqtt.subscribe_packet(2, (peers.topic("a"), 0xFF)))


def test_expected_31_long_client_id(peers: Peers) -> None:
    """Client ids of more than 23 bytes, up to the configured limit: our choice is to accept."""
    base = peers.id()
    for length in (23, 24, 100):
        wire = peers.raw()
        wire.ask(old_connect(base.ljust(length, "x")), b"\x20\x02\x00\x00")
    peers.answers(old_connect(base.ljust(101, "x")), b"\x20\x02\x00\x02")


@pytest.mark.parametrize("clean", [True, False])
def test_expected_31_empty_client_id(peers: Peers, clean: bool) -> None:
    """MQTT 3.1 has no empty client id: CONNACK 2, then the end."""
    peers.answers(old_connect("", clean=clean), b"\x20\x02\x00\x02")


def test_expected_31_no_failure_code(peers: Peers) -> None:
    """The SUBACK of a 3.1 client has the codes 00, 01 and 02 only."""
    wire = old_client(peers)
    codes = wire.subscribe(("$SYS/#", 1), ("#", 2), ("$share/g/a", 0), ("a/+", 1)).codes
    assert len(codes) == 4
    assert set(codes) <= {0, 1, 2}


def test_expected_31_flags_without_fields(peers: Peers) -> None:
    """User name or password announced and missing at the end: the connection goes on in 3.1."""
    for flags in (0x82, 0xC2):
        wire = peers.raw()
        wire.send(mqtt.connect_packet(peers.id(), protocol="MQIsdp", level=3, flags=flags))
        wire.expect(b"\x20\x02\x00\x00")
        wire.expect_nothing()
    wire = peers.raw()
    wire.send(mqtt.connect_packet(peers.id(), username="u", protocol="MQIsdp", level=3, flags=0xC2))
    wire.expect(b"\x20\x02\x00\x00")


def test_expected_31_still_has_rules(peers: Peers) -> None:
    """Violations of both versions close a 3.1 client too."""
    for data in (
        b"\x36\x04\x00\x01a\x00",
        b"\xf0\x00",
        mqtt.packet(0x82, b"\x00\x01"),
        b"\x30\x00",
    ):
        wire = old_client(peers)
        wire.ended_by(data)

"""Clients of MQTT 3.1: name MQIsdp, level 3."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.peers import Peers
from tests.conftest import BrokerFactory
from tests.support.broker_process import BrokerProcess
from tests.support.wire import (
    PINGRESP_BYTES,
    SUBACK,
    UNSUBACK,
    Will,
    Wire,
    connect_packet,
    packet,
    publish_packet,
    subscribe_packet,
    unsubscribe_packet,
)


def old_connect(client_id: str, *, clean: bool = True, will: Will | None = None) -> bytes:
    """A CONNECT of MQTT 3.1."""
    return connect_packet(client_id, clean=clean, will=will, protocol="MQIsdp", level=3)


def old_client(peers: Peers, part: str = "", *, clean: bool = True) -> Wire:
    """An accepted client of MQTT 3.1."""
    wire = peers.raw()
    wire.send(old_connect(peers.id(part), clean=clean))
    wire.expect(b"\x20\x02\x00\x00")
    return wire


def test_expected_31_is_served(peers: Peers) -> None:
    """A 3.1 client publishes and subscribes at every QoS, with clients of 3.1.1."""
    topic = peers.topic("a")
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


def test_expected_31_will(peers: Peers) -> None:
    """The will of a 3.1 client is published."""
    watcher = peers.watcher()
    will = Will(peers.topic("will"), b"gone")
    wire = peers.raw()
    wire.send(old_connect(peers.id("w"), will=will))
    wire.expect(b"\x20\x02\x00\x00")
    wire.close()
    peers.expect_will_once(watcher, "w", will)


def test_expected_31_has_no_session_present(peers: Peers) -> None:
    """A 3.1 client resumes its session, but its CONNACK has 00 where 3.1.1 says session present."""
    topic = peers.topic("a")
    wire = old_client(peers, "s", clean=False)
    wire.subscribe((topic, 1))
    wire.disconnect()
    peers.publish(topic, b"x", qos=1)
    again = old_client(peers, "s", clean=False)
    again.expect_publish(topic, b"x", qos=1)


@pytest.mark.parametrize("level", [0, 4, 5, 6])
def test_expected_31_name_with_another_level(peers: Peers, level: int) -> None:
    """Name MQIsdp with another level than 3: our choice is to close without CONNACK."""
    peers.refuses(connect_packet(peers.id(), protocol="MQIsdp", level=level))


@pytest.mark.parametrize("level", [3])
def test_expected_31_level_with_the_new_name(peers: Peers, level: int) -> None:
    """Name MQTT with level 3 is an unknown level: CONNACK 1, then the end."""
    peers.answers(connect_packet(peers.id(), level=level), b"\x20\x02\x00\x01")


def test_expected_31_dup_of_requests(peers: Peers) -> None:
    """PUBREL, SUBSCRIBE and UNSUBSCRIBE of a 3.1 client may have DUP set."""
    topic = peers.topic("a")
    wire = old_client(peers)
    wire.send(subscribe_packet(1, (topic, 0), first=0x8A))
    wire.expect(SUBACK)
    wire.send(publish_packet(topic, b"x", qos=2, packet_id=2), b"\x6a\x02\x00\x02")
    assert {wire.recv_packet().first for _ in range(3)} == {0x50, 0x70, 0x30}
    wire.send(unsubscribe_packet(3, topic, first=0xAA))
    wire.expect(UNSUBACK)
    wire.expect_nothing()


def test_expected_31_long_client_id(peers: Peers) -> None:
    """Client ids of more than 23 bytes, up to the configured limit: our choice is to accept."""
    base = peers.id()
    for length in (23, 24, 100):
        wire = peers.raw()
        wire.send(old_connect(base.ljust(length, "x")))
        wire.expect(b"\x20\x02\x00\x00")
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
        wire.send(connect_packet(peers.id(), protocol="MQIsdp", level=3, flags=flags))
        wire.expect(b"\x20\x02\x00\x00")
        wire.expect_nothing()
    wire = peers.raw()
    wire.send(connect_packet(peers.id(), username="u", protocol="MQIsdp", level=3, flags=0xC2))
    wire.expect(b"\x20\x02\x00\x00")


def test_expected_31_still_has_rules(peers: Peers) -> None:
    """Violations of both versions close a 3.1 client too."""
    for data in (b"\x36\x04\x00\x01a\x00", b"\xf0\x00", packet(0x82, b"\x00\x01"), b"\x30\x00"):
        wire = old_client(peers)
        wire.send(data)
        wire.expect_closed()


def test_expected_31_session_seen_by_311(
    fresh_broker: BrokerFactory, peers_at: Callable[[BrokerProcess], Peers]
) -> None:
    """A session may change the version with its client: it belongs to the client id."""
    peers = peers_at(fresh_broker())
    topic = peers.topic("a")
    wire = old_client(peers, "s", clean=False)
    wire.subscribe((topic, 1))
    wire.disconnect()
    peers.publish(topic, b"x", qos=1)
    new = peers.resume("s")
    new.acknowledge(new.expect_publish(topic, b"x", qos=1))
    new.send(b"\xc0\x00")
    new.expect(PINGRESP_BYTES)

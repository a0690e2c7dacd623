"""Section 3.2: CONNACK."""

from tests.conformance.peers import Peers
from tests.support import wire as mqtt


def test_mqtt_3_2_0_1_connack_comes_first(peers: Peers) -> None:
    """On resuming, CONNACK comes ahead of every PUBLISH and PUBREL."""
    one, two = peers.topic("1"), peers.topic("2")
    wire = peers.subscriber((one, 1), (two, 2), part="s", clean=False)
    peers.publish(two, b"released", qos=2)
    wire.pubrec(wire.expect_publish(two, qos=2).packet_id)
    wire.expect(mqtt.PUBREL)
    peers.publish(one, b"unacknowledged", qos=1)
    wire.expect_publish(one, qos=1)
    wire.close()
    peers.publish(one, b"waiting", qos=1)
    again = peers.raw()
    again.ask(mqtt.connect_packet(peers.id("s"), clean=False), b"\x20\x02\x01\x00")
    found = sorted(again.recv_packet().type for _ in range(3))
    assert found == [mqtt.PUBLISH, mqtt.PUBLISH, mqtt.PUBREL]


def test_mqtt_3_2_2_2_session_present(peers: Peers) -> None:
    """Session present is 1 with clean session 0 and a session stored, and 0 on any other connection."""
    comes = ((True, 0), (False, 0), (False, 1), (False, 1), (True, 0), (True, 0), (False, 0))
    for clean, present in comes:
        wire = peers.raw()
        wire.ask(mqtt.connect_packet(peers.id("s"), clean=clean), bytes((0x20, 2, present, 0)))
        wire.disconnect()


def test_mqtt_3_2_2_4_refusals_have_no_session(peers: Peers) -> None:
    """A refused CONNECT gets session present 0, although its client has a stored session."""
    peers.client("s", clean=False).disconnect()
    peers.answers(mqtt.connect_packet(peers.id("s"), clean=False, level=6), b"\x20\x02\x00\x01")
    peers.resume("s")


def test_mqtt_3_2_2_6_codes_of_the_table_only(peers: Peers) -> None:
    """A refusal shows a code from 1 to 5, or no CONNACK at all where none fits."""
    for bad in (
        mqtt.connect_packet(peers.id(), level=6),
        mqtt.connect_packet("", clean=False),
        mqtt.connect_packet("x" * 1000),
        mqtt.connect_packet(peers.id(), flags=0x03),
        mqtt.connect_packet(peers.id(), protocol="MQTX"),
        mqtt.connect_packet(peers.id(), tail=b"\x00"),
        mqtt.connect_packet(b"\xff"),
    ):
        wire = peers.raw()
        wire.send(bad)
        try:
            assert wire.recv_packet().return_code in range(1, 6)
            wire.expect_closed()
        except mqtt.ConnectionEnded:
            continue

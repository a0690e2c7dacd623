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


def come(peers: Peers, answer: bytes, *cleans: bool) -> None:
    """A client comes and goes, with clean session 1 or 0, and is answered this each time."""
    for clean in cleans:
        wire = peers.raw()
        wire.ask(mqtt.connect_packet(peers.id("s"), clean=clean), answer)
        wire.disconnect()


def test_mqtt_3_2_2_1_clean_session(peers: Peers) -> None:
    """With clean session 1 session present is 0, even if a session was stored until then."""
    come(peers, b"\x20\x02\x00\x00", True, False, True)


def test_mqtt_3_2_2_2_stored_session(peers: Peers) -> None:
    """With clean session 0 and a session stored session present is 1."""
    peers.client("s", clean=False).disconnect()
    come(peers, b"\x20\x02\x01\x00", False, False)


def test_mqtt_3_2_2_3_nothing_stored(peers: Peers) -> None:
    """With clean session 0 and nothing stored session present is 0.

    So it is on a first connection, and on one after clean session 1.
    """
    come(peers, b"\x20\x02\x00\x00", False, True, False)


def test_mqtt_3_2_2_4_refusals_have_no_session(peers: Peers) -> None:
    """A refused CONNECT gets session present 0, although its client has a stored session."""
    peers.client("s", clean=False).disconnect()
    peers.answers(mqtt.connect_packet(peers.id("s"), clean=False, level=6), b"\x20\x02\x00\x01")
    peers.resume("s")


def test_mqtt_3_2_2_5_refusals_end_the_connection(peers: Peers) -> None:
    """Behind a CONNACK that refuses comes the end of the stream."""
    peers.answers(mqtt.connect_packet(peers.id(), level=6), b"\x20\x02\x00\x01")
    peers.answers(mqtt.connect_packet("", clean=False), b"\x20\x02\x00\x02")


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

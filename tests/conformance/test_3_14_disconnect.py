"""Section 3.14: DISCONNECT."""

from tests.conformance.peers import Peers
from tests.support import wire as mqtt


def test_mqtt_3_14_1_1_wrong_flags(peers: Peers, watcher: mqtt.Wire) -> None:
    """First byte E1 to EF: closed, and as it is an error the will is published."""
    for first in range(0xE1, 0xF0):
        will = mqtt.Will(peers.topic("will"), b"%d" % first)
        wire = peers.client("w", will=will)
        wire.ended_by(bytes([first, 0]))
        watcher.expect_publish(will.topic, will.payload)


def test_mqtt_3_14_4_1_server_closes_if_the_client_does_not(wire: mqtt.Wire) -> None:
    """Behind DISCONNECT the server ends the connection by itself, and sends nothing."""
    wire.ended_by(mqtt.DISCONNECT_BYTES)


def test_mqtt_3_14_4_2_nothing_counts_behind_disconnect(peers: Peers, watcher: mqtt.Wire) -> None:
    """Packets behind DISCONNECT are neither answered nor acted on."""
    wire = peers.client("d", will=mqtt.Will(peers.topic("will"), b"gone"))
    wire.send(
        mqtt.DISCONNECT_BYTES,
        mqtt.publish_packet(peers.topic("a"), b"x", qos=1, packet_id=1, retain=True),
        mqtt.subscribe_packet(2, (peers.topic("b"), 0)),
        mqtt.PINGREQ_BYTES,
        b"\xf0\x00",
    )
    wire.expect_closed()
    peers.expect_no_will(watcher, "d")
    peers.expect_none_retained(peers.topic("a"))


def test_mqtt_3_14_4_3_will_is_dropped(peers: Peers, watcher: mqtt.Wire) -> None:
    """After DISCONNECT the will arrives nowhere, whatever its QoS and retain."""
    for qos in (0, 1, 2):
        will = mqtt.Will(peers.topic("will"), b"gone", qos=qos, retain=True)
        peers.client("w", will=will).disconnect()
    peers.expect_no_will(watcher, "w")
    peers.expect_none_retained(peers.topic("will"))

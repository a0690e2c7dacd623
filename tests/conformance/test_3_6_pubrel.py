"""Section 3.6: PUBREL."""

from tests.conformance.peers import Peers
from tests.support.wire import PUBREC, PUBREL, publish_packet


def test_mqtt_3_6_1_1_wrong_flags(peers: Peers, topic: str) -> None:
    """PUBREL for an exchange under way, but with other flags than 0010: closed, no PUBCOMP."""
    for first in range(0x60, 0x70):
        if first == 0x62:
            continue
        wire = peers.client()
        wire.ask(publish_packet(topic, b"x", qos=2, packet_id=1), PUBREC)
        wire.ended_by(bytes([first]) + b"\x02\x00\x01")


def test_mqtt_3_6_1_1_flags_sent(peers: Peers, topic: str) -> None:
    """The server's own PUBREL begins with 62."""
    wire = peers.subscriber((topic, 2))
    peers.publish(topic, b"x", qos=2)
    wire.pubrec(wire.expect_publish(topic, qos=2).packet_id)
    assert wire.expect(PUBREL).first == 0x62

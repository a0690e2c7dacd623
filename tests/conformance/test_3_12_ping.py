"""Section 3.12: PINGREQ."""

from tests.conformance.peers import Peers
from tests.support.wire import PINGREQ_BYTES, PINGRESP_BYTES, Wire


def test_mqtt_3_12_4_1_answered_one_for_one(peers: Peers, wire: Wire) -> None:
    """Each PINGREQ brings one PINGRESP."""
    wire.ask(PINGREQ_BYTES, PINGRESP_BYTES)
    wire.send(PINGREQ_BYTES * 50)
    for _ in range(50):
        wire.expect(PINGRESP_BYTES)
    assert wire.subscribe((peers.topic("a"), 0)).codes == [0]

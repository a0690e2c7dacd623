"""Section 3.9: SUBACK."""

from itertools import permutations

from tests.conformance.peers import Peers
from tests.support.wire import Wire


def test_mqtt_3_9_3_1_order_of_codes(peers: Peers, wire: Wire) -> None:
    """The codes stand in the order of the filters requested."""
    for order in permutations((0, 1, 2)):
        pairs = [(peers.topic(f"{qos}"), qos) for qos in order]
        assert wire.subscribe(*pairs).codes == list(order)


def test_mqtt_3_9_3_2_codes_of_the_table(wire: Wire) -> None:
    """SUBACK codes are 00, 01, 02 and 80 only, whatever the kind of filter."""
    names = ("a", "a/+", "#", "/", "$SYS/#", "$SYS/+/x", "$share/g/a", "$x/#", " ")
    for qos in (0, 1, 2):
        codes = wire.subscribe(*((name, qos) for name in names)).codes
        assert len(codes) == len(names)
        assert set(codes) <= {0x00, 0x01, 0x02, 0x80}

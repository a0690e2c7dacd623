"""The packets to a client by what they are, whatever they are cut into."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.wire import PINGRESP_BYTES
from vmq.mqtt.encoder import publish
from vmq.mqtt.sorting import sort_packets

ANSWERS = st.sampled_from(
    [
        b"\x20\x02\0\0",
        b"\x40\x02\0\1",
        b"\x50\x02\0\1",
        b"\x70\x02\0\1",
        b"\x90\x03\0\1\2",
        b"\xb0\x02\0\1",
    ]
)
DELIVERIES = st.just(b"\x62\x02\0\1") | st.builds(
    lambda size, qos: publish(b"t", b"\x40" * size, qos, 1, False, False),
    st.sampled_from([0, 1, 120, 121, 122, 123, 124, 127, 128, 16_370, 16_384]),
    st.integers(0, 2),
)
PACKETS = st.one_of(
    st.tuples(st.just(0), ANSWERS),
    st.tuples(st.just(1), DELIVERIES),
    st.tuples(st.just(2), st.just(PINGRESP_BYTES)),
)


@given(st.lists(PACKETS, max_size=20))
def test_each_packet_is_with_its_kind_in_order(packets: list[tuple[int, bytes]]) -> None:
    found = sort_packets(b"".join(packet for _, packet in packets))
    assert found == tuple(
        b"".join(packet for kind, packet in packets if kind == wanted) for wanted in range(3)
    )


def test_packets_of_one_kind_are_not_copied() -> None:
    data = b"\x40\x02\0\1" * 3
    assert sort_packets(data)[0] is data


@given(st.binary(max_size=30))
def test_nothing_is_lost_of_what_is_no_packet(data: bytes) -> None:
    assert sum(map(len, sort_packets(data))) == len(data)

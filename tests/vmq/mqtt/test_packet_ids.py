"""Packet ids against a plain set."""

import sys

from hypothesis import given, settings
from hypothesis import strategies as st

from vmq.mqtt.packet_ids import BITS, FEW, PacketIds

IDS = st.integers(1, 65_535)
#: Many at once, so that both forms are met, and ids that share a byte.
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add", "discard", "update", "discard all", "discard back", "clear"]),
        st.one_of(IDS, st.integers(1, 200)),
        st.integers(1, 2 * FEW),
    ),
    max_size=40,
)


@given(CHANGES)
@settings(max_examples=200)
def test_they_are_a_set(changes: list[tuple[str, int, int]]) -> None:
    ids, plain = PacketIds(), set[int]()
    for change, packet_id, many in changes:
        several = [each for each in range(packet_id, packet_id + many) if each < 65_536]
        if change == "add":
            ids.add(packet_id)
            plain.add(packet_id)
        elif change == "discard":
            ids.discard(packet_id)
            plain.discard(packet_id)
        elif change == "update":
            ids.update(several)
            plain.update(several)
        elif change.startswith("discard "):
            for each in several if change == "discard all" else several[::-1]:
                ids.discard(each)
                plain.discard(each)
        else:
            ids.clear()
            plain.clear()
        assert len(ids) == len(plain)
        assert list(ids) == sorted(plain)
        assert all((each in ids) == (each in plain) for each in (packet_id, several[-1], 65_535))


def test_ids_in_turn_take_next_to_nothing() -> None:
    """As clients give and release them, round after round."""
    ids = PacketIds()
    for number in range(3 * 65_535):
        ids.add(number % 65_535 + 1)
        if number >= 20:
            ids.discard((number - 20) % 65_535 + 1)
            assert len(ids) == 20
    assert ids.bits is None
    assert ids.few is None


def test_all_of_them_take_a_bit_each_and_none_take_nothing() -> None:
    ids = PacketIds()
    ids.update(range(1, 65_536))
    assert len(ids) == 65_535
    assert sys.getsizeof(ids.bits) + sys.getsizeof(ids.few) < BITS + 100
    for each in list(ids):
        ids.discard(each)
    assert ids.bits is None
    assert len(ids) == 0

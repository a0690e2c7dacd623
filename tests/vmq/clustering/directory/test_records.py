"""Subscriber records: there and back, and which of two is true."""

from functools import reduce
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.mqtt.strategies import ANY_FILTER
from vmq.clustering.directory import records

RECORDS = st.builds(
    records.Record,
    st.sampled_from(["a", "b", "c"]),
    st.integers(0, 3),
    st.booleans(),
    st.dictionaries(ANY_FILTER, st.integers(0, 2), max_size=3),
)
RAW = RECORDS.map(records.encode) | st.binary(max_size=4)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)


@given(RECORDS)
def test_a_record_goes_there_and_back(record: records.Record) -> None:
    assert records.decode(records.encode(record)) == record


@given(RECORDS)
def test_equal_records_are_equal_bytes(record: records.Record) -> None:
    backwards = dict(reversed(record.subscriptions.items()))
    assert records.encode(
        records.Record(record.node, record.since, record.clean, backwards)
    ) == records.encode(record)


@given(NAMES, NAMES)
def test_a_key_goes_there_and_back(mountpoint: str, client_id: str) -> None:
    assert records.decode_key(records.encode_key(mountpoint, client_id)) == (mountpoint, client_id)


@pytest.mark.parametrize("key", [b"", b"me", b"\xff\0me"])
def test_what_is_no_key_is_refused(key: bytes) -> None:
    with pytest.raises(records.RecordError, match="is no subscriber"):
        records.decode_key(key)


@pytest.mark.parametrize(
    "value", [None, ["", 1, True, {}], ["a", -1, True, {}], ["a", 1, True, {"f": 3}]]
)
def test_what_is_no_record_is_refused(value: object) -> None:
    import msgspec

    with pytest.raises(records.RecordError):
        records.decode(msgspec.msgpack.encode(value))


@given(RAW, RAW, RAW)
def test_all_nodes_agree_whatever_the_order(one: bytes, other: bytes, third: bytes) -> None:
    found = {reduce(records.merge, order) for order in permutations([one, other, third])}
    assert len(found) == 1
    assert records.merge(one, one) == one
    assert records.merge(records.merge(one, other), third) == records.merge(
        one, records.merge(other, third)
    )


@given(RECORDS, RECORDS)
def test_the_newest_session_wins_as_a_whole(one: records.Record, other: records.Record) -> None:
    winner = records.decode(records.merge(records.encode(one), records.encode(other)))
    assert winner in (one, other)
    assert winner.since == max(one.since, other.since)


@given(RECORDS, st.integers(0, 5))
def test_who_takes_over_wins_whatever_its_clock_says(before: records.Record, now: int) -> None:
    after = records.taken_over(before, "a", now, False, {})
    assert after.since >= now
    assert records.decode(records.merge(records.encode(before), records.encode(after))) == after


def test_the_first_owner_begins_now() -> None:
    assert records.taken_over(None, "a", 7, True, {"f": 1}) == records.Record(
        "a", 7, True, {"f": 1}
    )


def test_keys_of_pieces_follow_their_session_and_no_other() -> None:
    key = records.encode_key("mp", "c")
    piece = records.encode_piece(key, "node/17", 300)
    assert records.decode_piece(piece) == (key, "node/17", 300)
    assert records.decode_piece(key) is None
    assert piece.startswith(records.pieces_of(key, "node/17"))
    assert key < piece < records.encode_key("mp", "c\1") < records.encode_key("mp", "c1")
    for odd in (piece + b"z", piece + b"\0", key + b"\0x", key + b"\0\xff\x000"):
        assert records.decode_piece(odd) is None
    with pytest.raises(records.RecordError):
        records.decode_key(piece)

"""Subscriber records: there and back, and which of two is true."""

from functools import reduce
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.mqtt.strategies import ANY_FILTER
from vmq.clustering.directory.records import (
    Record,
    RecordError,
    decode,
    decode_key,
    decode_piece,
    encode,
    encode_key,
    encode_piece,
    merge,
    pieces_of,
    taken_over,
)

RECORDS = st.builds(
    Record,
    st.sampled_from(["a", "b", "c"]),
    st.integers(0, 3),
    st.booleans(),
    st.dictionaries(ANY_FILTER, st.integers(0, 2), max_size=3),
)
RAW = RECORDS.map(encode) | st.binary(max_size=4)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)


@given(RECORDS)
def test_a_record_goes_there_and_back(record: Record) -> None:
    assert decode(encode(record)) == record


@given(RECORDS)
def test_equal_records_are_equal_bytes(record: Record) -> None:
    backwards = dict(reversed(record.subscriptions.items()))
    assert encode(Record(record.node, record.since, record.clean, backwards)) == encode(record)


@given(NAMES, NAMES)
def test_a_key_goes_there_and_back(mountpoint: str, client_id: str) -> None:
    assert decode_key(encode_key(mountpoint, client_id)) == (mountpoint, client_id)


@pytest.mark.parametrize("key", [b"", b"me", b"\xff\0me"])
def test_what_is_no_key_is_refused(key: bytes) -> None:
    with pytest.raises(RecordError, match="is no subscriber"):
        decode_key(key)


@pytest.mark.parametrize(
    "value", [None, ["", 1, True, {}], ["a", -1, True, {}], ["a", 1, True, {"f": 3}]]
)
def test_what_is_no_record_is_refused(value: object) -> None:
    import msgspec

    with pytest.raises(RecordError):
        decode(msgspec.msgpack.encode(value))


@given(RAW, RAW, RAW)
def test_all_nodes_agree_whatever_the_order(one: bytes, other: bytes, third: bytes) -> None:
    found = {reduce(merge, order) for order in permutations([one, other, third])}
    assert len(found) == 1
    assert merge(one, one) == one
    assert merge(merge(one, other), third) == merge(one, merge(other, third))


@given(RECORDS, RECORDS)
def test_the_newest_session_wins_as_a_whole(one: Record, other: Record) -> None:
    winner = decode(merge(encode(one), encode(other)))
    assert winner in (one, other)
    assert winner.since == max(one.since, other.since)


@given(RECORDS, st.integers(0, 5))
def test_who_takes_over_wins_whatever_its_clock_says(before: Record, now: int) -> None:
    after = taken_over(before, "a", now, False, {})
    assert after.since >= now
    assert decode(merge(encode(before), encode(after))) == after


def test_the_first_owner_begins_now() -> None:
    assert taken_over(None, "a", 7, True, {"f": 1}) == Record("a", 7, True, {"f": 1})


def test_keys_of_pieces_follow_their_session_and_no_other() -> None:
    key = encode_key("mp", "c")
    piece = encode_piece(key, "node/17", 300)
    assert decode_piece(piece) == (key, "node/17", 300)
    assert decode_piece(key) is None
    assert piece.startswith(pieces_of(key, "node/17"))
    assert key < piece < encode_key("mp", "c\1") < encode_key("mp", "c1")
    for odd in (piece + b"z", piece + b"\0", key + b"\0x", key + b"\0\xff\x000"):
        assert decode_piece(odd) is None
    with pytest.raises(RecordError):
        decode_key(piece)

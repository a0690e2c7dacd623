"""Messages between nodes: there and back, and nothing that raises anything else."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.clustering.publishes import Publish
from vmq.clustering.wire import Parcel, WireError, decode, decode_parcel, encode

PUBLISH = Publish(b"a/b", b"payload", 1, "m")
NUMBERS = st.integers(1, (1 << 62) - 1)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_a_parcel_goes_there_and_back(store: int, life: int, number: int) -> None:
    parcel = Parcel(store, life, number, PUBLISH)
    assert decode_parcel(encode(parcel)) == parcel


def test_a_message_goes_there_and_back() -> None:
    assert decode(encode(PUBLISH)) == PUBLISH


def test_fields_of_a_later_version_are_passed_over() -> None:
    fields = msgspec.msgpack.decode(encode(PUBLISH))
    assert decode(msgspec.msgpack.encode([*fields, "new"])) == PUBLISH


@pytest.mark.parametrize(
    ("store", "life", "number"), [(0, 1, 1), (1, 0, 1), (1, 1, 0), (1, 1, 1 << 62)]
)
def test_a_place_out_of_bounds_is_refused(store: int, life: int, number: int) -> None:
    with pytest.raises(WireError, match="no parcel: "):
        decode_parcel(encode(Parcel(store, life, number, PUBLISH)))


def test_a_message_is_checked_wherever_it_is() -> None:
    bad = Publish(b"a/#", b"", 0)
    with pytest.raises(WireError, match="no message: its topic"):
        decode(encode(bad))
    with pytest.raises(WireError, match="no parcel: its topic"):
        decode_parcel(encode(Parcel(1, 1, 1, bad)))


@given(st.binary(max_size=40) | st.builds(lambda cut: encode(PUBLISH)[:cut], st.integers(0, 15)))
def test_other_bytes_are_refused_and_nothing_else_happens(raw: bytes) -> None:
    for attempt in (decode, decode_parcel):
        try:
            attempt(raw)
        except WireError as error:
            assert str(error).startswith("no ")


def test_deep_nonsense_is_refused() -> None:
    with pytest.raises(WireError):
        decode_parcel(b"\x91" * 100_000)

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.streams.flight.tickets import BadTicketError, OffsetsQuery, Query, Ticket, decode, encode


@given(
    st.integers(0, 1 << 62),
    st.none() | st.integers(0, 1 << 62),
    st.none() | st.lists(st.sampled_from(["topic", "offset"]), min_size=1, max_size=3),
)
def test_a_ticket_survives_the_way(start: int, end: int | None, columns: list[str] | None) -> None:
    ticket = Ticket(stream="s", partition=3, start=start, end=end, columns=columns, filter="a/#")
    assert decode(encode(ticket), Ticket, "ticket") == ticket


def test_what_is_left_out_has_a_default() -> None:
    assert decode(b'{"stream": "s"}', Ticket, "ticket") == Ticket(stream="s", start="earliest")
    assert encode(Query(stream="s")) == b'{"stream":"s"}'


def test_offsets_are_named_by_partition() -> None:
    query = decode(b'{"stream": "s", "after": {"0": 5, "12": 6}}', OffsetsQuery, "body")
    assert query.after == {0: 5, 12: 6}


@given(st.binary(max_size=50))
def test_anything_else_is_a_bad_ticket(raw: bytes) -> None:
    with pytest.raises(BadTicketError, match="the ticket cannot be understood: "):
        decode(raw, Ticket, "ticket")


def test_a_ticket_that_is_nested_without_end_is_a_bad_one() -> None:
    with pytest.raises(BadTicketError, match="the ticket cannot be understood: "):
        decode(b'{"other": ' + b"[" * 60_000, Ticket, "ticket")

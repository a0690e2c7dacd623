from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.streams.support import Row, options, plain
from vmq.streams.log.gathering import Gathering, Headers, flags_of, zeros
from vmq.streams.log.keys import Keys
from vmq.streams.log.schema import STORED

MESSAGES = st.lists(
    st.tuples(
        st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10),
        st.binary(max_size=10),
        st.integers(0, 2),
        st.booleans(),
        st.sampled_from(["c1", "c2"]),
        st.integers(0, 1 << 60),
        st.lists(st.tuples(st.text(max_size=3), st.text(max_size=3)), max_size=2),
    ),
    min_size=1,
    max_size=20,
)


def add(gathering: Gathering, message: tuple[Any, ...]) -> None:
    topic, payload, qos, retain, client, time, headers = message
    if headers:
        gathering.headers[len(gathering.topics)] = headers
    gathering.add_run(topic.encode(), [payload], flags_of(qos, retain), client, time)


def as_row(message: tuple[Any, ...]) -> Row:
    topic, payload, qos, retain, client, time, headers = message
    return {
        "topic": topic,
        "payload": payload,
        "qos": qos,
        "retain": retain,
        "timestamp": time,
        "client_id": client,
        "key": client.encode(),
        "headers": [{"key": key, "value": value} for key, value in headers],
    }


@given(MESSAGES)
def test_the_rows_are_what_was_gathered(messages: list[tuple[Any, ...]]) -> None:
    gathering = Gathering()
    for message in messages:
        add(gathering, message)
    rows, left_out = gathering.rows(Keys(options()))
    assert left_out == 0
    assert rows.schema.equals(STORED)
    rows.validate(full=True)
    assert plain(rows) == [as_row(message) for message in messages]
    assert gathering.newest() == max(message[5] for message in messages)


@pytest.mark.parametrize(
    ("topic", "client", "headers"),
    [
        (b"\xff", "c", None),
        (b"a", "\ud800", None),
        (b"a", "c", [("k", "\ud800")]),
        (b"a", "c", [("k", 5)]),
    ],
)
def test_a_row_that_is_no_text_is_left_out_alone(
    topic: bytes, client: str, headers: Headers | None
) -> None:
    gathering = Gathering()
    good = ("a", b"p", 1, False, "c", 5, [("k", "v")])
    add(gathering, good)
    if headers:
        gathering.headers[1] = headers
    gathering.add_run(topic, [b"x"], 0, client, 1)
    add(gathering, good)
    rows, left_out = gathering.rows(Keys(options()))
    assert left_out == 1
    assert plain(rows) == [as_row(good)] * 2


def test_a_run_is_many_messages() -> None:
    gathering = Gathering()
    gathering.add_run(b"t", [b"1", b"2", b"3"], flags_of(2, True), "c", 9)
    rows, _ = gathering.rows(Keys(options(key="topic")))
    wanted = as_row(("t", b"", 2, True, "c", 9, []))
    assert plain(rows) == [{**wanted, "key": b"t", "payload": b"%d" % n} for n in (1, 2, 3)]


def test_zeros_of_any_size() -> None:
    for size in (0, 1, 1 << 16, (1 << 16) + 1):
        buffer = zeros(size)
        assert isinstance(buffer, pa.Buffer)
        assert buffer.to_pybytes() == bytes(size)

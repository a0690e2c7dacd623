"""Rows as packets: against the encoder that makes them one by one."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.present import present
from vmq.core.window import LAST_ID
from vmq.mqtt.encoder import publish
from vmq.streams.replay import frames
from vmq.streams.replay.frames import PIECE, fits, frames_of, pieces_of

Row = tuple[str, bytes, bool]
SCHEMA = pa.schema([("topic", pa.string()), ("payload", pa.binary()), ("retain", pa.bool_())])
ROWS = st.lists(
    st.tuples(
        st.text(st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=20),
        st.one_of(
            st.binary(max_size=300),
            st.integers(0, 40_000).map(bytes),
            st.sampled_from([bytes(size) for size in (16_370, 16_380, 16_384, 32_768)]),
        ),
        st.booleans(),
    ),
    max_size=60,
)


def batch(rows: list[Row]) -> pa.RecordBatch:
    columns: list[Any] = list(zip(*rows, strict=True)) if rows else [[], [], []]
    made = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)],
        schema=SCHEMA,
    )
    offsets = pa.array(range(5, 5 + 2 * len(rows), 2), pa.int64())
    return made.append_column("offset", offsets)


@settings(max_examples=40, deadline=None)
@given(ROWS, st.sampled_from([b"", b"old/"]), st.booleans(), st.integers(0, 3))
def test_the_very_bytes(rows: list[Row], prefix: bytes, as_published: bool, skip: int) -> None:
    found = pieces_of(batch(rows).slice(skip), prefix, as_published)
    wanted = [
        publish(prefix + topic.encode(), payload, 0, 0, as_published and retain, False)
        for topic, payload, retain in rows[skip:]
    ]
    at = 0
    for piece in found:
        part = wanted[at : at + piece.rows]
        assert piece.data == b"".join(part)
        assert len(part) == piece.rows > 0
        assert piece.rows == 1 or len(b"".join(part[:-1])) <= PIECE
        at += piece.rows
    assert at == len(wanted)


@settings(max_examples=40, deadline=None)
@given(
    ROWS,
    st.sampled_from([b"", b"old/"]),
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from([1, 32_768]),
    st.one_of(st.integers(32_768, LAST_ID), st.integers(LAST_ID - 3, LAST_ID)),
)
def test_the_very_bytes_under_packet_ids_that_count_on(
    rows: list[Row], prefix: bytes, as_published: bool, skip: int, least: int, first: int
) -> None:
    given = batch(rows).slice(skip)
    wanted = [
        (prefix + topic.encode(), payload, as_published and retain)
        for topic, payload, retain in rows[skip:]
    ]
    found = frames_of(given, prefix, as_published, first, least)
    if found is None:
        sizes = [len(topic) + len(payload) + 4 for topic, payload, _ in wanted]
        assert max(sizes, default=16_384) >= 16_384
        return
    assert found.count == len(wanted)
    assert list(found.offsets) == given.column("offset").to_pylist()
    for at, (topic, payload, retain) in enumerate(wanted):
        begin, end, where = found.ends[at], found.ends[at + 1], found.ids[at]
        packet_id = first + at if first + at <= LAST_ID else least + first + at - LAST_ID - 1
        assert found.packet_id(at) == packet_id
        assert found.data[where : where + 2] == packet_id.to_bytes(2, "big")
        assert found.data[begin:end] == publish(topic, payload, 1, packet_id, retain, False)
        said = found.message(at)
        assert (said.topic, said.payload, said.retain) == (topic, payload, retain)


def test_many_small_ones_go_in_pieces() -> None:
    rows: list[Row] = [("a/b", bytes(100), False)] * 1000
    found = pieces_of(batch(rows), b"", False)
    assert sum(each.rows for each in found) == 1000
    assert all(len(each.data) <= PIECE for each in found)
    assert len(found) == -(-107 * 1000 // (PIECE // 107 * 107))


def test_what_is_no_packet_behind_a_prefix() -> None:
    long = "t" * 65_530
    assert fits(batch([(long, b"", False)]), b"") is None
    mask = present(fits(batch([(long, b"", False), ("a", b"", False)]), b"prefix/"))
    assert mask.to_pylist() == [False, True]


def test_what_is_too_large_for_mqtt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_REMAINING_LENGTH", 1000)
    mask = present(fits(batch([("a", bytes(996), False), ("a", bytes(995), False)]), b""))
    assert mask.to_pylist() == [False, True]

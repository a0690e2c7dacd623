"""Typed columns: against a naive reading of each payload, one by one."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.streams.support import make, put, row
from vmq.config.columns import read_columns
from vmq.streams.log.columns import Projection
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.errors import StreamError
from vmq.streams.log.typed import Extraction, Unfit

SCHEMA = {
    "temp": "double",
    "count": "int32",
    "ok": "bool",
    "name": "string",
    "at": "timestamp",
    "deep": "int64 a.b[1]",
    "device": "string level:2",
    "floor": "int32 level:1",
}
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.just("2026-03-01T12:00:00Z"),
    st.just("2026-03-01T12:00:00"),
    st.lists(st.integers(0, 9), max_size=3),
    st.fixed_dictionaries({"b": st.lists(st.integers(0, 9), max_size=3)}),
)
PAYLOADS = st.one_of(
    st.dictionaries(st.sampled_from(["temp", "count", "ok", "name", "at", "a", "x"]), VALUES),
    VALUES,
).map(lambda value: json.dumps(value).encode()) | st.binary(max_size=8)
TOPICS = st.sampled_from(["1/a", "2/b/c", "x", "roof/é", "-3/", "1.5/y"])


def batch(rows: list[tuple[str, bytes]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([each[0] for each in rows], pa.string()),
            pa.array([each[1] for each in rows], pa.binary()),
        ],
        ["topic", "payload"],
    )


def fitting(kind: str, value: Any) -> Any:
    """What a column takes of a value that is there; None: it does not fit."""
    if kind == "string":
        return value if isinstance(value, str) else None
    if kind == "bool":
        return value if isinstance(value, bool) else None
    if kind == "timestamp":
        return datetime(2026, 3, 1, 12, tzinfo=UTC) if value == "2026-03-01T12:00:00Z" else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if kind == "double":
        return float(value)
    if isinstance(value, float) and abs(value) >= 2**53:
        return None
    bits = 31 if kind == "int32" else 63
    return int(value) if value == int(value) and -(1 << bits) <= value < 1 << bits else None


def expected(name: str, text: str, topic: str, payload: bytes) -> tuple[Any, str]:
    """The value, or what is wrong."""
    kind, _, path = text.partition(" ")
    if path.startswith("level:"):
        levels = topic.split("/")
        at = int(path[6:]) - 1
        if at >= len(levels):
            return None, "missing"
        if kind == "int32":
            found: Any = int(levels[at]) if levels[at].lstrip("-").isdigit() else None
        else:
            found = levels[at]
        return found, "" if found is not None else "unfit"
    try:
        value = json.loads(payload)
    except ValueError:
        value = None
    for step in path.replace("[", ".[").split(".") if path else [name]:
        try:
            value = (
                value[int(step[1:-1])]
                if step.startswith("[")
                else value[step]
                if isinstance(value, dict)
                else None
            )
        except (KeyError, IndexError, TypeError):
            value = None
    if value is None:
        return None, "missing"
    found = fitting(kind, value)
    return found, "" if found is not None else "unfit"


@given(st.lists(st.tuples(TOPICS, PAYLOADS), max_size=30))
def test_every_value_that_fits_and_the_counts_of_those_that_do_not(
    rows: list[tuple[str, bytes]],
) -> None:
    extraction = Extraction(read_columns(SCHEMA))
    found = extraction.apply(batch(rows))
    for column, (name, text) in zip(found, SCHEMA.items(), strict=True):
        wanted = [expected(name, text, *each) for each in rows]
        assert column.to_pylist() == [value for value, _ in wanted]
        flaws = [flaw for _, flaw in wanted]
        assert extraction.counts[name] == Unfit(flaws.count("missing"), flaws.count("unfit"))
        assert column.type == extraction.schema.field(name).type


def test_what_all_fits_is_what_is_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than are read together, and the same where payloads among them do not fit."""
    payloads = [
        {"temp": number, "count": number, "ok": True, "name": "é", "a": {"b": [0, number]}}
        for number in range(1500)
    ]
    payloads += [{"temp": 0.5, "name": None, "at": "2026-03-01T12:00:00Z"}, {}]
    rows = [("1/a", json.dumps(each).encode()) for each in payloads]
    quick, slow = Extraction(read_columns(SCHEMA)), Extraction(read_columns(SCHEMA))
    with monkeypatch.context() as patch:
        patch.setattr(quick, "_each", None)
        found = quick.apply(batch(rows))
    with monkeypatch.context() as patch:
        patch.setattr(slow, "_all_fit", lambda _: None)
        assert slow.apply(batch(rows)) == found
    assert quick.counts == slow.counts
    assert found[0].to_pylist() == [*map(float, range(1500)), 0.5, None]
    late = quick.apply(batch([*rows, ("1/a", b'{"count": 3.0}'), ("1/a", b'{"count": 1e99}')]))
    assert [each[: len(rows)] for each in late] == found
    assert late[1].to_pylist()[-2:] == [3, None]


def test_a_float_that_stands_for_several_whole_numbers_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However rows are read: whole numbers are exact up to the ends of the type, floats as far as they are."""
    numbers = {
        "9007199254740993": 2**53 + 1,
        "9223372036854775807": 2**63 - 1,
        "-9223372036854775808": -(2**63),
        "9007199254740991.0": 2**53 - 1,
        "-9.007199254740991e15": 1 - 2**53,
        "20.0": 20,
        "1e3": 1000,
        "9.007199254740993e15": None,
        "9007199254740992.0": None,
        "-9007199254740993.0": None,
        "1e18": None,
    }
    schema = {"n": "int64", "deep": "int64 a.b", "level": "int64 level:1"}
    rows = [
        (text, b'{"n": %b, "a": {"b": %b}}' % (text.encode(), text.encode())) for text in numbers
    ]
    wanted = list(numbers.values())
    quick, slow = Extraction(read_columns(schema)), Extraction(read_columns(schema))
    monkeypatch.setattr(slow, "_all_fit", lambda _: None)
    for each in (quick, slow):
        assert [found.to_pylist() for found in each.apply(batch(rows))] == [wanted] * 3
        assert each.counts == {name: Unfit(0, wanted.count(None)) for name in schema}
    alone = [Extraction(read_columns(schema)).apply(batch([each])) for each in rows]
    assert [[found[0].as_py() for found in each] for each in alone] == [[n] * 3 for n in wanted]


def test_the_payload_itself() -> None:
    extraction = Extraction(read_columns({"value": "double $", "first": "int64 [0]"}))
    value, first = extraction.apply(
        batch([("a", b"20.5"), ("a", b"[7, 8]"), ("a", b"hot"), ("a", b"null")])
    )
    assert value.to_pylist() == [20.5, None, None, None]
    assert first.to_pylist() == [None, 7, None, None]
    assert extraction.counts == {"value": Unfit(2, 1), "first": Unfit(3, 0)}
    assert extraction.invalid == 1


def test_what_is_no_json_is_counted_and_what_is_no_object_is_not() -> None:
    payloads = [
        b"[1, 2]",
        b"20.5",
        b"null",
        b'"x"',
        b"[1",
        b"hot",
        b"[1] x",
        b"",
        b"\xff",
        b'"\xff"',
    ]
    rows = batch([("a", each) for each in [*payloads, b'{"value": 1.5}']])
    for column in ("double", "double value.x"):
        extraction = Extraction(read_columns({"value": column}))
        extraction.apply(rows)
        assert extraction.invalid == 6
        assert extraction.counts["value"].missing == len(payloads) + (column != "double")
        assert extraction.counts["value"].unfit == 0


def test_a_deep_payload_harms_nobody() -> None:
    extraction = Extraction(read_columns({"value": "double", "whole": "double $"}))
    (value, _) = extraction.apply(
        batch([("a", b"[" * 100_000), ("a", b'{"value": ' + b"[" * 5000)])
    )
    assert value.to_pylist() == [None, None]
    assert extraction.invalid == 2


@pytest.mark.parametrize("kind", ["string", "bool", "int32", "int64", "double", "timestamp"])
@pytest.mark.parametrize("text", ["[" * 3000, '{"a":' * 3000, "1" * 5000, "1e999", '"'])
def test_a_strange_level_of_a_topic_does_not_fit_and_harms_nobody(kind: str, text: str) -> None:
    extraction = Extraction(read_columns({"value": f"{kind} level:2"}))
    (value,) = extraction.apply(batch([("a/" + text, b""), ("a/" + text + "/b", b"")]))
    fits = kind == "string"
    assert value.to_pylist() == [text if fits else None] * 2
    assert extraction.counts["value"] == Unfit(0, 0 if fits else 2)


def test_beside_the_columns_of_all_streams(tmp_path: Path) -> None:
    partition = make(tmp_path)
    put(
        partition, [row(number, f"t/{number % 2}", b'{"temp": %d}' % number) for number in range(4)]
    )
    typed = read_columns({"temp": "double", "device": "int32 level:2"})
    (chunk,) = LogReader(partition, None, typed=typed).read(0)
    assert chunk.rows.schema.names[-3:] == ["offset", "temp", "device"]
    reader = LogReader(partition, ["temp", "offset"], "t/1", typed=typed)
    (chunk,) = reader.read(0)
    assert chunk.rows.to_pylist() == [{"temp": 1.0, "offset": 1}, {"temp": 3.0, "offset": 3}]
    (chunk,) = LogReader(partition, ["device"], typed=typed).read(2)
    assert chunk.rows.to_pylist() == [{"device": 0}, {"device": 1}]


def test_columns_that_are_not_wanted_are_not_made() -> None:
    typed = read_columns({"temp": "double", "device": "string level:1"})
    assert Projection(["topic"], None, typed).typed is None
    of_topic = Projection(["device"], None, typed)
    assert of_topic.typed is not None
    assert not of_topic.typed.reads_payload
    with pytest.raises(
        StreamError, match=r"there is no column 'x'; accepted: topic, .*offset, temp, device"
    ):
        Projection(["x"], None, typed)

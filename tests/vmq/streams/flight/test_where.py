"""Conditions of tickets: what comes is what a plain look at each row leaves."""

import json
import operator
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import flight

from tests.vmq.streams.flight.test_typed import SCHEMA, get
from tests.vmq.streams.flight_support import FACES, Running, serving
from tests.vmq.streams.support import options
from vmq.streams.log.columns import Projection
from vmq.streams.log.conditions import Condition
from vmq.streams.log.cursor import LogReader

PAYLOADS = (b'{"temp": 20.5}', b'{"temp": -3}', b'{"temp": "hot"}', b"broken", b'{"temp": 20.5}')
ROWS = [(f"s/{at % 3}", payload) for at, payload in enumerate(PAYLOADS * 3)]
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, among: value in among,
    "starts with": lambda value, begin: value.startswith(begin),
}
NUMBERS = st.sampled_from([-3, -3.0, 0, 20.5, 21])
COMPARISON = st.sampled_from(["=", "<", "<=", ">", ">="])
TEXTS = {"topic": ["s/0", "s/1", "x", "s"], "device": ["0", "2", "", "20"]}


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, str, Any]:
    column = draw(st.sampled_from(["temp", "topic", "device", "offset", "timestamp", "key"]))
    if draw(st.integers(0, 5)) == 0:
        return column, draw(st.sampled_from(["null", "not null"])), None
    values: dict[str, Any] = {"temp": NUMBERS, "offset": st.integers(0, 16)}
    values["timestamp"] = st.sampled_from([0, 1 << 50, 1 << 60])
    values["key"] = st.sampled_from([b"", b"s/1", b"s/2"]).map(
        lambda each: b64encode(each).decode()
    )
    values |= {name: st.sampled_from(texts) for name, texts in TEXTS.items()}
    if draw(st.booleans()):
        return column, "in", draw(st.lists(values[column], max_size=3))
    if column in TEXTS and draw(st.booleans()):
        return column, "starts with", draw(values[column])
    return column, draw(COMPARISON), draw(values[column])


def holds(row: dict[str, Any], condition: tuple[str, str, Any]) -> bool:
    column, kind, wanted = condition
    value = row[column]
    if kind in {"null", "not null"}:
        return (value is None) == (kind == "null")
    return value is not None and bool(COMPARE[kind](value, wanted))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("where") / "streams"
    found = Running(folder, s=options(filters=["s/#"], key="topic", schema=SCHEMA))
    for topic, payload in ROWS:
        found.append(topic, payload)
    yield found
    found.close()


@settings(max_examples=50, deadline=None)
@given(st.lists(conditions(), max_size=3))
def test_as_a_look_at_each_row(running: Running, where: list[tuple[str, str, Any]]) -> None:
    stream = running.catalog.get("s")
    typed = stream.options.typed
    names = ["offset", "topic", "device", "temp", "timestamp", "key"]
    every = LogReader(stream.partition(0), names, typed=typed)
    rows = [row for chunk in every.read(0) for row in as_wire(chunk.rows.to_pylist())]
    wanted = [row["offset"] for row in rows if all(holds(row, each) for each in where)]
    asked = msgspec.convert(where, list[Condition])
    reader = LogReader(stream.partition(0), ["offset"], typed=typed, where=asked)
    found = [row["offset"] for chunk in reader.read(0) for row in chunk.rows.to_pylist()]
    assert found == wanted


def as_wire(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Times in microseconds and keys in base64, as tickets have them."""
    for row in rows:
        row["timestamp"] = int(row["timestamp"].timestamp() * 1_000_000)
        row["key"] = b64encode(row["key"]).decode()
    return rows


@pytest.mark.parametrize("face", FACES)
def test_tickets_have_them(running: Running, face: str) -> None:
    with serving(face, running) as server:
        where = [["temp", ">", 0], ["topic", "=", "s/0"]]
        found = get(server, columns=["offset"], where=where, limit=2)
        assert found.to_pylist() == [{"offset": 0}, {"offset": 9}]
        with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
            command = {"stream": "s", "columns": ["temp"], "where": [["temp", "<", 0]]}
            descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
            (endpoint,) = client.get_flight_info(descriptor).endpoints
            rows = client.do_get(endpoint.ticket).read_all()
            assert rows.column("temp").to_pylist() == [-3.0] * 3
        for wrong, said in (
            ([["x", "=", 1]], "where: there is no column 'x'; accepted: .*temp"),
            ([["temp", "=", "a"]], "where: 'temp' is double, not str"),
            ([["temp", "in", 3]], "no list"),
            ([["qos", "=", 1 << 40]], "where: 'qos' is int32: .* is none"),
            ([["headers", "=", 1]], "can be null or not null"),
            ([["temp", "~", 1]], "cannot be understood"),
            ([["temp", "=", 1]] * 51, "cannot be understood"),
        ):
            with pytest.raises(flight.FlightServerError, match=said):
                get(server, where=wrong)
        with pytest.raises(flight.FlightServerError, match="a where in a packed get"):
            get(server, columns=["topic"], packed=True, where=[["qos", "=", 1]])


def test_only_what_is_looked_at_is_read() -> None:
    found = Projection(["offset"], None, (), [Condition("qos", "=", 1)])
    assert len(found.fields) == 1

"""The sink by way of Flight: what it takes, and what it says of the rest."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.support.until import reach
from tests.vmq.streams.flight_support import FACES, Running, act, serving
from tests.vmq.streams.support import options
from vmq.streams.flight import sink as flight_sink
from vmq.streams.flight.access import Anybody
from vmq.streams.flight.service import StreamServer
from vmq.streams.flight.sink import BatchQuery, PartQuery, discard, owned, publish, stage
from vmq.streams.staging.parts import MESSAGE, Staging


class Rules(Anybody):
    def __init__(self) -> None:
        self.asked: list[str] = []

    def longest_payload(self) -> int:
        return 10

    def may_write(self, _user: str | None, topic: str) -> bool:
        self.asked.append(topic)
        return topic != "forbidden"


class Sink:
    """Notes what it is to publish."""

    def __init__(self, staging: Staging) -> None:
        self.staging = staging
        self.published: list[tuple[str, int, list[tuple[int, int]]]] = []
        self.hangs = False

    def publish(self, query: str, batch: int, parts: Sequence[tuple[int, int]]) -> "Future[int]":
        self.published.append((query, batch, list(parts)))
        future: Future[int] = Future()
        if not self.hangs:
            future.set_result(7)
        return future


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("streams"), a=options())
    yield running
    running.close()


@pytest.fixture
def rules() -> Rules:
    return Rules()


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(Staging(tmp_path))


@pytest.fixture(params=FACES)
def client(
    running: Running, sink: Sink, rules: Rules, request: pytest.FixtureRequest
) -> Iterator[flight.FlightClient]:
    with (
        serving(request.param, running, access=rules, sink=sink) as server,
        flight.connect(("127.0.0.1", server.port)) as client,
    ):
        yield client


def rows(*topics: str, qos: int = 1) -> pa.RecordBatch:
    plain = [{"topic": each, "payload": b"x", "qos": qos, "retain": False} for each in topics]
    return pa.RecordBatch.from_pylist(plain, schema=MESSAGE)


def put(client: flight.FlightClient, messages: pa.RecordBatch, **changes: Any) -> None:
    command = {"query": "q", "batch": 0, "part": 0, "attempt": 0, **changes}
    descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
    writer, _ = client.do_put(descriptor, messages.schema)
    with writer:
        writer.write_batch(messages)


def staged(sink: Sink) -> list[str]:
    return sorted(path.name for path in sink.staging.folder.glob("*/*"))


def test_parts_are_staged_and_published(client: flight.FlightClient, sink: Sink) -> None:
    put(client, rows("t"), part=3, attempt=9)
    assert staged(sink) == ["0-3-9.arrow"]
    assert act(client, "publish", query="q", batch=0, parts=[[3, 9]]) == {"published": 7}
    assert sink.published == [("anyone.q", 0, [(3, 9)])]


def test_parts_are_discarded(client: flight.FlightClient, sink: Sink) -> None:
    put(client, rows("t"))
    assert act(client, "discard", query="q", batch=0) == {}
    assert staged(sink) == []


def test_nobody_reaches_the_query_of_another_user(tmp_path: Path) -> None:
    sink = Sink(Staging(tmp_path))
    wanted = BatchQuery(query="q", batch=0, parts=[(0, 0)])
    part = PartQuery(query="q", batch=0, part=0, attempt=0)
    chunk = SimpleNamespace(data=rows("t"))
    stage(sink, Anybody(), "ann", part, [chunk])
    for other in ("bob", None):
        discard(sink, other, wanted)
        publish(sink, other, wanted)
    assert staged(sink) == ["0-0-0.arrow"]
    assert owned("q", "ann") not in [query for query, _, _ in sink.published]
    discard(sink, "ann", wanted)
    assert staged(sink) == []


def test_each_topic_is_asked_about_once_a_put(client: flight.FlightClient, rules: Rules) -> None:
    put(client, rows("a", "b", "a", "a"))
    assert sorted(rules.asked) == ["a", "b"]


def test_a_payload_above_max_message_size_stages_nothing(
    client: flight.FlightClient, sink: Sink
) -> None:
    plain = [{"topic": "a", "payload": b"x" * size, "qos": 0, "retain": False} for size in (10, 11)]
    with pytest.raises(flight.FlightServerError, match="at most 10 bytes"):
        put(client, pa.RecordBatch.from_pylist(plain, schema=MESSAGE))
    assert (staged(sink), sink.staging.size) == ([], 0)


def test_who_may_not_publish_to_one_topic_stages_nothing(
    client: flight.FlightClient, sink: Sink
) -> None:
    with pytest.raises(flight.FlightUnauthorizedError, match="may not publish to 'forbidden'"):
        put(client, rows("a", "forbidden"))
    assert (staged(sink), sink.staging.size) == ([], 0)


@pytest.mark.parametrize(
    ("batch", "text"),
    (
        (rows("a/+"), "is no topic name"),
        (rows(""), "is no topic name"),
        (rows("x" * 65_536), "a topic is too long"),
        (rows("a", qos=3), "a qos that is none; accepted: 0, 1, 2"),
        (rows("a", qos=-1), "a qos that is none; accepted: 0, 1, 2"),
        (rows("a").select(["topic", "payload"]), "the columns are .* accepted: topic string"),
        (
            pa.RecordBatch.from_pylist([{"topic": "a", "payload": None}], schema=MESSAGE),
            "column payload has nulls",
        ),
    ),
)
def test_rows_that_are_no_messages_are_refused(
    client: flight.FlightClient, sink: Sink, batch: pa.RecordBatch, text: str
) -> None:
    with pytest.raises(flight.FlightError, match=text):
        put(client, batch)
    assert (staged(sink), sink.staging.size) == ([], 0)


@pytest.mark.parametrize(
    "changes", ({"query": ""}, {"query": "../x"}, {"batch": -1}, {"part": "a"}, {"more": 1})
)
def test_bad_commands_are_refused(
    client: flight.FlightClient, sink: Sink, changes: dict[str, Any]
) -> None:
    with pytest.raises(flight.FlightError, match=next(iter(changes))):
        put(client, rows("a"), **changes)
    assert staged(sink) == []


def test_a_put_that_breaks_off_is_no_part(client: flight.FlightClient, sink: Sink) -> None:
    """Though its rows end like those of one that is whole."""
    part = json.dumps({"query": "q", "batch": 0, "part": 0, "attempt": 0}).encode()
    descriptor = flight.FlightDescriptor.for_command(part)
    writer, _ = client.do_put(descriptor, MESSAGE, flight.FlightCallOptions(timeout=1))
    writer.write_batch(rows("a"))
    reach(lambda: list(sink.staging.folder.glob("*/*.tmp")), rest=1)
    reach(lambda: not list(sink.staging.folder.glob("*/*.tmp")), rest=1)
    with pytest.raises(flight.FlightTimedOutError):
        writer.close()
    assert staged(sink) == []


def test_no_more_than_the_limit_is_staged(client: flight.FlightClient, sink: Sink) -> None:
    sink.staging.most = 100
    with pytest.raises(flight.FlightError, match="more than 100 bytes are staged"):
        put(client, rows("a"))
    assert sink.staging.size == 0


def test_a_batch_that_takes_long_is_asked_for_again(
    client: flight.FlightClient, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flight_sink, "PATIENCE", 0.01)
    sink.hangs = True
    with pytest.raises(flight.FlightUnavailableError, match="still being published: ask again"):
        act(client, "publish", query="q", batch=0, parts=[])


def test_a_server_without_a_broker_publishes_nothing(running: Running) -> None:
    with (
        closing(StreamServer(running.catalog)) as server,
        flight.connect(("127.0.0.1", server.port)) as client,
    ):
        with pytest.raises(flight.FlightError, match="no broker is behind it"):
            act(client, "publish", query="q", batch=0, parts=[])
        with pytest.raises(flight.FlightError, match="no broker is behind it"):
            put(client, rows("a"))

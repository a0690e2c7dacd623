"""Calls that break off in whatever way gRPC has for it: they are made again. No JVM is needed to see it."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyarrow as pa
import pytest
from pyarrow import flight
from pyspark_vmq.client import Client
from pyspark_vmq.errors import ServerError, Unauthenticated, Unavailable
from pyspark_vmq.options import connection_of, source_options
from pyspark_vmq.planning import Range
from pyspark_vmq.reading import read_range

from tests.vmq.streams.flight_support import Running
from vmq.config.streams import StreamOptions
from vmq.streams.flight import service
from vmq.streams.flight.access import Anybody, Tokens
from vmq.streams.flight.service import StreamServer

COLUMNS: Final = {"offset": False}
ROWS: Final = pa.schema([pa.field("offset", pa.int64(), nullable=False)])


class Breaking(flight.FlightServerBase):  # type: ignore[misc]
    """Raises what stands in `errors`, one a call, and answers when there is nothing more."""

    def __init__(self, errors: list[Exception]) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.errors = errors
        #: What calls wait for, if they hang.
        self.hanging: threading.Event | None = None
        #: What actions answer.
        self.offsets: Iterator[bytes] = repeat(b'{"0": 1}')
        #: What puts were of.
        self.parts: list[dict[str, Any]] = []

    def fail(self) -> None:
        if self.hanging is not None:
            self.hanging.wait(20)  # not for ever: whoever waits that long is seen
        if self.errors:
            raise self.errors.pop(0)

    def do_action(self, _context: Any, _action: Any) -> list[bytes]:
        self.fail()
        return [next(self.offsets)]

    def do_put(self, _context: Any, descriptor: Any, reader: Any, _writer: Any) -> None:
        self.parts.append(json.loads(descriptor.command))
        self.fail()
        reader.read_all()

    def do_get(self, _context: Any, _ticket: Any) -> flight.GeneratorStream:
        self.fail()
        batch = pa.record_batch([pa.array([0], pa.int64())], schema=ROWS)
        return flight.GeneratorStream(ROWS, iter([(batch, b'{"next": 1}')]))


@contextmanager
def breaking(*errors: Exception) -> Iterator[tuple[Breaking, dict[str, str]]]:
    with Breaking(list(errors)) as server:
        given = {"server": f"grpc://127.0.0.1:{server.port}", "retryTimeout": "60"}
        yield server, given


#: What a client gets when a broker, or the process in front of it, is killed in the midst of a call.
BROKEN_OFF = [
    flight.FlightCancelledError("CANCELLED"),
    flight.FlightInternalError("Received RST_STREAM with error code 2"),
    flight.FlightTimedOutError("Deadline Exceeded"),
    flight.FlightServerError("Stream removed"),
    flight.FlightUnavailableError("Socket closed"),
]


@pytest.mark.parametrize("error", BROKEN_OFF, ids=lambda each: type(each).__name__)
def test_a_call_that_breaks_off_is_made_again(error: Exception) -> None:
    with breaking(error) as (server, given):
        assert Client(connection_of(given)).latest("s") == {0: 1}
        assert not server.errors


@pytest.mark.parametrize("error", BROKEN_OFF, ids=lambda each: type(each).__name__)
def test_a_read_that_breaks_off_is_made_again(error: Exception) -> None:
    with breaking(error) as (server, given):
        options = source_options({**given, "stream": "s", "localReads": "false"}, "stream")
        client = Client(options.connection)
        (rows,) = read_range(client, Range("s", 0, 0, 1), options, COLUMNS)
        assert rows.column("offset").to_pylist() == [0]
        assert not server.errors


def server_that_answered(first: dict[str, str], second: dict[str, str]) -> str:
    """Reads a row where two nodes are named; the one that gave it."""
    given = {**second, "server": f"{first['server']}, {second['server']}"}
    options = source_options({**given, "stream": "s", "localReads": "false"}, "stream")
    client = Client(options.connection)
    (rows,) = read_range(client, Range("s", 0, 0, 1), options, COLUMNS)
    assert rows.column("offset").to_pylist() == [0]
    return client.connection.server


def test_another_node_is_asked_when_one_is_away() -> None:
    with breaking() as (server, given), breaking() as (gone, other):
        gone.shutdown()
        assert server_that_answered(other, given) == f"grpc://127.0.0.1:{server.port}"


def test_another_node_is_asked_when_one_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a machine does that is gone without a word: no call is for ever."""
    monkeypatch.setattr("pyspark_vmq.client.CALL", 0.2)
    with breaking() as (server, given), breaking() as (hung, other):
        hung.hanging = threading.Event()
        try:
            assert server_that_answered(other, given) == f"grpc://127.0.0.1:{server.port}"
        finally:
            hung.hanging.set()


def test_an_owner_that_is_away_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a password, too: by the next try another node has the partition."""
    slept: list[float] = []
    own = {"sleep": slept.append, "monotonic": lambda: sum(slept)}
    clock = SimpleNamespace(**{**vars(time), **own})
    monkeypatch.setattr("pyspark_vmq.client.time", clock)
    with breaking() as (gone, _):
        gone.shutdown()
    place = f"grpc://127.0.0.1:{gone.port}"
    error = flight.FlightServerError(
        "b has it", b'{"code": "elsewhere", "location": "%s"}' % place.encode()
    )
    with breaking(error) as (_, given):
        client = Client(connection_of({**given, "username": "u", "password": "p"}))
        client.headers = []
        with pytest.raises(Unavailable):
            next(client.read({"stream": "s"}))
    assert slept == []


def test_a_copy_that_is_behind_is_waited_for() -> None:
    behind = json.dumps({"code": "offset_out_of_range", "earliest": 0, "latest": 0}).encode()
    with breaking(flight.FlightServerError("not yet", behind)) as (server, given):
        options = source_options({**given, "stream": "s", "localReads": "false"}, "stream")
        server.offsets = iter([b'{"0": 0}', b'{"0": 1}'])
        (rows,) = read_range(Client(options.connection), Range("s", 0, 0, 1), options, COLUMNS)
        assert rows.column("offset").to_pylist() == [0]


@pytest.mark.parametrize("user", [{}, {"username": "ann", "password": "secret"}])
def test_why_a_broker_cannot_be_reached_is_told(user: dict[str, str]) -> None:
    with breaking() as (server, given):
        server.shutdown()
        with pytest.raises(Unavailable, match=r"option 'server'.*Connection refused.*'cafile'"):
            Client(connection_of({**given, "retryTimeout": "0", **user})).streams()


def test_what_the_broker_answers_is_final() -> None:
    answer = flight.FlightServerError(
        "there is none", json.dumps({"code": "unknown_stream"}).encode()
    )
    with breaking(answer, answer) as (server, given):
        with pytest.raises(ServerError, match="there is none") as found:
            Client(connection_of(given)).latest("s")
        assert not isinstance(found.value, Unavailable)
        assert len(server.errors) == 1


def test_a_broker_that_answers_and_lets_nobody_read_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Reads that fail one after the other have an end, and a pause between them; one that gets on has a new start."""
    slept: list[float] = []
    now = [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    # The module's own, not those of whoever else runs in this process.
    clock = SimpleNamespace(**{**vars(time), "sleep": sleep, "monotonic": lambda: now[0]})
    monkeypatch.setattr("pyspark_vmq.client.time", clock)

    def refuse(_client: Client, _ticket: object) -> list[Any]:
        raise Unavailable("too many reads at a time")

    monkeypatch.setattr(Client, "read_here", refuse)
    with breaking() as (_, given):
        options = source_options({**given, "stream": "s", "localReads": "false"}, "stream")
        with pytest.raises(Unavailable, match="too many"):
            list(read_range(Client(options.connection), Range("s", 0, 0, 1), options, COLUMNS))
    assert 50 < sum(slept) <= 60


class Forgetful(Tokens):
    """Forgets its first tokens at once, as a broker does that is killed and started again."""

    left = 0

    def issue(self, user: str, password: bytes) -> str:
        token = super().issue(user, password)
        if Forgetful.left:
            Forgetful.left -= 1
            self.issued.clear()
        return token


class Rising(Anybody):
    """The rules of a broker that comes up: at first nobody can say whether this is the user."""

    left = 0

    def authenticate(self, user: str | None, password: bytes) -> bool:
        if self.left:
            self.left -= 1
            raise flight.FlightUnavailableError("no verdict came in time: try again")
        return user == "u" and password == b"right"


@contextmanager
def rising(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Rising, StreamServer]]:
    monkeypatch.setattr(service, "Tokens", Forgetful)
    running = Running(folder, s=StreamOptions(filters=["s/#"], partitions=1))
    access = Rising()
    try:
        with StreamServer(running.catalog, access=access) as server:
            yield access, server
    finally:
        running.close()


def test_tokens_may_end_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with rising(tmp_path, monkeypatch) as (access, server):
        given = {"server": f"grpc://127.0.0.1:{server.port}", "username": "u"}
        client = Client(connection_of({**given, "password": "right"}))
        assert client.latest("s") == {0: 0}
        # The broker is killed, and its next lives: their tokens end with them, and not all can tell who it is.
        client.headers = [(b"authorization", b"Bearer ended")]
        access.left, Forgetful.left = 2, 3
        assert client.latest("s") == {0: 0}
        assert (access.left, Forgetful.left) == (0, 0)
        with pytest.raises(Unauthenticated, match="wrong user name or password"):
            Client(connection_of({**given, "password": "wrong"})).streams()

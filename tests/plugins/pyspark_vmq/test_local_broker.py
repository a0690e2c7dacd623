"""A broker names its files to programs of its machine; all others read by Flight."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import flight
from pyspark_vmq import local
from pyspark_vmq.client import Client
from pyspark_vmq.errors import ServerError
from pyspark_vmq.options import Connection
from pyspark_vmq.planning import Range
from pyspark_vmq.reading import read_range

from tests.plugins.pyspark_vmq.test_local import ALL, LOCAL
from tests.vmq.streams.flight_support import FACES, Running, act, code_of, serving
from tests.vmq.streams.support import options
from vmq.streams.flight.access import Anybody
from vmq.streams.flight.service import StreamServer
from vmq.streams.log.ordered import making
from vmq.streams.log.ordered.file import path_of


class Rules(Anybody):
    """Ann may read, bob may not."""

    def may_read(self, user: str | None, _filters: Sequence[str], _group: str = "") -> bool:
        return user != "bob"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path, s=options(filters=["s/#"]))
    running.append("s/x", b"0", b"1", b"2")
    yield running
    running.close()


def payloads(client: Client) -> list[bytes]:
    found = read_range(client, Range("s", 0, 0, 3), LOCAL, {"payload": False})
    return [each["payload"] for batch in found for each in batch.to_pylist()]


@pytest.fixture
def gets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A line for each get of a client."""
    found: list[str] = []
    there = Client.read_here

    def counted(self: Client, ticket: Mapping[str, Any]) -> Any:
        found.append(ticket["stream"])
        return there(self, ticket)

    monkeypatch.setattr(Client, "read_here", counted)
    return found


def client_of(port: int, user: str = "") -> Client:
    return Client(Connection(f"grpc://127.0.0.1:{port}", user, "x" * bool(user)))


@pytest.mark.parametrize("face", FACES)
def test_a_broker_names_its_files_to_readers_on_its_machine(
    running: Running, face: str, gets: list[str]
) -> None:
    with serving(face, running, access=Rules()) as server:
        assert payloads(client_of(server.port, "ann")) == [b"0", b"1", b"2"]
        assert gets == []


@pytest.mark.parametrize("face", FACES)
def test_few_rows_of_a_segment_are_left_to_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, face: str, gets: list[str]
) -> None:
    """It has them by topic. Of a filter that keeps many, and without one, rows are read from the segment."""
    monkeypatch.setattr(making, "BLOCK_ROWS", 4)
    with closing(Running(tmp_path, s=options(filters=["s/#"]))) as running:
        for number in range(160):
            running.append(f"s/{number % 16}", b"%d" % number)
        (partition,) = running.catalog.streams["s"].partitions
        running.catalog.commits.writer.call(partition.roll).result(30)
        running.append("s/3", b"160")
        for each in partition.sealed:
            target = path_of(each.path, each.size, each.inode)
            making.make(partition.header, each, target)
        with serving(face, running) as server:
            client = client_of(server.port)

            def found(topic: str) -> list[int]:
                given = replace(LOCAL, topic=topic)
                read = read_range(client, Range("s", 0, 0, 161), given, {"payload": False})
                return [int(each["payload"]) for batch in read for each in batch.to_pylist()]

            assert found("s/+") == found("") == [*range(161)]
            assert gets == []
            assert found("s/3") == [*range(3, 160, 16), 160]
            assert (gets, client.has_files) == (["s"], True)


@pytest.mark.parametrize("face", FACES)
def test_whoever_may_not_read_learns_nothing(
    running: Running, face: str, gets: list[str], tmp_path: Path
) -> None:
    with serving(face, running, access=Rules()) as server:
        bob = client_of(server.port, "bob")
        for stream in ("s", "other"):
            asked = {"stream": stream, "machine": local.machine()}
            with pytest.raises(flight.FlightUnauthorizedError) as caught:
                act(bob.client, "file", bob.options(10), **asked)
            assert code_of(caught.value) == "no_permission"
            assert tmp_path.name not in str(caught.value)
        with pytest.raises(ServerError, match="'bob' may not read stream 's'"):
            payloads(bob)
        # Another stream may be his.
        assert (gets, bob.has_files) == (["s"], True)


@pytest.mark.parametrize("given", ["0" * 32, "f" * 32])
def test_a_program_on_another_machine_learns_no_path(
    running: Running, gets: list[str], tmp_path: Path, given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StreamServer(running.catalog) as server:
        client = client_of(server.port)
        with pytest.raises(flight.FlightServerError, match="by programs of this machine") as caught:
            act(client.client, "file", stream="s", machine=given)
        assert code_of(caught.value) == "not_local"
        assert tmp_path.name not in str(caught.value)
        monkeypatch.setattr(local, "machine", lambda: given)
        for _ in range(2):
            assert payloads(client) == [b"0", b"1", b"2"]
        assert (gets, client.has_files) == (["s", "s"], False)


@pytest.mark.parametrize("face", FACES)
def test_a_broker_that_tells_nobody_is_read_by_flight(
    running: Running, face: str, gets: list[str]
) -> None:
    with serving(face, running, local_reads=False) as server:
        client = client_of(server.port)
        assert payloads(client) == [b"0", b"1", b"2"]
        assert (gets, client.has_files) == (["s"], False)


def test_a_broker_that_does_not_know_the_question_is_read_by_flight(
    running: Running, gets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = Client._act

    def older(self: Client, action: str, body: Mapping[str, Any]) -> Any:
        return there(self, "unheard-of" if action == "file" else action, body)

    monkeypatch.setattr(Client, "_act", older)
    with StreamServer(running.catalog) as server:
        client = client_of(server.port)
        assert payloads(client) == [b"0", b"1", b"2"]
        assert (gets, client.has_files) == (["s"], False)


def test_a_filter_that_a_get_refuses_is_refused(running: Running) -> None:
    with StreamServer(running.catalog) as server:
        shared = replace(LOCAL, topic="$share/g/s/x")
        with pytest.raises(ServerError, match="a stream is not shared"):
            list(read_range(client_of(server.port), Range("s", 0, 0, 3), shared, ALL))


def test_a_broker_that_is_away_is_waited_for(running: Running, gets: list[str]) -> None:
    """It ends behind the first of two ranges and comes back at its address."""
    with StreamServer(running.catalog) as server:
        port = server.port
        client = client_of(port)
        assert payloads(client) == [b"0", b"1", b"2"]
    with StreamServer(running.catalog, port=port):
        assert payloads(client) == [b"0", b"1", b"2"]
    assert gets == []


def test_this_machine_can() -> None:
    assert len(local.machine()) == 32

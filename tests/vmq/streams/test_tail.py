from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow import flight

from tests.vmq.streams.flight_support import Running
from tests.vmq.streams.support import options
from vmq.streams.flight import StreamServer
from vmq.streams.tail import Tail


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path, s=options(filters=["a/#"], partitions=2, key="topic"))
    yield running
    running.close()


@pytest.fixture
def client(running: Running) -> Iterator[flight.FlightClient]:
    server = StreamServer(running.catalog)
    with flight.connect(("127.0.0.1", server.port)) as client:
        yield client
    server.close()


def payloads(tail: Tail, wait: float = 30.0) -> list[bytes]:
    batches = tail.batches(wait)
    return sorted(each for batch in batches for each in batch.column("payload").to_pylist())


def test_a_tail_gets_what_comes_from_now_on_once(
    running: Running, client: flight.FlightClient
) -> None:
    running.append("a/1", b"before")
    tail = Tail(client, "s")
    assert payloads(tail, 0.0) == []
    running.append("a/1", b"1", b"2")
    running.append("a/2", b"3")
    running.append("a/3", b"4")
    assert payloads(tail) == [b"1", b"2", b"3", b"4"]
    assert payloads(tail, 0.0) == []
    running.append("a/2", b"5")
    assert payloads(tail) == [b"5"]


def test_a_tail_may_begin_earlier_and_be_filtered(
    running: Running, client: flight.FlightClient
) -> None:
    for number in range(6):
        running.append(f"a/{number % 3}", b"%d" % number)
    assert payloads(Tail(client, "s", start={0: 0, 1: 0})) == [b"%d" % n for n in range(6)]
    tail = Tail(client, "s", "a/1", start={})
    assert payloads(tail) == [b"1", b"4"]
    running.append("a/2", b"not wanted")
    assert payloads(tail) == []
    running.append("a/1", b"wanted")
    assert payloads(tail) == [b"wanted"]


def test_a_stream_that_is_not_there_is_said(client: flight.FlightClient) -> None:
    with pytest.raises(flight.FlightServerError, match="there is no stream 'x'"):
        Tail(client, "x")

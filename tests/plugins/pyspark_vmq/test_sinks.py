"""What Spark's sink lays down and publishes, while the broker stops without a word. No JVM is needed to see it."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyarrow import flight
from pyspark_vmq import writing
from pyspark_vmq.client import Client
from pyspark_vmq.options import connection_of, sink_options

from tests.plugins.pyspark_vmq.test_broken_off import breaking
from tests.spark.support import stream_environment
from vmq.testing.process import BrokerProcess


def messages(*payloads: bytes) -> list[pa.RecordBatch]:
    options = sink_options({"server": "grpc://127.0.0.1:1", "topic": "sunk/x"})
    rows = pa.RecordBatch.from_pydict({"payload": pa.array(payloads, pa.binary())})
    return [*writing.messages_of([rows], options)]


def test_a_broker_that_stops_is_asked_again_and_publishes_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it had of the first attempt when it stopped arrives late."""
    env = stream_environment({"sunk": 1})
    listen = ("tcp://127.0.0.1:0", "grpc://127.0.0.1:0")
    with BrokerProcess.start(listen, env=env, args=("--allow-anonymous",)) as broker:
        server = next(url for url in broker.urls if url.startswith("grpc"))
        client = Client(connection_of({"server": server}))
        client.streams()
        go_on = partial(os.kill, broker.pid, signal.SIGCONT)
        clock = SimpleNamespace(**{**vars(time), "sleep": lambda _seconds: go_on()})
        monkeypatch.setattr("pyspark_vmq.client.time", clock)

        @contextmanager
        def stopped() -> Iterator[None]:
            """It goes on when the client tries again, or after half a minute."""
            late = threading.Timer(30, go_on)
            os.kill(broker.pid, signal.SIGSTOP)
            late.start()
            with patch("pyspark_vmq.client.CALL", 1.0):
                yield
            assert late.is_alive(), "the call was not given up"
            late.cancel()

        with stopped():
            attempt = client.stage({"query": "q", "batch": 0, "part": 0}, messages(b"1", b"2"))
        with stopped():
            client.publish("q", 0, [(0, attempt)])
        found = [batch for batch, _ in client.read({"stream": "sunk", "partition": 0, "start": 0})]
        assert pa.Table.from_batches(found).column("payload").to_pylist() == [b"1", b"2"]


def test_what_is_late_of_a_put_replaces_nothing_of_the_next_attempt() -> None:
    with breaking(flight.FlightUnavailableError("gone")) as (server, given):
        attempt = Client(connection_of(given)).stage({"part": 0}, messages(b"1"))
        first, last = server.parts
        assert first["attempt"] != last["attempt"] == attempt


def test_a_batch_is_published_for_as_long_as_that_takes() -> None:
    error = flight.FlightUnavailableError("still being published", b'{"code": "under_way"}')
    with breaking(*[error] * 3) as (server, given):
        Client(connection_of({**given, "retryTimeout": "0"})).publish("q", 0, [])
        assert not server.errors


@patch.object(writing, "CHUNK", 5000)
def test_a_task_puts_its_rows_in_order_and_little_at_a_time() -> None:
    rows = [b"%04d" % number * 100 for number in range(100)]
    found = [*writing.chunks(messages(*rows[:90]) + messages() + messages(*rows[90:]))]
    payloads: list[Any] = []
    for each in found:
        assert sum(batch.nbytes for batch in each) < 2 * 5000
        payloads += [one for batch in each for one in batch.column("payload").to_pylist()]
    assert payloads == rows

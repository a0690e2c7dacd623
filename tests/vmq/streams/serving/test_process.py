"""The life of the process behind a Flight listener; the real one is seen in test_flight_listener."""

import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from vmq.streams.flight.front import Orders
from vmq.streams.serving import process as flight_process
from vmq.streams.serving.process import FlightProcess

#: Says that it serves, and does until its input ends.
SERVES = """
import sys
sys.stdin.readline()
print('{"port": 7}', flush=True)
sys.stdin.read()
"""


@contextmanager
def running(script: str) -> Iterator[FlightProcess]:
    folder = os.open(os.curdir, os.O_RDONLY)
    command = (sys.executable, "-c", script)
    process = FlightProcess("flight", Orders("", "127.0.0.1", 0), folder, command)
    process.start()
    try:
        yield process
    finally:
        process.stop()
        os.close(folder)


def wait_for_log(caplog: pytest.LogCaptureFixture, text: str) -> None:
    for _ in range(30_000):
        if text in caplog.text:
            return
        threading.Event().wait(0.001)
    raise AssertionError(caplog.text)


def test_it_serves_until_it_is_stopped() -> None:
    with running(SERVES) as process:
        assert process.began.result(30) == 7
        assert process.orders.port == 7
        served = process.is_serving
    assert (served, process.is_serving) == (True, False)
    assert process.process is not None
    assert process.process.returncode == 0
    assert process.restarts == 0


def test_one_that_cannot_serve_the_first_time_says_why() -> None:
    for script, text in (
        ("""print('{"failure": "the port is in use"}')""", "the port is in use"),
        ("raise SystemExit(3)", "exit code 3"),
        ("print('what')", "JSON is malformed"),
    ):
        with running(script) as process, pytest.raises(OSError, match=text):
            process.began.result(30)


def test_one_that_ends_is_started_again_at_its_port(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "vmq.streams"), running(SERVES) as process:
        process.began.result(30)
        assert process.process is not None
        process.process.kill()
        wait_for_log(caplog, "the Flight process is ready listener=flight")
        assert process.restarts == 1
        assert process.is_serving
        assert "the Flight process ended listener=flight" in caplog.text


def test_what_it_has_to_say_stands_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    script = """print('{"level": 40, "text": "a get failed"}', flush=True)""" + SERVES
    with running(script) as process:
        process.began.result(30)
        assert ("vmq.streams", logging.ERROR, "the Flight process: a get failed") in (
            caplog.record_tuples
        )


def test_one_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_process, "GRACE", 0.05)
    with running(SERVES + "\nimport threading\nthreading.Event().wait()") as process:
        process.began.result(30)
    assert process.process is not None
    assert process.process.returncode < 0

"""`vmq health` as a program."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.conftest import BrokerFactory
from tests.vmq.cli.program import run


def test_a_broker_in_order_is_ok(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(listen=("tcp://127.0.0.1:0", "http://127.0.0.1:0"))
    done = run("health", "--url", broker.http)
    assert (done.code, done.out, done.err) == (0, b"ok\n", "")
    done = run("health", env={"VMQ_HEALTH_URL": broker.http})
    assert (done.code, done.out) == (0, b"ok\n")


def test_no_broker_is_an_error() -> None:
    done = run("health", "--url", "http://127.0.0.1:1")
    assert (done.code, done.out) == (1, b"")
    assert done.err.startswith("vmq: error: no answer from http://127.0.0.1:1: ")


def test_another_scheme_is_a_mistake_of_the_user() -> None:
    run("health", "--url", "tcp://127.0.0.1:1883").fails(2, "accepted: http://HOST:PORT")


class Unwell(BaseHTTPRequestHandler):
    body = b'{"status": "failing", "reasons": ["first", "second"]}'

    def do_GET(self) -> None:
        self.send_response(503)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_arguments: object) -> None: ...


class Degraded(Unwell):
    """Serves new clients, whatever else is wrong; only `--live` finds nothing."""

    def do_GET(self) -> None:
        reasons = b"" if self.path == "/health/live" else b'"first"'
        body = b'{"status": "degraded", "reasons": [' + reasons + b"]}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Other(Unwell):
    body = b"[]"


@pytest.fixture
def answering(request: pytest.FixtureRequest) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), request.param) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("answering", [Unwell], indirect=True)
def test_each_reason_is_a_line(answering: str) -> None:
    done = run("health", "--url", answering)
    assert (done.code, done.out) == (1, b"")
    assert done.err == "vmq: error: first\nvmq: error: second\n"


@pytest.mark.parametrize("answering", [Other], indirect=True)
def test_something_else_is_no_broker(answering: str) -> None:
    done = run("health", "--url", answering)
    assert (done.code, done.err) == (1, f"vmq: error: {answering} is no broker's\n")


@pytest.mark.parametrize("answering", [Degraded], indirect=True)
def test_a_degraded_broker_is_not_started_anew(answering: str) -> None:
    done = run("health", "--url", answering)
    assert (done.code, done.out, done.err) == (0, b"degraded\nfirst\n", "")
    done = run("health", "--url", answering, "--live")
    assert (done.code, done.out, done.err) == (0, b"ok\n", "")

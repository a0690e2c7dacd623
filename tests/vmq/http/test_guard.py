"""What an HTTP listener limits below HTTP. (Heads that trickle: tests/listeners/test_slowloris.py.)"""

import asyncio
import contextlib
import json
import re
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.conftest import BrokerFactory
from tests.support.broker_process import BrokerProcess
from tests.support.streams import connect_tcp
from tests.support.until import until
from tests.support.wire import TIMEOUT
from tests.vmq.cli.program import here
from vmq.config.options import ListenerOptions
from vmq.core.context import Counters
from vmq.http.guard import Guards


def arguments(folder: Path, options: str) -> tuple[str, str]:
    """Those of a broker whose HTTP listener has these options."""
    config = folder / "vmq.toml"
    config.write_text(
        '[listeners.tcp]\nurl = "tcp://127.0.0.1:0"\n'
        f'[listeners.web]\nurl = "http://127.0.0.1:0"\n{options}\n'
    )
    return "--config", str(config)


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that does not wait long for a request."""
    args = arguments(tmp_path_factory.mktemp("hasty"), "http_request_timeout = 0.3")
    with BrokerProcess.start((), args=args) as broker:
        yield broker


def test_whoever_says_nothing_is_closed(hasty: BrokerProcess) -> None:
    with connect_tcp(hasty.http) as sock, contextlib.suppress(ConnectionError):
        assert sock.recv(1) == b""
    hasty.wait_log("refused listener=web peer=127.*no request within http_request_timeout")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET /" + b"a" * 9000 + b" HTTP/1.1\r\n\r\n", "Got more than 8190 bytes when reading"),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * 9000, "Got more than 8190 bytes when reading"),
        (b"GET / HTTP/9.9\r\n\r\n", "Bad status line"),
        (b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", "Invalid char in url path"),
        (b"GET / HTTP/1.1\r\n\r\n", "Missing 'Host' header in request."),
    ],
)
def test_what_is_no_http_costs_one_line_of_the_log(
    hasty: BrokerProcess, data: bytes, reason: str
) -> None:
    before = len(hasty.stderr_text())
    with connect_tcp(hasty.http) as sock:
        sock.sendall(data)
        assert sock.recv(12) == b"HTTP/1.0 400"
        hasty.wait_logs(
            reason, lambda lines: f'reason="no good HTTP: {reason}"' in "".join(lines)[before:]
        )
    said = hasty.stderr_text()[before:]
    assert re.search(r"^\S+ warning refused peer=127\.0\.0\.1 reason=", said, re.MULTILINE)
    assert "Traceback" not in said
    assert "aaa" not in said
    assert "yyy" not in said


def test_whoever_has_asked_may_ask_again_later(hasty: BrokerProcess) -> None:
    """The time is that of the first head: a connection that was of use stays for the next."""
    connection = HTTPConnection(urlsplit(hasty.http).netloc, timeout=60)
    with contextlib.closing(connection), connect_tcp(hasty.http) as silent:
        connection.request("GET", "/health/ping")
        assert connection.getresponse().read()
        local = connection.sock.getsockname()
        with contextlib.suppress(ConnectionError):
            assert silent.recv(1) == b""  # it came later, and its time is over
        connection.request("GET", "/health/ping")
        assert connection.getresponse().read()
        assert connection.sock.getsockname() == local


async def test_a_request_that_came_in_time_is_read_although_the_loop_was_late() -> None:
    heard = asyncio.Event()

    class Inner(asyncio.Protocol):
        def data_received(self, _data: bytes) -> None:
            guard.passed()
            heard.set()

    guards = Guards("web", ListenerOptions(url="http://127.0.0.1:0"), Counters())
    guards.make = Inner
    server = await asyncio.get_running_loop().create_server(guards, "127.0.0.1", 0)
    async with server, asyncio.timeout(TIMEOUT):
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        await until(lambda: guards.present)
        (guard,) = guards.present.values()
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        # The time is over before the loop has looked at the socket.
        guard.read_first()
        await heard.wait()
        writer.close()
        await writer.wait_closed()
    assert guards.counters.http_timeouts == 0


def key_of(broker: BrokerProcess) -> str:
    told = here("api-key", "create", "--data-dir", str(broker.data_dir), "--json")
    return str(json.loads(told.out)["key"])


def test_a_body_that_is_nested_without_end_is_refused(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    broker = fresh_broker(listen=(), args=arguments(tmp_path, ""))
    body = b'{"name": ' + b"[" * 500_000
    with connect_tcp(broker.http) as sock:
        sock.sendall(
            b"POST /api/v1/listener/stop HTTP/1.1\r\nHost: localhost\r\nx-api-key: %s\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
            % (key_of(broker).encode(), len(body), body)
        )
        answer = sock.recv(1000)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"nested too deep" in answer


def test_a_body_that_does_not_come_is_not_waited_for(hasty: BrokerProcess) -> None:
    key = key_of(hasty)
    with connect_tcp(hasty.http) as sock:
        sock.sendall(
            b"POST /api/v1/listener/stop HTTP/1.1\r\nHost: localhost\r\nx-api-key: %s\r\n"
            b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{" % key.encode()
        )
        assert sock.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_one_connection_more_than_allowed_is_closed_at_once(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    broker = fresh_broker(listen=(), args=arguments(tmp_path, "max_connections = 1"))
    with connect_tcp(broker.http) as first:
        with connect_tcp(broker.http) as second, contextlib.suppress(ConnectionError):
            assert second.recv(1) == b""
        broker.wait_log("refused listener=web .*max_connections = 1 reached")
        first.sendall(b"GET /health/ping HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert first.recv(1000).startswith(b"HTTP/1.1 200 ")

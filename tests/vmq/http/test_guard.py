"""What an HTTP listener limits below HTTP. (Heads that trickle: tests/listeners/test_slowloris.py.)"""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import uvloop
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from tests.conftest import BrokerFactory
from tests.support.streams import connect_tcp
from tests.support.until import until
from tests.support.wire import TIMEOUT, connect_packet
from tests.vmq.cli.program import here
from vmq.config.options import Config, ListenerOptions
from vmq.core.context import Counters
from vmq.http import guard as guard_module
from vmq.http.connection import one_by_one
from vmq.http.guard import Guards
from vmq.testing.process import BrokerProcess


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


def test_a_packed_body_is_refused_and_not_unpacked(hasty: BrokerProcess) -> None:
    """A few bytes of it are hundreds of megabytes, which nobody wants."""
    before = len(hasty.stderr_text())
    with connect_tcp(hasty.http) as sock:
        head = b"GET /health/ping HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n"
        sock.sendall(head + b"abc" + b"GET /health/ping HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        with sock.makefile("rb") as answers:
            assert answers.readline().startswith(b"HTTP/1.1 415")
            assert any(line.startswith(b"HTTP/1.1 200") for line in answers)
    assert hasty.stderr_text()[before:] == ""


async def test_one_request_begins_in_a_turn_of_the_event_loop() -> None:
    guards = Guards("web", ListenerOptions(url="http://127.0.0.1:0"), Counters())
    loop, turns = asyncio.get_running_loop(), 0
    begun: list[int] = []

    def turn() -> None:
        nonlocal turns
        turns += 1
        if len(begun) < 5:
            loop.call_soon(turn)

    async def handler(_request: web.Request) -> web.Response:
        begun.append(turns)
        return web.Response()

    turn()
    request = make_mocked_request("GET", "/")
    begin = one_by_one(guards)
    await asyncio.gather(*(begin(request, handler) for _ in range(5)))
    assert len(set(begun)) == 5


async def test_who_takes_nothing_of_an_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "KEEP_ALIVE", 0.2)
    ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()

    class Inner(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(bytes(20_000_000))
            transport.close()

        def connection_lost(self, error: Exception | None) -> None:
            ended.set_result(error)

    guards = Guards("web", ListenerOptions(url="http://127.0.0.1:0"), Counters())
    guards.make = Inner
    server = await asyncio.get_running_loop().create_server(guards, "127.0.0.1", 0)
    async with server, asyncio.timeout(TIMEOUT):
        with socket.create_connection(server.sockets[0].getsockname()):
            assert isinstance(await ended, TimeoutError)


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


# MQTT at the same address


UPGRADE = (
    b"GET /mqtt%s HTTP/1.1\r\nHost: %s\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n%s\r\n"
)


def upgrade(host: str = "127.0.0.1", more: str = "", query: str = "") -> bytes:
    return UPGRADE % (query.encode(), host.encode(), more.encode())


def answer_to(broker: BrokerProcess, *pieces: bytes) -> bytes:
    """The first line that a request is answered with, sent in pieces."""
    with connect_tcp(broker.http) as sock:
        for each in pieces:
            sock.sendall(each)
        with sock.makefile("rb") as file:
            return file.readline()


def test_mqtt_is_known_however_its_request_is_cut(hasty: BrokerProcess) -> None:
    whole = upgrade()
    assert answer_to(hasty, whole).startswith(b"HTTP/1.1 101")
    for place in (1, 4, 9, 10, 30, len(whole) - 1):
        assert answer_to(hasty, whole[:place], whole[place:]).startswith(b"HTTP/1.1 101"), place
    assert answer_to(hasty, *(bytes((each,)) for each in whole)).startswith(b"HTTP/1.1 101")
    assert answer_to(hasty, upgrade(query="?x=1")).startswith(b"HTTP/1.1 101")


def test_what_only_looks_like_it_is_http(hasty: BrokerProcess) -> None:
    for path in (b"/mqtts", b"/mqtt/", b"/mqt", b"/manual", b"/health/live"):
        request = b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        wanted = b"HTTP/1.1 200" if path in (b"/manual", b"/health/live") else b"HTTP/1.1 404"
        assert answer_to(hasty, request).startswith(wanted), path
        assert answer_to(hasty, request[:5], request[5:]).startswith(wanted), path


@pytest.mark.parametrize(
    ("data", "spoken"),
    [
        (connect_packet("c"), "MQTT"),
        (b"\x16\x03\x01\x02\x00\x01", "TLS"),
        (b"PROXY TCP4 192.0.2.1 ", "a PROXY header"),
    ],
)
def test_what_speaks_something_else_is_named_and_closed(
    hasty: BrokerProcess, data: bytes, spoken: str
) -> None:
    with connect_tcp(hasty.http) as sock, contextlib.suppress(ConnectionError):
        sock.sendall(data)
        assert sock.recv(1) == b""
    hasty.wait_log(rf'refused listener=web peer=127.* reason="{spoken} instead of HTTP"')


def test_pages_and_names_from_elsewhere_do_not_get_mqtt(hasty: BrokerProcess) -> None:
    foreign = "Origin: https://evil.example\r\n"
    assert answer_to(hasty, upgrade(more=foreign)).startswith(b"HTTP/1.1 403")
    assert answer_to(hasty, upgrade("evil.example")).startswith(b"HTTP/1.1 421")
    own = f"Origin: {hasty.http}\r\n"
    assert answer_to(hasty, upgrade(more=own)).startswith(b"HTTP/1.1 101")


def test_who_says_half_of_a_request_for_mqtt_is_closed(hasty: BrokerProcess) -> None:
    with connect_tcp(hasty.http) as sock, contextlib.suppress(ConnectionError):
        sock.sendall(b"GET /mq")
        assert sock.recv(1) == b""


def test_before_connect_nobody_has_the_broker_keep_much(tmp_path: Path) -> None:
    """The limits of every listener: the size of a frame and of a request, and the time until CONNECT."""
    extra = "[session]\nmqtt_connect_timeout = 1\nmax_connect_size = 1024\n"
    with BrokerProcess.start((), args=arguments(tmp_path, extra)) as broker:
        with connect_tcp(broker.http) as sock, contextlib.suppress(ConnectionError):
            sock.sendall(upgrade(more="X-Long: " + "y" * 2000 + "\r\n")[:2000])
            assert sock.recv(1) == b""
        broker.wait_log(r"upgrade request of more than 1024 bytes \(max_connect_size\)")
        with connect_tcp(broker.http) as sock, contextlib.suppress(ConnectionError):
            sock.sendall(upgrade() + b"\x82\xfe\x10\x00" + bytes(4) + bytes(4096))
            while sock.recv(4096):
                pass
        broker.wait_log(r"frame of \d+ bytes before CONNECT, for which 1024 are taken")
        with connect_tcp(broker.http) as sock, contextlib.suppress(ConnectionError):
            sock.sendall(upgrade())
            while sock.recv(4096):
                pass
        broker.wait_log("no CONNECT")


def test_connections_of_both_kinds_are_limited_together(tmp_path: Path) -> None:
    with (
        BrokerProcess.start((), args=arguments(tmp_path, "max_connections = 2")) as broker,
        connect_tcp(broker.http) as one,
        connect_tcp(broker.http) as two,
    ):
        for each in (one, two):
            each.sendall(upgrade())
            assert each.recv(12) == b"HTTP/1.1 101"
        with connect_tcp(broker.http) as third:
            assert third.recv(12) == b"HTTP/1.1 503"
        broker.wait_log("refused listener=web .*max_connections = 2 reached")


class Inner(asyncio.Protocol):
    """What the HTTP library sees of a connection."""

    def __init__(self, calls: list[object]) -> None:
        self.calls = calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.calls.append("made")

    def data_received(self, data: bytes) -> None:
        self.calls.append(data)

    def eof_received(self) -> None:
        self.calls.append("ended")

    def connection_lost(self, error: Exception | None) -> None:
        self.calls.append(error)


class NobodyTakes:
    """A door that is not to be used."""

    connections = 0

    def take_over(self, transport: Any, begun: bytes) -> None:
        raise AssertionError(begun)

    def configure(self, config: Config) -> None:
        """Nothing changes."""


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_whoever_speaks_http_does_so_to_the_end_and_who_finds_no_room_is_told(
    make_loop: Callable[[], asyncio.AbstractEventLoop], caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever begins a later segment: uvloop looks up a protocol's methods once, when a connection begins."""
    calls: list[object] = []
    guards = Guards("web", ListenerOptions(url="http://127.0.0.1:0"), Counters())
    guards.make = lambda: Inner(calls)
    guards.mqtt = NobodyTakes()

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(guards, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        _, writer = await asyncio.open_connection(*address)

        async def say(segment: bytes) -> None:
            writer.write(segment)
            await until(lambda: calls[-1:] == [segment])

        for segment in (b"POST / HTTP/1.1", b"GET /mqtt ", b"G"):
            await say(segment)
        for guards.most, guards.end, reason in ((1, 9999, "1 speak HTTP"), (9, 0, "no more files")):
            reader, other = await asyncio.open_connection(*address)
            other.write(b"GET / HTTP/1.1\r\n")
            assert (await reader.read(12)) == b"HTTP/1.1 503"
            assert reason in caplog.text
            other.close()
        writer.close()
        await until(lambda: calls[-1] is None)
        await until(lambda: not guards.present)
        assert guards.talking == 0
        server.close()

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())
    assert calls == ["made", b"POST / HTTP/1.1", b"GET /mqtt ", b"G", "ended", None]

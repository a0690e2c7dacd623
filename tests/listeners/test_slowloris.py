"""Slowloris: bytes that trickle in hold a connection no longer than its time, and hinder nobody.

Every handshake there is: CONNECT over TCP, TLS, WebSocket, secure WebSocket, the
PROXY header, HTTP. The attackers send a byte whenever they are looked at, and never finish.
"""

import re
import select
import socket
import ssl
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.listeners.conftest import ListenerFactory, tls
from tests.support.byte_streams import SocketStream
from tests.support.streams import connect_tcp, connect_tls
from tests.support.wire import Wire, connect_packet
from tests.vmq.http.conftest import get
from vmq.testing.authority import Authority, IssuedCertificate
from vmq.testing.process import BrokerProcess

ATTACKERS = 20
UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\nX-Endless: "
)
REQUEST = b"GET /health/ping HTTP/1.1\r\nHost: localhost\r\nX-Endless: "
#: A CONNECT of 60,000 bytes, and a PROXY header of 4096: their ends never come.
CONNECT = connect_packet("x" * 10_000)[:20]
HEADER = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x10\0"
#: Bytes to send, one each 20 ms: much longer than anybody has time.
PATIENCE = 1000
TIMES = "[session]\nmqtt_connect_timeout = 0.5"


def hello() -> bytes:
    """The first flight of a TLS handshake."""
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def trickle(sockets: list[socket.socket], beginning: bytes) -> None:
    """Sends byte after byte on each of the sockets until the broker has closed all of them."""
    text = beginning.ljust(PATIENCE, b"x")
    sent = 0
    while sockets:
        assert sent < PATIENCE, "the broker waits for ever"
        readable, _, _ = select.select(sockets, [], [], 0.02)
        for sock in readable:
            try:
                while sock.recv(1000):
                    pass
                over = True
            except (BlockingIOError, ssl.SSLWantReadError):
                over = False
            except OSError:
                over = True
            if over:
                sockets.remove(sock)
        for sock in list(sockets):
            try:
                sock.send(text[sent : sent + 1])
            except OSError:
                sockets.remove(sock)
        sent += 1


def attack(
    connect: Callable[[], socket.socket], beginning: bytes, serve: Callable[[], None]
) -> None:
    """Many slow ones at once; `serve` shows that others are served meanwhile."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(connect()) for _ in range(ATTACKERS)]
        for sock in sockets:
            sock.setblocking(False)
            sock.send(beginning[:1])
        serve()
        trickle(list(sockets), beginning[1:])
        serve()


def a_client(broker: BrokerProcess) -> Callable[[], None]:
    """Somebody who connects to the first listener, publishes and receives."""

    def serve() -> None:
        with Wire(SocketStream(connect_tcp(broker.urls[0]))) as wire:
            wire.connect("honest")
            wire.subscribe(("a", 1))
            wire.publish("a", b"x", qos=1)
            wire.acknowledge(wire.expect_publish("a", b"x", qos=1))
            wire.disconnect()

    return serve


LOCAL = {"tcp": {"url": "tcp://127.0.0.1:0"}}


def assert_all_timed_out(broker: BrokerProcess, line: str) -> None:
    """Of every attacker: its connection may be gone before the broker's line about it is read."""
    broker.wait_count(ATTACKERS, line)
    assert len(re.findall(line, broker.stderr_text())) == ATTACKERS
    assert "Traceback" not in broker.stderr_text()


NO_CONNECT = 'reason="no CONNECT within mqtt_connect_timeout"'


@pytest.mark.parametrize(("scheme", "beginning"), [("tcp", CONNECT), ("ws", UPGRADE)])
def test_on_the_way_to_connect(start: ListenerFactory, scheme: str, beginning: bytes) -> None:
    broker = start({**LOCAL, "slow": {"url": f"{scheme}://127.0.0.1:0"}}, rest=TIMES)
    attack(lambda: connect_tcp(broker.urls[1]), beginning, a_client(broker))
    assert_all_timed_out(broker, NO_CONNECT)


def test_in_the_tls_handshake(start: ListenerFactory, server: IssuedCertificate) -> None:
    broker = start({**LOCAL, "slow": tls(server, tls_handshake_timeout=0.5)})
    attack(lambda: connect_tcp(broker.urls[1]), hello(), a_client(broker))
    line = "refused listener=slow .*no TLS handshake within tls_handshake_timeout"
    assert_all_timed_out(broker, line)


def test_between_the_flights_of_the_tls_handshake(
    start: ListenerFactory, server: IssuedCertificate
) -> None:
    broker = start({**LOCAL, "slow": tls(server, tls_handshake_timeout=0.5)})
    with connect_tcp(broker.urls[1]) as sock:
        sock.sendall(hello())
        while sock.recv(10_000):
            pass
    broker.wait_log("refused listener=slow .*no TLS handshake within tls_handshake_timeout")


@pytest.mark.parametrize(("scheme", "beginning"), [("tls", CONNECT), ("wss", UPGRADE)])
def test_inside_tls(
    start: ListenerFactory,
    authority: Authority,
    server: IssuedCertificate,
    scheme: str,
    beginning: bytes,
) -> None:
    broker = start({**LOCAL, "slow": tls(server, scheme)}, rest=TIMES)
    context = authority.client_context()
    attack(lambda: connect_tls(broker.urls[1], context), beginning, a_client(broker))
    assert_all_timed_out(broker, NO_CONNECT)


@pytest.mark.parametrize("beginning", [b"PROXY TCP4 ", HEADER])
def test_in_the_proxy_header(start: ListenerFactory, beginning: bytes) -> None:
    broker = start(
        {**LOCAL, "slow": {"url": "tcp://127.0.0.1:0", "proxy_protocol": True}}, rest=TIMES
    )
    attack(lambda: connect_tcp(broker.urls[1]), beginning, a_client(broker))
    line = "refused listener=slow .*no PROXY header within mqtt_connect_timeout"
    assert_all_timed_out(broker, line)


def test_in_the_head_of_a_request(start: ListenerFactory) -> None:
    broker = start({**LOCAL, "web": {"url": "http://127.0.0.1:0", "http_request_timeout": 0.5}})

    def serve() -> None:
        assert get(broker.http, "/health/ping").status == 200

    attack(lambda: connect_tcp(broker.http), REQUEST, serve)
    assert_all_timed_out(broker, "refused listener=web .*no request within http_request_timeout")
    found = [
        line.split()[1]
        for line in get(broker.http, "/metrics").body.decode().splitlines()
        if line.startswith("http_timeouts_total ")
    ]
    assert found == [f"{ATTACKERS}.0"]

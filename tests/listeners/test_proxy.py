"""Behind a proxy: PROXY protocol and X-Forwarded-For, with HAProxy as the real thing."""

import contextlib
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.listeners.conftest import ListenerFactory, tls
from tests.support.byte_streams import SocketStream
from tests.support.streams import connect_tcp, connect_tls, websocket_to
from tests.support.tools import require_tool
from tests.support.wire import Wire, connect_packet
from vmq.testing.authority import Authority, IssuedCertificate

V1 = b"PROXY TCP4 192.0.2.1 198.51.100.7 56324 443\r\n"


def proxied(**options: object) -> dict[str, object]:
    return {"url": "tcp://127.0.0.1:0", "proxy_protocol": True, **options}


def test_the_header_says_who_the_client_is(start: ListenerFactory) -> None:
    broker = start({"tcp": proxied()})
    with Wire(SocketStream(connect_tcp(broker.urls[0]))) as wire:
        wire.send(V1, connect_packet("together"))
        wire.recv_packet()
        wire.ping()
    broker.wait_log("closed client=together peer=192.0.2.1:56324 ")
    with Wire(SocketStream(connect_tcp(broker.urls[0]))) as wire:
        for byte in V1:
            wire.send(bytes((byte,)))
        wire.connect("trickled")
        wire.subscribe(("a", 0))
        wire.publish("a", b"x")
    broker.wait_log("closed client=trickled peer=192.0.2.1:56324 ")


def test_without_a_header_nobody_gets_in(start: ListenerFactory) -> None:
    broker = start({"tcp": proxied()})
    with Wire(SocketStream(connect_tcp(broker.urls[0]))) as wire:
        wire.send_lossy(connect_packet("a"))
        wire.expect_closed()
    broker.wait_log('refused listener=tcp peer=127.0.0.1:.*reason="no PROXY header"')


def test_strangers_are_not_believed(start: ListenerFactory) -> None:
    broker = start({"tcp": proxied(proxy_protocol_trusted=["192.0.2.0/24", "::1"])})
    with Wire(SocketStream(connect_tcp(broker.urls[0]))) as wire:
        wire.send_lossy(V1, connect_packet("a"))
        wire.expect_closed()
    broker.wait_log("refused listener=tcp peer=127.0.0.1:.*not among proxy_protocol_trusted")


def test_the_header_comes_before_tls(
    start: ListenerFactory, authority: Authority, server: IssuedCertificate
) -> None:
    broker = start({"tls": tls(server, proxy_protocol=True)})
    sock = connect_tcp(broker.urls[0])
    sock.sendall(V1)
    with authority.client_context().wrap_socket(sock, server_hostname="localhost") as secure:
        wire = Wire(SocketStream(secure))
        wire.connect("a")
    broker.wait_log("closed client=a peer=192.0.2.1:56324 ")
    with Wire(SocketStream(connect_tcp(broker.urls[0]))) as wire:
        wire.send_lossy(V1, b"no TLS at all")
        with contextlib.suppress(ConnectionError):
            while wire.stream.recv(10):
                pass
    broker.wait_log("refused listener=tls peer=192.0.2.1:56324 .*TLS handshake failed")


@contextmanager
def haproxy(folder: Path, target: str, send: str) -> Iterator[str]:
    """HAProxy before a listener; gives the URL to connect to."""
    program = require_tool("haproxy")
    # HAProxy takes over a listening socket, so that no port need be guessed.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        address = target.partition("://")[2]
        config = folder / "haproxy.cfg"
        config.write_text(
            "defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 60s\n"
            "  timeout server 60s\n"
            f"listen mqtt\n  bind fd@{listening.fileno()}\n  server vmq {address} {send}\n"
        )
        process = subprocess.Popen(
            [program, "-db", "-f", str(config)],
            pass_fds=[listening.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield f"tcp://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


@pytest.mark.parametrize("send", ["send-proxy", "send-proxy-v2"])
def test_haproxy_in_front(start: ListenerFactory, tmp_path: Path, send: str) -> None:
    broker = start({"tcp": proxied()})
    with haproxy(tmp_path, broker.urls[0], send) as url:
        stream = SocketStream(connect_tcp(url))
        host, port = stream.address()
        with Wire(stream) as wire:
            wire.connect("behind")
            wire.subscribe(("a", 2))
            wire.publish("a", b"x" * 100_000, qos=2)
            wire.acknowledge(wire.expect_publish("a", b"x" * 100_000, qos=2))
        broker.wait_log(f"closed client=behind peer={host}:{port} ")


def test_haproxy_passes_tls_on_behind_its_header(
    start: ListenerFactory, authority: Authority, server: IssuedCertificate, tmp_path: Path
) -> None:
    broker = start({"tls": tls(server, proxy_protocol=True)})
    with haproxy(
        tmp_path, broker.urls[0], "send-proxy-v2 check check-send-proxy inter 100ms"
    ) as url:
        with connect_tls(url, authority.client_context()) as sock:
            host, port = sock.getsockname()[:2]
            Wire(SocketStream(sock)).connect("behind")
        broker.wait_log(f"closed client=behind peer={host}:{port} ")
    assert "Traceback" not in broker.stderr_text()


@pytest.mark.parametrize(
    ("options", "peer"),
    [
        ({"xff_enabled": True}, "192.0.2.9 "),
        (
            {"xff_enabled": True, "xff_trusted_intermediate": ["127.0.0.1", "192.0.2.9"]},
            "192.0.2.1 ",
        ),
        ({"xff_enabled": True, "xff_trusted_intermediate": ["10.0.0.0/8"]}, "127.0.0.1:"),
        ({}, "127.0.0.1:"),
    ],
)
def test_the_client_behind_a_websocket_proxy(
    start: ListenerFactory, options: dict[str, object], peer: str
) -> None:
    broker = start({"ws": {"url": "ws://127.0.0.1:0/mqtt", **options}})
    with websocket_to(broker.urls[0], "192.0.2.1, 192.0.2.9") as websocket:
        websocket.send(connect_packet("forwarded"))
        assert websocket.recv() == b"\x20\x02\x00\x00"
    broker.wait_log(f"closed client=forwarded peer={peer}")

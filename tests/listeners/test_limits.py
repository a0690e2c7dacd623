"""What one listener limits: connections, their life, the versions that they speak."""

from __future__ import annotations

import contextlib

import pytest

from tests.listeners.conftest import ListenerFactory, tls
from tests.support.authority import Authority, Issued
from tests.support.streams import SocketStream, connect_tcp, tls_wire
from tests.support.wire import CONNACK, TIMEOUT, Wire, connect_packet

LOCAL = "tcp://127.0.0.1:0"


def wire_to(url: str) -> Wire:
    return Wire(SocketStream(connect_tcp(url)))


def test_one_connection_more_than_allowed_is_closed_at_once(start: ListenerFactory) -> None:
    broker = start(
        {"small": {"url": LOCAL, "max_connections": 2}, "other": {"url": LOCAL}},
    )
    small, other = broker.urls
    with wire_to(small) as one, wire_to(small) as two:
        one.connect("one")
        two.connect("two")
        with wire_to(small) as three:
            three.expect_closed()
        broker.wait_log('warning refused listener=small peer=127.*reason="max_connections = 2')
        with wire_to(other) as elsewhere:
            elsewhere.connect("elsewhere")
        one.ping()
        two.disconnect()  # its place is free again
        with wire_to(small) as four:
            four.connect("four")
            with wire_to(small) as five:
                five.expect_closed()


def test_those_in_their_handshake_count_too(
    start: ListenerFactory, authority: Authority, server: Issued
) -> None:
    broker = start({"tls": tls(server, max_connections=1)})
    with connect_tcp(broker.urls[0]) as silent, connect_tcp(broker.urls[0]) as further:
        silent.settimeout(TIMEOUT)
        further.settimeout(TIMEOUT)
        with contextlib.suppress(ConnectionError):
            assert further.recv(1) == b""
        broker.wait_log("refused listener=tls .*max_connections = 1 reached")
        silent.sendall(b"\0")  # no TLS: its own end, which makes room
        with contextlib.suppress(ConnectionError):
            while silent.recv(100):
                pass
    with tls_wire(broker.urls[0], authority.client_context()) as wire:
        wire.connect("a")


@pytest.mark.parametrize(("allowed", "refused"), [(3, 4), (4, 3)])
def test_versions_that_are_not_allowed_get_their_code(
    start: ListenerFactory, allowed: int, refused: int
) -> None:
    broker = start({"tcp": {"url": LOCAL, "allowed_protocol_versions": [allowed]}})
    names = {3: "MQIsdp", 4: "MQTT"}
    with wire_to(broker.urls[0]) as wire:
        wire.send(connect_packet("a", protocol=names[refused], level=refused))
        assert wire.expect(CONNACK).return_code == 1
        wire.expect_closed()
    broker.wait_log(f"protocol level {refused} is not allowed at this listener")
    with wire_to(broker.urls[0]) as wire:
        wire.send(connect_packet("a", protocol=names[allowed], level=allowed))
        assert wire.expect(CONNACK).return_code == 0


def test_a_connection_lives_as_long_as_it_may(start: ListenerFactory) -> None:
    broker = start(
        {
            "short": {"url": LOCAL, "max_connection_lifetime": 0.3},
            "long": {"url": LOCAL, "max_connection_lifetime": 3600},
        }
    )
    with wire_to(broker.urls[0]) as short, wire_to(broker.urls[1]) as long:
        short.connect("short", keep_alive=0)
        long.connect("long", keep_alive=0)
        short.expect_closed()
        long.ping()
    broker.wait_log('closed client=short .*reason="max_connection_lifetime is over"')


@pytest.mark.parametrize("scheme", ["tcp", "ws"])
def test_whoever_sends_no_connect_is_closed_in_time(start: ListenerFactory, scheme: str) -> None:
    """Slowloris: bytes that come slowly do not lengthen the time, which counts from accept."""
    broker = start(
        {"listener": {"url": f"{scheme}://127.0.0.1:0"}},
        rest="[session]\nmqtt_connect_timeout = 0.3",
    )
    beginning = connect_packet("slow") if scheme == "tcp" else b"GET /mqtt HTTP/1.1\r\nHost: a\r\n"
    with connect_tcp(broker.urls[0]) as silent, connect_tcp(broker.urls[0]) as slow:
        slow.sendall(beginning[:5])
        for sock in (silent, slow):
            sock.settimeout(TIMEOUT)
            with contextlib.suppress(ConnectionError):
                while sock.recv(1000):
                    pass
    broker.wait_log("no CONNECT within mqtt_connect_timeout")


def test_an_endless_upgrade_request_is_not_kept(start: ListenerFactory) -> None:
    broker = start({"ws": {"url": "ws://127.0.0.1:0"}})
    with connect_tcp(broker.urls[0]) as sock, contextlib.suppress(ConnectionError):
        sock.sendall(b"GET /mqtt HTTP/1.1\r\n")
        for number in range(100_000):
            sock.sendall(b"X-%d: %s\r\n" % (number, b"x" * 4000))
    broker.wait_log("WebSocket failed")

"""What one listener limits: connections, their life, the versions that they speak."""

import contextlib

import pytest
from websockets.exceptions import InvalidStatus

from tests.conformance.websocket_wire import open_websocket
from tests.listeners.conftest import ListenerFactory, tls
from tests.support.byte_streams import SocketStream, TcpStream
from tests.support.streams import connect_tcp, tls_wire, websocket_to
from tests.support.wire import CONNACK, TIMEOUT, Wire, connect_packet
from vmq.testing.authority import Authority, IssuedCertificate

LOCAL = "tcp://127.0.0.1:0"


def wire_to(url: str) -> Wire:
    return Wire(SocketStream(connect_tcp(url)))


def test_one_connection_more_than_allowed_is_closed_at_once(start: ListenerFactory) -> None:
    broker = start({"small": {"url": LOCAL, "max_connections": 2}, "other": {"url": LOCAL}})
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
    start: ListenerFactory, authority: Authority, server: IssuedCertificate
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


PER_IP = "[limits]\nmax_connections_per_ip = 2"


def wire_from(url: str, source: str) -> Wire:
    host, _, port = url.partition("://")[2].rpartition(":")
    return Wire(TcpStream((host, int(port)), source))


def test_each_address_has_so_many_connections_to_all_listeners(start: ListenerFactory) -> None:
    broker = start({"a": {"url": LOCAL}, "b": {"url": LOCAL}}, rest=PER_IP)
    here, there = "127.0.0.2", "127.0.0.3"
    with wire_from(broker.urls[0], here) as one, wire_from(broker.urls[1], here) as two:
        one.connect("one")
        two.connect("two")
        with wire_from(broker.urls[0], here) as three:
            three.expect_closed()
        broker.wait_log("refused listener=a peer=127.0.0.2:.*max_connections_per_ip = 2 reached")
        with wire_from(broker.urls[0], there) as elsewhere:
            elsewhere.connect("elsewhere")
        two.disconnect()
        with wire_from(broker.urls[0], here) as four:
            four.connect("four")
            one.ping()


def test_behind_a_proxy_its_clients_count_and_ipv6_by_64_bits(start: ListenerFactory) -> None:
    broker = start({"a": {"url": LOCAL, "proxy_protocol": True}}, rest=PER_IP)
    count = 0

    def come(stack: contextlib.ExitStack, header: bytes) -> Wire:
        nonlocal count
        count += 1
        wire = stack.enter_context(wire_to(broker.urls[0]))
        wire.send_lossy(header + b"\r\n", connect_packet(f"c{count}"))
        return wire

    with contextlib.ExitStack() as stack:
        for network in (b"2001:db8:1:2", b"2001:db8:1:3"):
            for host in (b"1", b"2:3"):
                header = b"PROXY TCP6 " + network + b"::" + host + b" 2001:db8::9 4711 1883"
                assert come(stack, header).expect(CONNACK).return_code == 0
        come(stack, b"PROXY TCP6 2001:db8:1:2:ffff::3 2001:db8::9 4711 1883").expect_closed()
        broker.wait_log("max_connections_per_ip = 2 reached by 2001:db8:1:2::/64")
        for _ in range(4):  # the proxy's own, as for its health checks
            assert come(stack, b"PROXY UNKNOWN").expect(CONNACK).return_code == 0


def test_behind_a_websocket_proxy_its_clients_count(start: ListenerFactory) -> None:
    broker = start({"ws": {"url": "ws://127.0.0.1:0/mqtt", "xff_enabled": True}}, rest=PER_IP)

    def come(stack: contextlib.ExitStack, client: str) -> None:
        stack.enter_context(websocket_to(broker.urls[0], client))

    with contextlib.ExitStack() as stack:
        for client in ("192.0.2.1", "192.0.2.2", "192.0.2.1", "", "", ""):
            come(stack, client)
        with pytest.raises(InvalidStatus, match="429"):
            come(stack, "192.0.2.1")
        broker.wait_log("max_connections_per_ip = 2 reached by 192.0.2.1")
        come(stack, "192.0.2.2")


def test_behind_both_kinds_of_proxy_each_connection_counts_once(start: ListenerFactory) -> None:
    options = {"url": "ws://127.0.0.1:0/mqtt", "proxy_protocol": True, "xff_enabled": True}
    options["xff_trusted_intermediate"] = ["192.0.2.80"]
    broker = start({"ws": options}, rest=PER_IP)

    def come(client_id: str, caller: bytes, said: str) -> None:
        sock = connect_tcp(broker.urls[0])
        sock.sendall(b"PROXY TCP4 %b 198.51.100.7 56324 443\r\n" % caller)
        with websocket_to(broker.urls[0], said, sock=sock) as websocket:
            websocket.send(connect_packet(client_id))
            assert websocket.recv() == b"\x20\x02\x00\x00"

    for number in range(4):  # one after the other: the proxy between has no more than one of them
        come(f"forwarded-{number}", b"192.0.2.80", "192.0.2.1")
        broker.wait_log(f"closed client=forwarded-{number} peer=192.0.2.1 ")
    come("forger", b"192.0.2.66", "192.0.2.1")
    broker.wait_log("closed client=forger peer=192.0.2.66:56324 ")


def test_a_broker_that_stops_says_so_to_websockets(start: ListenerFactory) -> None:
    broker = start({"ws": {"url": "ws://127.0.0.1:0/mqtt"}})
    wire, stream = open_websocket(broker.ws)
    with wire:
        wire.connect("c")
        broker.terminate()
        wire.expect_closed()
        assert stream.close_code == 1001

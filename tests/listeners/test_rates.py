"""Every byte that is read counts into max_byte_rate, on every transport, whole packets or not."""

import re
import socket
import ssl
import urllib.request
from collections.abc import Callable
from contextlib import closing
from urllib.parse import urlsplit

import pytest
from websockets.client import ClientProtocol
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from tests.listeners.conftest import ListenerFactory, tls
from tests.support.wire import connect_packet, packet
from vmq.testing.authority import Authority, IssuedCertificate

#: More than the buffers of the system hold besides what the broker reads.
BODY = bytes(14_900_000)
LISTENERS = {"web": {"url": "http://127.0.0.1:0"}}


def connected(url: str, context: ssl.SSLContext | None) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    raw = socket.socket()
    # Little room below, so that what is taken is what the broker reads.
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    raw.connect((parts.hostname, parts.port))
    raw.settimeout(10)
    return raw if context is None else context.wrap_socket(raw, server_hostname="localhost")


def plain(sock: socket.socket, _url: str, data: bytes) -> bytes:
    """The data as it is, behind CONNECT."""
    sock.sendall(connect_packet("c"))
    sock.recv(4096)
    return data


def framed(sock: socket.socket, url: str, data: bytes) -> bytes:
    """The data as one frame, behind the upgrade."""
    protocol = ClientProtocol(parse_uri(url), subprotocols=[Subprotocol("mqtt")])
    protocol.send_request(protocol.connect())
    sock.sendall(b"".join(protocol.data_to_send()))
    while not list(protocol.events_received()):
        protocol.receive_data(sock.recv(4096))
    protocol.send_binary(connect_packet("c"))
    sock.sendall(b"".join(protocol.data_to_send()))
    sock.recv(4096)
    protocol.send_binary(data)
    return b"".join(protocol.data_to_send())


def taken(sock: socket.socket, data: bytes) -> int:
    """How many of these bytes can be sent until nothing goes for a while."""
    sent = 0
    sock.settimeout(1.0)
    try:
        while sent < len(data):
            sent += sock.send(data[sent : sent + 65_536])
    except TimeoutError:
        pass
    return sent


@pytest.mark.parametrize(
    ("scheme", "wrap"), [("tcp", plain), ("tls", plain), ("ws", framed), ("wss", framed)]
)
def test_a_publish_that_is_not_whole_is_read_no_faster_than_the_rate(
    start: ListenerFactory,
    authority: Authority,
    server: IssuedCertificate,
    scheme: str,
    wrap: Callable[[socket.socket, str, bytes], bytes],
) -> None:
    """One of 15 MB was read at 600 MB a second, whatever the rate."""
    is_secure = scheme in ("tls", "wss")
    path = "/mqtt" if scheme in ("ws", "wss") else ""
    options = tls(server, scheme) if is_secure else {"url": f"{scheme}://127.0.0.1:0{path}"}
    broker = start({"slow": options, **LISTENERS}, rest="[limits]\nmax_byte_rate = 100_000\n")
    context = authority.client_context() if is_secure else None
    with closing(connected(broker.urls[0], context)) as sock:
        data = wrap(sock, broker.urls[0], packet(0x30, b"\0\x01t" + BODY))
        assert taken(sock, data[:-1]) < len(BODY)
    with urllib.request.urlopen(broker.http + "/metrics", timeout=30) as answer:
        assert re.search(rb"^rate_limited_total [1-9]", answer.read(), re.M)

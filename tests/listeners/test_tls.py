"""TLS and secure WebSocket, from outside."""

import contextlib
import os
import signal
import ssl
import subprocess
from pathlib import Path
from random import Random
from time import monotonic

import pytest

from tests.listeners.conftest import ListenerFactory, tls
from tests.support.byte_streams import SocketStream
from tests.support.streams import connect_tcp, connect_tls, tls_wire
from tests.support.tools import require_tool
from tests.support.wire import CONNACK, PINGRESP, TIMEOUT, Wire, connect_packet
from vmq.testing.authority import Authority, IssuedCertificate
from vmq.testing.process import BrokerProcess

LARGE = os.urandom(300_000)
# Records of a handshake message that says it has 16 MB.
ENDLESS_HELLO = b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(16_380)


def refused_handshake(url: str, context: ssl.SSLContext) -> None:
    """With TLS 1.3 a client learns only when it reads that its certificate was refused."""
    try:
        with connect_tls(url, context) as sock:
            sock.sendall(connect_packet("refused"))
            assert not sock.recv(1), "let in"
    except (ssl.SSLError, ConnectionError):
        pass


def lines_of(broker: BrokerProcess, text: str) -> list[str]:
    return [line for line in broker.stderr_text().splitlines() if text in line]


def test_mqtt_over_tls(
    start: ListenerFactory, authority: Authority, server: IssuedCertificate
) -> None:
    broker = start({"tls": tls(server)})
    (url,) = broker.urls
    assert url.startswith("tls://127.0.0.1:")
    context = authority.client_context()
    with tls_wire(url, context) as one, tls_wire(url, context) as other:
        one.connect("one")
        other.connect("other")
        one.subscribe(("a", 2))
        for payload in (b"x", LARGE, b"y"):
            other.publish("a", payload, qos=1)
            one.acknowledge(one.expect_publish("a", payload, qos=1))
        one.disconnect()
    broker.terminate()
    assert not lines_of(broker, "Traceback")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_are_served_unless_the_newer_is_asked_for(
    start: ListenerFactory, authority: Authority, server: IssuedCertificate, version: ssl.TLSVersion
) -> None:
    broker = start({"both": tls(server), "new": tls(server, tls_version="1.3")})
    context = authority.client_context()
    context.minimum_version = context.maximum_version = version
    with connect_tls(broker.urls[0], context) as sock:
        wire = Wire(SocketStream(sock))
        wire.connect()
        assert sock.version() == version.name.replace("v1_", "v1.")
    if version is ssl.TLSVersion.TLSv1_2:
        refused_handshake(broker.urls[1], context)
        broker.wait_log('refused listener=new peer=127.*reason="TLS handshake failed: unsupported')
    else:
        with tls_wire(broker.urls[1], context) as wire:
            wire.connect()


def test_ciphers_are_those_of_the_option(
    start: ListenerFactory, authority: Authority, server: IssuedCertificate
) -> None:
    broker = start({"tls": tls(server, ciphers="ECDHE+CHACHA20")})
    context = authority.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with connect_tls(broker.urls[0], context) as sock:
        cipher = sock.cipher()
        assert cipher is not None
        assert "CHACHA20" in cipher[0]
    context.set_ciphers("ECDHE+AESGCM")
    refused_handshake(broker.urls[0], context)


def test_openssl_is_satisfied_with_the_handshake(
    start: ListenerFactory, authority: Authority, server: IssuedCertificate
) -> None:
    program = require_tool("openssl")
    broker = start({"tls": tls(server)})
    address = broker.urls[0].partition("://")[2]
    done = subprocess.run(
        [
            *(program, "s_client", "-connect", address, "-servername", "localhost", "-quiet"),
            *("-verify_return_error", "-CAfile", str(authority.cafile), "-alpn", "mqtt"),
            *("-verify_hostname", "localhost"),
        ],
        # After the DISCONNECT the broker closes, and so openssl ends.
        input=connect_packet("openssl") + b"\xe0\x00",
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert done.stdout == b"\x20\x02\x00\x00", done.stderr.decode()
    assert b"verify return:1" in done.stderr


def test_a_client_certificate_is_demanded_and_names_the_user(
    start: ListenerFactory, authority: Authority, server: IssuedCertificate, tmp_path: Path
) -> None:
    options = tls(
        server,
        cafile=authority.cafile,
        require_certificate=True,
        use_identity_as_username=True,
        allow_anonymous=False,
    )
    broker = start({"tls": options})
    (url,) = broker.urls
    with tls_wire(url, authority.client_context(authority.issue("device 7"))) as wire:
        wire.connect("a", username="somebody else", password="x")
        wire.ping()
    stranger = Authority(tmp_path / "other", "another authority").issue("device 7")
    broker.wait_log("closed client=a")
    for context, reason in (
        (authority.client_context(), "peer did not return a certificate"),
        (authority.client_context(stranger), "certificate refused: "),
        (authority.client_context(authority.issue("old", expired=True)), "has expired"),
        (authority.client_context(authority.issue("")), "0 common names"),
    ):
        before = len(lines_of(broker, "refused"))
        refused_handshake(url, context)
        broker.wait_log(f"warning refused listener=tls peer=127.0.0.1:.*{reason}")
        assert len(lines_of(broker, "refused")) == before + 1
    with tls_wire(url, authority.client_context(authority.issue("device 8"))) as wire:
        wire.connect("a")


def test_the_name_that_a_client_asks_for_chooses_the_certificate(
    start: ListenerFactory, authority: Authority, server: IssuedCertificate
) -> None:
    one = authority.issue("one.example", ["one.example"])
    many = authority.issue("*.example.org", ["*.example.org"])
    sni = {
        "One.Example": {"certfile": str(one.certfile), "keyfile": str(one.keyfile)},
        "*.example.org": {"certfile": str(many.certfile), "keyfile": str(many.keyfile)},
    }
    broker = start({"tls": tls(server, sni=sni)})
    for host in ("localhost", "one.example", "a.example.org", "B.example.org"):
        with tls_wire(broker.urls[0], authority.client_context(), host) as wire:
            wire.connect()
    with pytest.raises(ssl.SSLCertVerificationError):
        tls_wire(broker.urls[0], authority.client_context(), "a.b.example.org")


def test_plain_bytes_at_a_tls_listener_are_refused_with_one_line(
    start: ListenerFactory, server: IssuedCertificate
) -> None:
    broker = start({"tls": tls(server)})
    for data, reason in (
        (connect_packet("plain"), "MQTT instead of TLS"),
        (b"GET / HTTP/1.0\r\n\r\n", "HTTP instead of TLS"),
        (Random(1).randbytes(70_000), ""),
        (ENDLESS_HELLO, ""),
    ):
        before = len(lines_of(broker, "refused"))
        sock = connect_tcp(broker.urls[0])
        port = sock.getsockname()[1]
        with sock, contextlib.suppress(ConnectionError):
            sock.sendall(data)
            while sock.recv(4096):
                pass
        broker.wait_log(
            f"refused listener=tls peer=127.0.0.1:{port} .*TLS handshake failed: {reason}"
        )
        assert len(lines_of(broker, "refused")) == before + 1
    assert broker.is_running()


def test_an_encrypted_key_is_read_with_its_password(
    start: ListenerFactory, authority: Authority
) -> None:
    """Without it, or with another, the broker does not start: tests/vmq/startup/test_preflight.py."""
    server = authority.issue("localhost", ["localhost"], password=b"secret word")
    broker = start({"tls": tls(server, keypasswd="secret word")})
    with tls_wire(broker.urls[0], authority.client_context()) as wire:
        wire.connect()
    broker.terminate()
    assert "secret word" not in broker.stderr_text()


def test_a_peer_that_stops_reading_does_not_fill_the_broker(
    start: ListenerFactory, authority: Authority, server: IssuedCertificate
) -> None:
    broker = start({"tls": tls(server)}, rest="[network]\nwrite_buffer = 4096")
    context = authority.client_context()
    with tls_wire(broker.urls[0], context) as slow, tls_wire(broker.urls[0], context) as fast:
        slow.connect("slow")
        slow.subscribe(("a", 0))
        fast.connect("fast")
        for _ in range(200):
            fast.publish("a", LARGE)
        fast.ping()
        # Online, so at most max_online_messages (1000) wait: the connection goes on.
        slow.ping()
        found = [slow.recv_packet() for _ in range(10)]
        assert all(each.payload == LARGE for each in found)
    assert broker.is_running()


def test_closing_says_so_to_the_client(
    start: ListenerFactory, authority: Authority, server: IssuedCertificate
) -> None:
    broker = start({"tls": tls(server)})
    with connect_tls(broker.urls[0], authority.client_context()) as sock:
        sock.sendall(connect_packet("a") + b"\xc0\x00")
        wire = Wire(SocketStream(sock))
        wire.expect(CONNACK)
        wire.expect(PINGRESP)
        os.kill(broker.pid, signal.SIGTERM)
        # A stream that ends without close_notify raises SSLEOFError here.
        sock.settimeout(TIMEOUT)
        assert sock.recv(1) == b""
    assert broker.wait() == 0


def test_tls_connections_do_not_leak(
    start: ListenerFactory, authority: Authority, server: IssuedCertificate
) -> None:
    broker = start({"tls": tls(server)})
    folder = Path(f"/proc/{broker.pid}/fd")
    if not folder.is_dir():
        pytest.skip("needs /proc")
    context = authority.client_context()
    with tls_wire(broker.urls[0], context) as wire:
        wire.connect("first")
        before = len(list(folder.iterdir()))
        for number in range(20):
            with tls_wire(broker.urls[0], context) as other:
                other.connect(f"c{number}")
            with connect_tcp(broker.urls[0]) as sock:
                sock.sendall(b"\x16")
        for number in range(20):
            broker.wait_log(f"closed client=c{number} ")
        # Nothing tells of those that only sent a byte.
        deadline = monotonic() + TIMEOUT
        while len(list(folder.iterdir())) > before:
            assert monotonic() < deadline, "sockets stay open"
            wire.ping()

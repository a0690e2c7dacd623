"""One connection that would have everybody wait: floods of tiny frames, endless requests, replayed handshakes, a drip.

What one turn of the event loop does at most is counted in the unit tests. Here another client's pings are answered in
the midst of each flood, as many as there are told of.
"""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.attacks.size import size
from tests.conformance.websocket_wire import CONTINUATION, PING, encode_frame, open_websocket
from tests.conftest import BrokerFactory
from tests.support import wire as mqtt
from tests.support.byte_streams import TcpStream
from tests.support.metrics import figure
from tests.support.streams import tls_wire
from vmq.testing.authority import Authority
from vmq.testing.process import BrokerProcess

#: Pings that are answered in the midst of a flood.
ENOUGH = 20


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def client(stack: ExitStack, broker: BrokerProcess, name: str) -> mqtt.Wire:
    return stack.enter_context(mqtt.Wire.connected(broker.tcp, name))


@contextmanager
def flood(sock: socket.socket, data: bytes) -> Iterator[threading.Event]:
    """Sends the same over and over from a thread, and reads what comes; the event: the broker has ended it."""
    ended, over = threading.Event(), threading.Event()
    sock.settimeout(0.02)

    def run() -> None:
        view = memoryview(data)
        while not over.is_set():
            try:
                view = view[sock.send(view) :] or memoryview(data)
                if not sock.recv(1 << 20):
                    break
            except TimeoutError:
                continue
            except OSError:
                break
        ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ended
    finally:
        over.set()
        thread.join()


LISTEN = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt", "http://127.0.0.1:0")


@pytest.mark.parametrize("opcode", [PING, CONTINUATION])
def test_a_websocket_of_empty_frames_before_connect_ends_in_time_and_freezes_nobody(
    fresh_broker: BrokerFactory, stack: ExitStack, opcode: int
) -> None:
    broker = fresh_broker(LISTEN, env={"VMQ_SESSION__MQTT_CONNECT_TIMEOUT": "2"})
    other = client(stack, broker, "other")
    wire, stream = open_websocket(broker.ws)
    stack.enter_context(wire)
    if opcode == CONTINUATION:
        stream.send_frame(2, b"", fin=False)
    frames = encode_frame(opcode, b"", fin=opcode == PING) * 100_000
    answered = 0
    with flood(stream.tcp.socket, frames) as ended:
        while not ended.is_set():
            other.ping()
            answered += 1
    broker.wait_log("no CONNECT within mqtt_connect_timeout")
    assert answered >= ENOUGH


@pytest.mark.parametrize("kind", ["tcp", "ws"])
def test_a_flood_of_tiny_packets_freezes_nobody(
    fresh_broker: BrokerFactory, stack: ExitStack, kind: str
) -> None:
    broker = fresh_broker(LISTEN)
    other = client(stack, broker, "other")
    if kind == "tcp":
        stream = TcpStream(broker.tcp)
        sock, packets = stream.socket, mqtt.PINGREQ_BYTES * 100_000
        wire = stack.enter_context(mqtt.Wire(stream))
    else:
        wire, frames = open_websocket(broker.ws)
        stack.enter_context(wire)
        sock, packets = frames.tcp.socket, encode_frame(2, mqtt.PINGREQ_BYTES) * 50_000
    wire.connect("flood")
    with flood(sock, packets) as ended:
        for _ in range(size(ENOUGH, 50 * ENOUGH)):
            other.ping()
        assert not ended.is_set()


def test_replayed_client_hellos_wait_for_each_other_and_hold_up_nobody_else(
    fresh_broker: BrokerFactory, stack: ExitStack, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca")
    server = authority.issue("localhost", ["localhost"])
    config = tmp_path / "vmq.toml"
    config.write_text(
        f'[listeners.tls]\nurl = "tls://127.0.0.1:0"\ncertfile = "{server.certfile}"\n'
        f'keyfile = "{server.keyfile}"\n[listeners.plain]\nurl = "tcp://127.0.0.1:0"\n'
        '[listeners.http]\nurl = "http://127.0.0.1:0"\n'
    )
    broker = fresh_broker((), args=("--allow-anonymous", "--config", str(config)))
    tls_url = next(url for url in broker.urls if url.startswith("tls://"))
    host, port = tls_url.removeprefix("tls://").rsplit(":", 1)
    hello = client_hello(authority)
    socks = [
        stack.enter_context(socket.create_connection((host, int(port))))
        for _ in range(size(200, 1000))
    ]
    other = client(stack, broker, "other")
    for sock in socks:
        sock.sendall(hello)
    other.ping()
    rightful = stack.enter_context(tls_wire(tls_url, authority.client_context()))
    rightful.connect("rightful")
    for sock in socks:
        assert sock.recv(1)  # each is answered in its turn
    assert figure(broker, "tls_handshakes_queued_total") > 0


def client_hello(authority: Authority) -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = authority.client_context()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()

"""TLS, WebSocket frames, and addresses that lead nowhere."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from websockets.frames import Frame, Opcode
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from tests.vmq.bench.relay import TlsRelay, make_certificate
from tests.vmq.bench.support import flow_options
from vmq.bench.load.address import Address, parse_address
from vmq.bench.load.options import BenchError, Scenario
from vmq.bench.load.transport import LoadEndpoint, LoadWebSocket
from vmq.bench.scenarios import run
from vmq.testing.process import BrokerProcess


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def relay(broker: BrokerProcess, certificate: tuple[Path, Path]) -> Iterator[TlsRelay]:
    with TlsRelay(*certificate, broker.tcp) as relay:
        yield relay


@pytest.mark.parametrize("size", [64, 100_000])
def test_tls_with_a_certificate_that_is_trusted(
    relay: TlsRelay, certificate: tuple[Path, Path], size: int
) -> None:
    options = flow_options(f"mqtts://localhost:{relay.port}", pubs=2, count=200, qos=1, size=size)
    result = run(replace(options, ca=certificate[0]))
    assert result.received == 200
    assert result.is_sound, result.faults_text()


def test_tls_with_any_certificate(relay: TlsRelay) -> None:
    # 127.0.0.1 is not in the certificate.
    options = flow_options(f"mqtts://127.0.0.1:{relay.port}", Scenario.CONNECT, clients=5, hold=0)
    result = run(replace(options, insecure=True))
    assert result.is_sound, result.faults_text()


def test_a_certificate_that_nobody_trusts_is_an_error(relay: TlsRelay) -> None:
    with pytest.raises(BenchError, match=r"no TLS: .*certificate verify failed"):
        run(flow_options(f"mqtts://localhost:{relay.port}", pubs=1, count=1))


def test_no_tls_where_tls_is_expected_is_an_error(broker: BrokerProcess) -> None:
    with pytest.raises(BenchError, match="no TLS"):
        run(flow_options(f"mqtts://127.0.0.1:{broker.tcp[1]}", pubs=1, count=1))


def test_certificates_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match=r"--cafile: /.*: No such file or directory"):
        LoadEndpoint(Address("mqtts", "127.0.0.1", 1), ca=tmp_path / "none.pem")


def test_a_name_without_an_address_is_an_error() -> None:
    with pytest.raises(BenchError, match="no address for"):
        LoadEndpoint(Address("mqtt", "nobody.invalid", 1883))


def test_loopback_connections_beyond_the_first_thousands_have_another_source(
    broker: BrokerProcess,
) -> None:
    endpoint = LoadEndpoint(Address("mqtt", *broker.tcp))
    endpoint._opened = 20_000
    with closing(endpoint.connect()) as sock:
        assert sock.getsockname()[0] == "127.0.0.2"


class Server:
    """The other end of a WebSocket, without a socket."""

    def __init__(self, accept: bool = True) -> None:
        self.protocol = ServerProtocol(subprotocols=[Subprotocol("mqtt")])
        self.accept = accept

    def answer(self, request: bytes) -> bytes:
        self.protocol.receive_data(request)
        (event,) = self.protocol.events_received()
        if self.accept:
            self.protocol.send_response(self.protocol.accept(event))  # type: ignore[arg-type]
        else:
            self.protocol.send_response(self.protocol.reject(403, "no"))
        return self.sent()

    def sent(self) -> bytes:
        return b"".join(self.protocol.data_to_send())


def opened() -> tuple[LoadWebSocket, Server]:
    websocket, server = LoadWebSocket(parse_address("ws://127.0.0.1:1/mqtt")), Server()
    assert websocket.feed(server.answer(websocket.hello())) == b""
    assert websocket.is_open
    return websocket, server


def test_bytes_travel_in_frames_however_they_are_cut() -> None:
    websocket, server = opened()
    server.protocol.receive_data(websocket.wrap(memoryview(b"there")))
    (event,) = server.protocol.events_received()
    assert isinstance(event, Frame)
    assert (event.opcode, bytes(event.data)) == (Opcode.BINARY, b"there")
    server.protocol.send_binary(b"and ", fin=False)
    server.protocol.send_continuation(b"back", fin=True)
    server.protocol.send_binary(b" again")
    stream = server.sent()
    found = b"".join(websocket.feed(stream[at : at + 3]) for at in range(0, len(stream), 3))
    assert found == b"and back again"


def test_pings_are_answered() -> None:
    websocket, server = opened()
    server.protocol.send_ping(b"?")
    assert websocket.feed(server.sent()) == b""
    server.protocol.receive_data(websocket.replies())
    (event,) = server.protocol.events_received()
    assert isinstance(event, Frame)
    assert (event.opcode, bytes(event.data)) == (Opcode.PONG, b"?")


def test_a_websocket_that_is_refused_or_closed_is_an_error() -> None:
    websocket, server = opened()
    server.protocol.send_close(1000)
    with pytest.raises(ConnectionError, match="closed by the broker"):
        websocket.feed(server.sent())
    websocket, server = LoadWebSocket(parse_address("ws://127.0.0.1:1/mqtt")), Server(accept=False)
    with pytest.raises(ConnectionError, match="no WebSocket there"):
        websocket.feed(server.answer(websocket.hello()))

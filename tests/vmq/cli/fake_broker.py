"""A broker of the test's own making: it says on the wire what the test tells it to."""

import socket
import ssl

from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from tests.support.byte_streams import SocketStream
from tests.support.wire import CONNECT, SUBSCRIBE, TIMEOUT, Packet, Wire, packet
from vmq.testing.closing import Closing


class _WebSocket(SocketStream):
    """The server's end of a WebSocket, which says nothing of itself: no pong, no close."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self._protocol = ServerProtocol(subprotocols=[Subprotocol("mqtt")])
        [request] = self._events()
        assert isinstance(request, Request)
        self._protocol.send_response(self._protocol.accept(request))
        self._send()

    def sendall(self, data: bytes) -> None:
        self._protocol.send_binary(data)
        self._send()

    def recv(self, timeout: float) -> bytes:
        frames = [each for each in self._events(timeout) if isinstance(each, Frame)]
        return b"".join(each.data for each in frames if each.opcode is Opcode.BINARY)

    def _events(self, timeout: float = TIMEOUT) -> list[object]:
        """What comes next: the request, or frames."""
        found: list[object] = []
        while not found:
            self._protocol.receive_data(super().recv(timeout))
            found += self._protocol.events_received()
        return found

    def _send(self) -> None:
        super().sendall(b"".join(self._protocol.data_to_send()))


class FakeBroker(Closing):
    """Listens on a free port of loopback; a context manager that closes all its sockets.

    Args:
        context: speak TLS so.
        is_websocket: speak MQTT in WebSocket frames.
    """

    def __init__(self, context: ssl.SSLContext | None = None, is_websocket: bool = False) -> None:
        self._context = context
        self._stream = _WebSocket if is_websocket else SocketStream
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TIMEOUT)
        self._wires: list[Wire] = []

    @property
    def port(self) -> str:
        return str(self._listener.getsockname()[1])

    def accept(self) -> Wire:
        """The next connection, about which nothing has been said yet."""
        sock = self._listener.accept()[0]
        if self._context is not None:
            sock = self._context.wrap_socket(sock, server_side=True)
        wire = Wire(self._stream(sock))
        self._wires.append(wire)
        return wire

    def accept_client(self, code: int = 0, session_present: int = 0) -> tuple[Wire, Packet]:
        """The next connection and its CONNECT, which is answered."""
        wire = self.accept()
        connect = wire.expect(CONNECT)
        wire.send(packet(0x20, bytes([session_present, code])))
        return wire, connect

    def accept_subscriber(self, session_present: int = 0) -> Wire:
        """The next connection, up to the answer to its SUBSCRIBE."""
        wire, _ = self.accept_client(session_present=session_present)
        request = wire.expect(SUBSCRIBE)
        wire.send(packet(0x90, request.body[:2] + bytes([2])))
        return wire

    def close(self) -> None:
        for wire in self._wires:
            wire.close()
        self._listener.close()

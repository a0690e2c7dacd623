"""A broker of the test's own making: it says on the wire what the test tells it to."""

from __future__ import annotations

import socket

from tests.support.closing import Closing
from tests.support.wire import CONNECT, SUBSCRIBE, TIMEOUT, Packet, TcpStream, Wire, packet


class _Accepted(TcpStream):
    """The server's end of a connection, as `Wire` wants it."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock


class FakeBroker(Closing):
    """Listens on a free port of loopback; a context manager that closes all its sockets."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TIMEOUT)
        self._wires: list[Wire] = []

    @property
    def port(self) -> str:
        return str(self._listener.getsockname()[1])

    def accept(self) -> Wire:
        """The next connection, about which nothing has been said yet."""
        wire = Wire(_Accepted(self._listener.accept()[0]))
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

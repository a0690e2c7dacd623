"""What carries the bytes of a client: TCP, or what a test puts in its place."""

import socket
import ssl
from typing import Protocol

# Seconds that a test waits for bytes that must come. Generous: nobody waits this long unless the
# broker is wrong.
TIMEOUT = 30.0


class ByteStream(Protocol):
    """What carries a Wire: TCP, or WebSocket frames over it."""

    def sendall(self, data: bytes) -> None:
        """Send all the bytes."""

    def recv(self, timeout: float) -> bytes:
        """Some bytes, or b"" at the end of the stream. Raises TimeoutError."""

    def address(self) -> tuple[str, int]:
        """The local host and port, by which the broker knows this peer."""

    def close(self) -> None:
        """Close the connection."""


class SocketStream:
    """The bytes of a connected socket. A reset by the peer counts as the end of the stream."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def sendall(self, data: bytes) -> None:
        self.socket.settimeout(TIMEOUT)
        self.socket.sendall(data)

    def recv(self, timeout: float) -> bytes:
        """Some bytes, or b"" at the end of the stream. Raises TimeoutError."""
        self.socket.settimeout(max(timeout, 0.001))
        try:
            return self.socket.recv(1 << 16)
        except (ConnectionError, ssl.SSLEOFError):
            return b""

    def address(self) -> tuple[str, int]:
        """The local host and port, by which the broker knows this peer."""
        host, port = self.socket.getsockname()[:2]
        return str(host), int(port)

    def close(self) -> None:
        self.socket.close()


def dial(address: tuple[str, int], source: str | None = None) -> socket.socket:
    """A TCP connection that sends what it is given at once."""
    sock = socket.create_connection(address, TIMEOUT, None if source is None else (source, 0))
    # Else what is sent without an answer in between waits 40 ms for the other side's acknowledgement.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


class TcpStream(SocketStream):
    def __init__(self, address: tuple[str, int], source: str | None = None) -> None:
        super().__init__(dial(address, source))

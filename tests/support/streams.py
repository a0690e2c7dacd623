"""Ways to a broker other than plain TCP, for `Wire`."""

from __future__ import annotations

import socket
import ssl

from tests.support.wire import TIMEOUT, Wire


class SocketStream:
    """The bytes of any connected socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def sendall(self, data: bytes) -> None:
        """Send all bytes."""
        self.socket.sendall(data)

    def recv(self, timeout: float) -> bytes:
        """Bytes as they come, or b"" at the end. Raises TimeoutError."""
        self.socket.settimeout(max(timeout, 0.001))
        try:
            return self.socket.recv(65536)
        except (ConnectionError, ssl.SSLEOFError):
            return b""

    def address(self) -> tuple[str, int]:
        """The local host and port, by which the broker knows this peer."""
        host, port = self.socket.getsockname()[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()


def connect_tcp(url: str) -> socket.socket:
    """A TCP connection to a listener, by its URL."""
    host, _, port = url.partition("://")[2].partition("/")[0].rpartition(":")
    return socket.create_connection((host, int(port)), timeout=TIMEOUT)


def connect_tls(url: str, context: ssl.SSLContext, host: str = "localhost") -> ssl.SSLSocket:
    """A TLS connection to a listener, by its URL."""
    sock = connect_tcp(url)
    try:
        return context.wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise


def tls_wire(url: str, context: ssl.SSLContext, host: str = "localhost") -> Wire:
    """An MQTT client over TLS that has sent nothing yet."""
    return Wire(SocketStream(connect_tls(url, context, host)))


def unix_wire(path: str) -> Wire:
    """An MQTT client over a Unix socket that has sent nothing yet."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(TIMEOUT)
    try:
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return Wire(SocketStream(sock))

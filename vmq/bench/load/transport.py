"""The byte streams to a broker: plain and TLS sockets that never block, and MQTT in WebSocket frames."""

import contextlib
import errno
import os
import socket
import ssl
from pathlib import Path
from typing import Any, Final

from vmq_hooks.tls import TlsFileError, client_context
from websockets.client import ClientProtocol
from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

from vmq.bench.load.address import Address
from vmq.bench.load.options import BenchError

#: From one loopback address to one port there are about 28,000 connections; beyond this, we use the next address.
_PER_SOURCE: Final = 20_000

_NONBLOCK: Final[int] = getattr(socket, "SOCK_NONBLOCK", 0)

Chunk = bytes | bytearray | memoryview
Peer = tuple[Any, ...]


class LoadEndpoint:
    """A broker's address, resolved once, and what TLS needs there."""

    def __init__(self, address: Address, ca: Path | None = None, insecure: bool = False) -> None:
        self.address = address
        self.family, self.peer = _resolve(address)
        host = str(self.peer[0])
        self.is_loopback = host.startswith("127.") or host == "::1"
        self.tls = _tls_context(ca, insecure) if address.is_tls else None
        self._opened = 0

    def connect(self) -> socket.socket:
        """A socket that is connecting. Raises OSError."""
        # Non-blocking from the start, which saves a system call.
        sock = socket.socket(self.family, socket.SOCK_STREAM | _NONBLOCK)
        try:
            if not _NONBLOCK:
                sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            source, self._opened = self._opened // _PER_SOURCE, self._opened + 1
            if source and self.is_loopback and self.family == socket.AF_INET:
                sock.bind((f"127.0.0.{1 + source % 250}", 0))
            _begin(sock, self.peer)
        except OSError:
            sock.close()
            raise
        return sock

    def secure(self, sock: socket.socket) -> "TlsSocket":
        """TLS over a connected socket; the handshake is yet to be done."""
        assert self.tls is not None
        wrapped = self.tls.wrap_socket(
            sock, server_hostname=self.address.host, do_handshake_on_connect=False
        )
        return TlsSocket(wrapped)


def _resolve(address: Address) -> tuple[socket.AddressFamily, Peer]:
    """Family and address to connect to."""
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except OSError as problem:
        raise BenchError(f"no address for {address.host}: {problem.strerror}") from None
    # "localhost" may be ::1 first where nobody listens; hardly a broker has IPv6 alone.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return found[0][0], found[0][4]


def _begin(sock: socket.socket, peer: Peer) -> None:
    """Begins to connect. Raises OSError if that fails at once."""
    code = sock.connect_ex(peer)
    if code not in {0, errno.EINPROGRESS}:
        raise OSError(code, os.strerror(code))


def _tls_context(ca: Path | None, insecure: bool) -> ssl.SSLContext:
    try:
        context = client_context(ca)
    except TlsFileError as problem:
        raise BenchError(f"--{problem}") from None
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class TlsSocket:
    """A TLS socket with the errors of a plain one: BlockingIOError where it cannot go on now."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self.wants_write = False

    def handshake(self) -> bool:
        """One step of the handshake; whether it is done. Raises OSError."""
        self.wants_write = False
        try:
            self._sock.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLWantWriteError:
            self.wants_write = True
            return False
        return True

    def recv_into(self, view: memoryview) -> int:
        """Fills the view as far as there is something: a TLS read ends with each record of 16 KiB."""
        total = 0
        while total < len(view):
            try:
                count = self._sock.recv_into(view[total:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except ssl.SSLEOFError:
                return total
            if not count:
                return total
            total += count
        if not total:
            raise BlockingIOError
        return total

    def send(self, data: Chunk) -> int:
        """How many bytes were taken."""
        try:
            return self._sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0

    def pending(self) -> bool:
        """Whether decrypted bytes wait that the selector knows nothing of."""
        return self._sock.pending() > 0

    def fileno(self) -> int:
        """The descriptor."""
        return self._sock.fileno()

    def close(self) -> None:
        """Closes the socket without further ado."""
        with contextlib.suppress(OSError):
            self._sock.close()


class LoadWebSocket:
    """MQTT's byte stream in the frames of one WebSocket."""

    def __init__(self, address: Address) -> None:
        self._protocol = ClientProtocol(
            parse_uri(address.url), subprotocols=[Subprotocol("mqtt")], max_size=None
        )

    def hello(self) -> bytes:
        """The request that opens the WebSocket."""
        self._protocol.send_request(self._protocol.connect())
        return self.replies()

    def feed(self, data: bytes) -> bytes:
        """The MQTT bytes in what came. Raises ConnectionError if the server refuses or ends the WebSocket."""
        protocol = self._protocol
        try:
            protocol.receive_data(data)
        except WebSocketException as problem:
            raise ConnectionError(str(problem)) from None
        if protocol.handshake_exc is not None:
            raise ConnectionError(f"no WebSocket there: {protocol.handshake_exc}")
        parts = [
            bytes(event.data)
            for event in protocol.events_received()
            if isinstance(event, Frame) and event.opcode in {Opcode.BINARY, Opcode.CONT}
        ]
        if protocol.close_rcvd is not None:
            raise ConnectionError("closed by the broker")
        return b"".join(parts)

    @property
    def is_open(self) -> bool:
        """Whether the server has agreed."""
        return self._protocol.state.name == "OPEN"

    def wrap(self, data: Chunk) -> bytes:
        """A frame that carries these bytes."""
        self._protocol.send_binary(bytes(data))
        return self.replies()

    def replies(self) -> bytes:
        """What the protocol itself has to say, such as pongs."""
        return b"".join(self._protocol.data_to_send())

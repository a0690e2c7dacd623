"""A WebSocket client by hand, so that a test decides about every frame.

Written from RFC 6455 and independent of any library: a mistake that the server's library has
cannot hide here.
"""

import base64
import hashlib
import os
import struct
from dataclasses import dataclass
from time import monotonic
from urllib.parse import urlsplit

from tests.support.byte_streams import TcpStream
from tests.support.wire import TIMEOUT, Wire

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

_ACCEPT_SUFFIX = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


@dataclass(frozen=True, slots=True)
class Response:
    """The server's answer to an upgrade request; header names are in lower case."""

    status: int
    headers: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Frame:
    opcode: int
    fin: bool
    payload: bytes


def encode_frame(opcode: int, payload: bytes, *, fin: bool = True, masked: bool = True) -> bytes:
    """A frame from a client; unmasked ones are an error that a test may want."""
    head = bytes([opcode | (0x80 if fin else 0)])
    bit = 0x80 if masked else 0
    if len(payload) < 126:
        head += bytes([bit | len(payload)])
    elif len(payload) < 1 << 16:
        head += struct.pack(">BH", bit | 126, len(payload))
    else:
        head += struct.pack(">BQ", bit | 127, len(payload))
    if not masked:
        return head + payload
    mask = os.urandom(4)
    keys = mask * (len(payload) // 4 + 1)
    mixed = int.from_bytes(payload) ^ int.from_bytes(keys[: len(payload)])
    return head + mask + mixed.to_bytes(len(payload))


class WebSocketStream:
    """The bytes of an MQTT connection in binary frames, one frame for each `sendall`.

    Frames of the server must be unmasked and their data binary. A close frame counts as the end
    of the stream; its code is in `close_code`.
    """

    def __init__(self, tcp: TcpStream, head: bytes) -> None:
        self.tcp = tcp
        self.pongs: list[bytes] = []
        self.close_code: int | None = None
        self._buffer = bytearray(head)
        self._in_message = False

    def sendall(self, data: bytes) -> None:
        """Send the bytes as one binary frame."""
        self.send_frame(BINARY, data)

    def send_frame(
        self, opcode: int, payload: bytes = b"", *, fin: bool = True, masked: bool = True
    ) -> None:
        self.tcp.sendall(encode_frame(opcode, payload, fin=fin, masked=masked))

    def recv(self, timeout: float) -> bytes:
        """The data of the next binary frame, or b"" at the end. Raises TimeoutError."""
        deadline = monotonic() + timeout
        while True:
            frame = self.recv_frame(deadline - monotonic())
            if frame is None:
                return b""
            if frame.opcode == PONG:
                self.pongs.append(frame.payload)
            elif frame.opcode == CLOSE:
                self.close_code = int.from_bytes(frame.payload[:2]) if frame.payload else None
                return b""
            elif frame.opcode != PING:
                wanted = CONTINUATION if self._in_message else BINARY
                assert frame.opcode == wanted, f"data frame of opcode {frame.opcode}"
                self._in_message = not frame.fin
                if frame.payload:
                    return frame.payload

    def recv_frame(self, timeout: float = TIMEOUT) -> Frame | None:
        """The next frame of any kind; None at the end of the connection."""
        deadline = monotonic() + timeout
        while True:
            frame = self._split_frame()
            if frame is not None:
                return frame
            data = self.tcp.recv(deadline - monotonic())
            if not data:
                return None
            self._buffer += data

    def _split_frame(self) -> Frame | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        assert not buffer[0] & 0x70, "reserved bits set by the server"
        assert not buffer[1] & 0x80, "masked frame from the server"
        length, start = buffer[1] & 0x7F, 2
        if length >= 126:
            width = 2 if length == 126 else 8
            start = 2 + width
            if len(buffer) < start:
                return None
            length = int.from_bytes(buffer[2:start])
        if len(buffer) < start + length:
            return None
        frame = Frame(buffer[0] & 15, bool(buffer[0] & 0x80), bytes(buffer[start : start + length]))
        del buffer[: start + length]
        return frame

    def address(self) -> tuple[str, int]:
        return self.tcp.address()

    def close(self) -> None:
        """Cut the TCP connection without a close frame."""
        self.tcp.close()


def upgrade(
    url: str, protocols: tuple[str, ...] = ("mqtt",), path: str | None = None
) -> tuple[Response, WebSocketStream]:
    """Send an upgrade request and return the answer, and the stream behind it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    tcp = TcpStream((parts.hostname, parts.port))
    key = base64.b64encode(os.urandom(16))
    lines = [
        f"GET {parts.path if path is None else path} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Connection: keep-alive, Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        f"Sec-WebSocket-Key: {key.decode()}",
    ]
    if protocols:
        lines.append("Sec-WebSocket-Protocol: " + ", ".join(protocols))
    tcp.sendall("\r\n".join([*lines, "", ""]).encode())
    response, rest = _read_response(tcp)
    if response.status == 101:
        accept = base64.b64encode(hashlib.sha1(key + _ACCEPT_SUFFIX).digest()).decode()
        assert response.headers["sec-websocket-accept"] == [accept]
        assert response.headers["upgrade"][0].lower() == "websocket"
    return response, WebSocketStream(tcp, rest)


def _read_response(tcp: TcpStream) -> tuple[Response, bytes]:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = tcp.recv(TIMEOUT)
        if not piece:
            return Response(0, {}), b""
        data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    headers: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers.setdefault(name.strip().lower(), []).append(value.strip())
    return Response(int(status.split()[1]), headers), rest


def open_websocket(url: str) -> tuple[Wire, WebSocketStream]:
    """An MQTT connection over WebSocket, upgraded and silent: the client, and its frames."""
    response, stream = upgrade(url)
    assert response.status == 101, response
    return Wire(stream), stream

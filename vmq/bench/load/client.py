"""One MQTT connection of the load generator, from the TCP handshake to DISCONNECT."""

import os
import socket
from enum import Enum
from time import monotonic_ns
from typing import Final

from vmq.bench.load.loop import READ, WRITE, Loop
from vmq.bench.load.transport import Chunk, LoadEndpoint, LoadWebSocket, TlsSocket
from vmq.mqtt import encoder
from vmq.mqtt.packets import Connect

_CONNACK: Final = 0x20
_SUBACK: Final = 0x90
_REFUSALS: Final = {
    1: "unacceptable protocol version",
    2: "client id rejected",
    3: "server unavailable",
    4: "bad user name or password",
    5: "not authorized",
}


class ClientState(Enum):
    """How far a connection is."""

    NEW = "new"
    CONNECTING = "connecting"
    SECURING = "in the TLS handshake"
    UPGRADING = "opening the WebSocket"
    GREETING = "waiting for CONNACK"
    UP = "up"
    ENDED = "ended"


class LoadClient:
    """A client that subscribes and waits; publishers and subscribers build on it."""

    def __init__(
        self, loop: Loop, endpoint: LoadEndpoint, client_id: str, crowd: bool = False
    ) -> None:
        self.loop = loop
        self.client_id = client_id
        self.state = ClientState.NEW
        #: What `state` says, for those who ask at each read: looking up a member of an enum is dear.
        self.is_up = False
        self.is_over = False
        #: When the connection was begun.
        self.begun = 0
        #: Codes of the SUBACKs that came, and how many filters still wait for one.
        self.granted = bytearray()
        self.asked = 0
        #: Bytes for the socket that it does not take now.
        self.pending = b""
        self._endpoint = endpoint
        self._crowd = crowd
        self._socket: socket.socket | TlsSocket | None = None
        self._descriptor = -1
        self._events = 0
        self._is_tls = endpoint.tls is not None
        self._websocket: LoadWebSocket | None = None
        #: The beginning of a packet that is not whole yet.
        self._rest = b""
        self._last_id = 0

    # Opening

    def open(self) -> None:
        """Begins to connect. How that went shows in `state`."""
        loop = self.loop
        self.begun = monotonic_ns()
        try:
            sock = self._endpoint.connect()
        except OSError as problem:
            self.end(f"cannot connect: {problem.strerror}")
            return
        self._socket = sock
        self._descriptor = sock.fileno()
        self.state = ClientState.CONNECTING
        self._events = WRITE
        loop.register(self._descriptor, self._events, self, self._crowd)

    def _connect_packet(self) -> bytes:
        request = Connect()
        address = self._endpoint.address
        request.client_id = self.client_id
        request.username = address.username
        request.password = None if address.password is None else address.password.encode()
        return encoder.connect(request)

    def _go_on(self) -> None:
        """The next step of opening."""
        assert self._socket is not None
        if self.state is ClientState.CONNECTING:
            assert isinstance(self._socket, socket.socket)
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self.end(f"cannot connect: {os.strerror(code).lower()}")
                return
            if self._endpoint.tls is None:
                self._secured()
                return
            self.state = ClientState.SECURING
        try:
            if isinstance(self._socket, socket.socket):
                # The wrapped socket keeps the descriptor.
                self._socket = self._endpoint.secure(self._socket)
            if self._socket.handshake():
                self._secured()
            else:
                self._await(WRITE if self._socket.wants_write else READ)
        except OSError as problem:
            self.end(f"no TLS: {problem.strerror or problem}")

    def _secured(self) -> None:
        """The byte stream is there; now WebSocket, or MQTT at once."""
        self._await(READ)
        if self._endpoint.address.is_websocket:
            websocket = LoadWebSocket(self._endpoint.address)
            self.state = ClientState.UPGRADING
            self.write(websocket.hello())
            self._websocket = websocket
        else:
            self.state = ClientState.GREETING
            self.write(self._connect_packet())

    # Sockets

    def on_ready(self, events: int) -> None:
        """The loop says that the socket is ready."""
        if self.is_up and events == READ:
            self._read()
            return
        if self.is_over:
            return
        if self.state is ClientState.CONNECTING or self.state is ClientState.SECURING:
            self._go_on()
            return
        if events & READ:
            self._read()
        if events & WRITE and not self.is_over:
            data, self.pending = self.pending, b""
            self._send(data)
            if not self.pending:
                self._await(READ)
                self.on_drained()

    def _read(self) -> None:
        loop = self.loop
        sock = self._socket
        if sock is None:
            return
        rest = self._rest
        kept = 0
        view = loop.view
        if rest and self._websocket is None:
            kept = len(rest)
            loop.buffer[:kept] = rest
            view = view[kept:]
        try:
            count = sock.recv_into(view)
        except BlockingIOError:
            return
        except OSError as problem:
            self.end(f"connection lost: {problem.strerror or problem}")
            return
        loop.now = monotonic_ns()
        loop.reads += 1
        loop.bytes_in += count
        if not count:
            self.end("closed by the broker")
        elif self._websocket is not None:
            self._unwrap(self._websocket, bytes(view[:count]))
        else:
            self._take_all(kept + count)
        if self._is_tls and not self.is_over and self._socket_pending():
            self._read()

    def _socket_pending(self) -> bool:
        return isinstance(self._socket, TlsSocket) and self._socket.pending()

    def _take_all(self, size: int) -> None:
        loop = self.loop
        taken = self.take(loop.buffer, size)
        if self.is_over:
            return
        if taken == size:
            self._rest = b""
        else:
            self._rest = bytes(loop.view[taken:size])
            if len(self._rest) == len(loop.buffer):
                self.end("a packet is larger than the load generator's buffer")
                return
        self.on_taken()

    def _unwrap(self, websocket: LoadWebSocket, data: bytes) -> None:
        """Takes what WebSocket frames hold."""
        was_open = websocket.is_open
        try:
            data = websocket.feed(data)
        except ConnectionError as problem:
            self.end(str(problem))
            return
        if replies := websocket.replies():
            self._send(replies)
        if not was_open:
            if not websocket.is_open:
                return
            self.state = ClientState.GREETING
            self.write(self._connect_packet())
        room = len(self.loop.buffer)
        while data and not self.is_over:
            piece = data[: room - len(self._rest)]
            data = data[len(piece) :]
            whole = self._rest + piece
            self.loop.buffer[: len(whole)] = whole
            self._take_all(len(whole))

    def write(self, data: Chunk) -> None:
        """Sends bytes; what the socket does not take goes out when it can."""
        self._send(data if self._websocket is None else self._websocket.wrap(data))

    def _send(self, data: Chunk) -> None:
        if self.pending:
            self.pending += bytes(data)
            return
        sock = self._socket
        if sock is None:
            return
        loop = self.loop
        loop.writes += 1
        try:
            count = sock.send(data)
        except BlockingIOError:
            count = 0
        except OSError as problem:
            self.end(f"connection lost: {problem.strerror or problem}")
            return
        loop.bytes_out += count
        if count < len(data):
            self.pending = bytes(data[count:])
            self._await(READ | WRITE)

    def _await(self, events: int) -> None:
        if events != self._events and self._socket is not None:
            self._events = events
            self.loop.modify(self._descriptor, events, self, self._crowd)

    # Packets

    def take(self, buffer: bytearray, size: int) -> int:
        """Handles the whole packets in `buffer[:size]`; returns where the first one that is not whole begins."""
        at = 0
        while not self.is_over:
            end = self.take_one(buffer, at, size)
            if not end:
                break
            at = end
        return at

    def take_one(self, buffer: bytearray, at: int, size: int) -> int:
        """Handles the packet at `at`; returns its end, or 0 if it is not whole."""
        if self.state is ClientState.GREETING and at < size and buffer[at] != _CONNACK:
            self.end("whoever listens there does not speak MQTT")
            return 0
        body = at + 1
        length = shift = 0
        while True:
            if body >= size or shift > 21:
                if shift > 21:
                    self.end("the broker sent what is no MQTT")
                return 0
            byte = buffer[body]
            body += 1
            length |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        end = body + length
        if end > size:
            return 0
        self.on_packet(buffer[at], bytes(buffer[at:end]), body - at)
        return end

    def on_packet(self, head: int, packet: bytes, body: int) -> None:
        """A single packet; its body begins at `body`."""
        if head == _CONNACK and self.state is ClientState.GREETING:
            code = packet[-1]
            if code:
                self.end(f"refused: {_REFUSALS.get(code, 'CONNACK')} (code {code})")
                return
            self.state = ClientState.UP
            self.is_up = True
            self.loop.up += 1
            self.on_up()
        elif head == _SUBACK:
            codes = packet[body + 2 :]
            self.granted += codes
            self.asked -= len(codes)
        elif head != encoder.PINGRESP[0]:
            self.loop.protocol_error(f"unexpected packet {packet[:20].hex(' ')}")

    def on_up(self) -> None:
        """The broker has let us in."""

    def on_end(self) -> None:
        """The connection is over before its time."""

    def on_taken(self) -> None:
        """What one read brought has been handled."""

    def on_drained(self) -> None:
        """The socket has taken everything."""

    # What every client does

    def subscribe(self, *filters: str, qos: int) -> None:
        """Asks for subscriptions; `asked` is 0 again once they are confirmed."""
        self._last_id = self._last_id % 65_535 + 1
        self.asked += len(filters)
        self.write(encoder.subscribe(self._last_id, [(each, qos) for each in filters]))

    def close(self) -> None:
        """Says DISCONNECT and closes, whatever state the connection is in."""
        if self.is_up and not self.pending:
            self.write(encoder.DISCONNECT)
        if not self.is_over:
            self._leave()

    def end(self, reason: str) -> None:
        """The connection is over before its time."""
        if not self.is_over:
            self.loop.ended += 1
            self.loop.problem(reason)
            self._leave()
            self.on_end()

    def _leave(self) -> None:
        if self.is_up:
            self.loop.up -= 1
        self.state = ClientState.ENDED
        self.is_up = False
        self.is_over = True
        self.pending = b""
        if self._socket is not None:
            self.loop.unregister(self._descriptor, self._crowd)
            self._socket.close()
            self._socket = None

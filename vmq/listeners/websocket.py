"""The WebSocket listener: MQTT in binary frames (section 6).

The framing is the sans-I/O protocol of the `websockets` library; this file stands between a TCP
transport and a `Connection`, as the protocol of the one and the transport of the other.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final

from websockets.exceptions import InvalidHandshake, NegotiationError, PayloadTooBig
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from vmq.connection import Connection
from vmq.listeners.trust import Networks, forwarded_peer

#: What the library says of each connection is news only if it is a warning: the session logs ours.
log = logging.getLogger("vmq.websocket")
log.setLevel(logging.WARNING)

#: mqttv3.1 is what clients of MQTT 3.1 offer.
SUBPROTOCOLS: Final = (Subprotocol("mqtt"), Subprotocol("mqttv3.1"))

#: The most that one frame carries: clients limit the size of a WebSocket message, and a frame need
#: not line up with packets [MQTT-6.0.0-2].
FRAME_SIZE: Final = 65_536

#: WebSocket close codes (RFC 6455, 7.4.1).
UNSUPPORTED_DATA: Final = 1003
GOING_AWAY: Final = 1001


def choose_subprotocol(
    _protocol: ServerProtocol, offered: "list[Subprotocol] | Any"
) -> Subprotocol | None:
    """The MQTT subprotocol among those that a client offers [MQTT-6.0.0-4].

    Raises:
        NegotiationError: it offers none; the upgrade is refused [MQTT-6.0.0-3].
    """
    for ours in SUBPROTOCOLS:
        if ours in offered:
            return ours
    raise NegotiationError("this server speaks the WebSocket subprotocol mqtt")


class WebSocket:
    """One WebSocket: an asyncio protocol below, a transport for its connection above.

    `forwarders` are the proxies whose X-Forwarded-For counts, None if that of this peer does not.
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        max_size: int,
        forwarders: Networks | None = None,
    ) -> None:
        self.forwarders = forwarders
        self.connection = connection
        self.path = path
        self.transport: Any = None
        self.protocol = ServerProtocol(
            subprotocols=list(SUBPROTOCOLS),
            select_subprotocol=choose_subprotocol,
            max_size=max_size,
            logger=log,
        )
        self.failed = False

    # The protocol of the TCP transport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.connection.connection_made(self)

    def data_received(self, data: bytes) -> None:
        with self.contained():
            self.protocol.receive_data(data)
            self.handle_events()

    def eof_received(self) -> bool:
        with self.contained():
            self.protocol.receive_eof()
            self.handle_events()
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.connection.connection_lost(error)

    def pause_writing(self) -> None:
        self.connection.pause_writing()

    def resume_writing(self) -> None:
        self.connection.resume_writing()

    @contextmanager
    def contained(self) -> Iterator[None]:
        """What the library raises ends this connection: a caller may be writing to others as well.

        It takes some things amiss that hasty peers send, such as a close frame, or nonsense,
        before the upgrade is answered.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is
            self.connection.close(f"WebSocket failed: {type(error).__name__}: {error}"[:200])
            self.transport.abort()

    # Frames

    def handle_events(self) -> None:
        payloads: list[bytes] = []
        for event in self.protocol.events_received():
            if isinstance(event, Request):
                self.answer(event)
            elif isinstance(event, Frame):
                self.on_frame(event, payloads)
        if payloads:
            self.connection.data_received(b"".join(payloads))
        self.send_pending()
        # A close frame that came with the upgrade was read before the stream was open.
        closing = self.protocol.close_expected() or self.protocol.close_rcvd is not None
        if self.protocol.handshake_exc is not None or closing:
            reason = "WebSocket closed"
            error = self.protocol.handshake_exc or self.protocol.parser_exc
            if error is not None:
                reason = f"WebSocket failed: {error}"
            if isinstance(error, PayloadTooBig) and not self.connection.closing:
                self.connection.core.counters.ws_frame_too_large += 1
                reason += " (max_ws_frame_size)"
            self.connection.close(reason)
            self.connection.outbox.flush()

    def answer(self, request: Request) -> None:
        """Accepts the upgrade, or refuses it with a status that says why."""
        if self.forwarders is not None:
            headers = request.headers.get_all("X-Forwarded-For")
            peer = forwarded_peer(headers, self.forwarders)
            if peer:
                self.connection.peer = peer
        if request.path.split("?", 1)[0] != self.path:
            response = self.protocol.reject(
                HTTPStatus.NOT_FOUND, f"MQTT is served at {self.path}\n"
            )
            self.protocol.handshake_exc = InvalidHandshake("wrong path " + request.path[:80])
        elif not all(value.isascii() for _, value in request.headers.raw_items()):
            # The library would quote them, or decode them, and raise.
            response = self.protocol.reject(HTTPStatus.BAD_REQUEST, "headers must be ASCII\n")
            self.protocol.handshake_exc = InvalidHandshake("header that is not ASCII")
        else:
            response = self.protocol.accept(request)
        # What came behind the request may have failed the stream already.
        if self.protocol.eof_sent:
            self.protocol.handshake_exc = InvalidHandshake("bad frame before the upgrade's answer")
        else:
            self.protocol.send_response(response)

    def on_frame(self, frame: Frame, payloads: list[bytes]) -> None:
        """Collects what binary frames and their continuations carry [MQTT-6.0.0-2]."""
        if self.failed:
            return
        if frame.opcode is Opcode.BINARY or frame.opcode is Opcode.CONT:
            payloads.append(bytes(frame.data))
        elif frame.opcode is Opcode.TEXT:
            self.failed = True
            self.protocol.fail(UNSUPPORTED_DATA, "MQTT needs binary frames [MQTT-6.0.0-1]")

    def send_pending(self) -> None:
        for data in self.protocol.data_to_send():
            if data:
                self.transport.write(data)
            else:  # the protocol's sign for the end of the stream
                self.transport.close()

    # The transport of the connection

    def write(self, data: bytes) -> None:
        if self.protocol.state is State.OPEN:
            with self.contained():
                for start in range(0, len(data), FRAME_SIZE):
                    self.protocol.send_binary(data[start : start + FRAME_SIZE])
                self.send_pending()

    def close(self) -> None:
        """Ends the stream after a close frame, without waiting for the peer's."""
        if self.protocol.state is State.OPEN and self.protocol.close_rcvd is None:
            with self.contained():
                self.protocol.send_close(GOING_AWAY)
                self.send_pending()
        self.transport.close()

    def abort(self) -> None:
        self.transport.abort()

    def pause_reading(self) -> None:
        self.transport.pause_reading()

    def resume_reading(self) -> None:
        self.transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        size: int = self.transport.get_write_buffer_size()
        return size

    def set_write_buffer_limits(self, high: int) -> None:
        self.transport.set_write_buffer_limits(high=high)

    def get_extra_info(self, name: str) -> Any:
        return self.transport.get_extra_info(name)

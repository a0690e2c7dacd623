"""The WebSocket listener: MQTT in binary frames (section 6).

The framing is the sans-I/O protocol of the `websockets` library, but for frames that are a whole message each; this
file stands between a TCP transport and a `Connection`, as the protocol of the one and the transport of the other.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, Final

from websockets.exceptions import InvalidHandshake, NegotiationError, PayloadTooBig
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request, Response
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from vmq.core.output import SOCKET
from vmq.core.states import BROKEN, DISCONNECTED, FAILED, LEAVING, OVERSIZED
from vmq.listeners import addresses
from vmq.listeners.frames import FrameCounter, message_head, take_messages
from vmq.listeners.origins import Origins
from vmq.listeners.trust import Networks, forwarded_peer
from vmq.mqtt.first_bytes import FIRST_BYTES, protocol_of
from vmq.protocol.connection import GROWTH, Connection

#: What the library says of each connection is news only if it is a warning: the session logs ours.
log = logging.getLogger("vmq.websocket")
log.setLevel(logging.WARNING)

#: mqttv3.1 is what clients of MQTT 3.1 offer.
SUBPROTOCOLS: Final = (Subprotocol("mqtt"), Subprotocol("mqttv3.1"))

#: The most that one frame carries: clients limit the size of a WebSocket message, and a frame need
#: not line up with packets [MQTT-6.0.0-2].
FRAME_SIZE: Final = 65_536

#: How many frames one pass reads; the rest waits for the next turn of the event loop. The library takes about 50
#: microseconds for one, however little is in it.
FRAMES_A_PASS: Final = 64

#: What the close frame says (RFC 6455, 7.4.1), by how the connection of MQTT ended; where the client was refused, or
#: may not stay for any other reason, that its policy has it.
CLOSE_CODES: Final = {
    DISCONNECTED: CloseCode.NORMAL_CLOSURE,
    BROKEN: CloseCode.PROTOCOL_ERROR,
    OVERSIZED: CloseCode.MESSAGE_TOO_BIG,
    FAILED: CloseCode.INTERNAL_ERROR,
    LEAVING: CloseCode.GOING_AWAY,
}

#: Seconds for which what comes is dropped behind the close frame for something too large: who is closed while it sends
#: is reset, and loses what it has not read, that frame with it.
LINGER: Final = 1.0

#: What an upgrade's request ends in.
END_OF_REQUEST: Final = b"\r\n\r\n"


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


class Framing(ServerProtocol):
    """The library's, but for pings: of those that one pass reads, the last is answered (RFC 6455, 5.5.3)."""

    ping: bytes | None = None

    def recv_frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.PING:
            self.ping = bytes(frame.data)
        else:
            super().recv_frame(frame)

    def answer_ping(self) -> None:
        ping, self.ping = self.ping, None
        if ping is not None and self.state is State.OPEN:
            self.send_pong(ping)


class WebSocket:
    """One WebSocket: an asyncio protocol below, a transport for its connection above.

    `forwarders` are the proxies whose X-Forwarded-For counts, None if that of this peer does not. `origins` says
    which pages and names are good; None = all.
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        max_size: int,
        forwarders: Networks | None = None,
        origins: Origins | None = None,
    ) -> None:
        self.origins = origins
        self.forwarders = forwarders
        self.connection = connection
        connection.is_framed = True
        self.path = path
        self.max_size = max_size
        self.transport: Any = None
        self.protocol = Framing(
            subprotocols=list(SUBPROTOCOLS),
            select_subprotocol=choose_subprotocol,
            max_size=max_size,
            logger=log,
        )
        #: Why MQTT cannot go on over this stream; empty: it can.
        self.failed = ""
        self.frames = FrameCounter()
        #: The end of what came of the request; None once it is whole.
        self.request: bytes | None = b""
        self.request_size = 0
        #: The chunk at which the passes are, how far they are, and chunks that came meanwhile.
        self.data = b""
        self.position = 0
        self.waiting: list[bytes] = []
        #: Bytes kept when a frame under way last showed that the peer lives.
        self.grown_to = 0
        self.is_held = False
        #: Reasons at present not to read from the peer.
        self.pauses = 0
        self.peer_ended = False
        #: The close frame is sent, and what comes is dropped.
        self.lingers = False

    # The protocol of the TCP transport

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.connection.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self.lingers:
            return
        self.connection.charge(len(data))
        if self.data:
            self.waiting.append(data)
            if not self.is_held:
                self.is_held = True
                self.pause_reading()
            return
        self.data = data
        self.next_pass()

    def eof_received(self) -> bool:
        """The peer sends no more; what it sent before is read first."""
        self.peer_ended = True
        if self.lingers:
            return False
        if not self.data:
            self.end()
        return bool(self.data)

    def connection_lost(self, error: Exception | None) -> None:
        self.drop_unread()
        self.connection.connection_lost(error)

    def pause_writing(self) -> None:
        self.connection.pause_writing()

    def resume_writing(self) -> None:
        self.connection.resume_writing()
        with self.contained():
            self.answer_ping()
            self.send_pending()

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

    # Passes

    def next_pass(self) -> None:
        """Reads so many frames, answers, and goes on in the next turn of the event loop if there is more."""
        if not self.data:
            return  # it was lost meanwhile
        left = FRAMES_A_PASS - self.take_messages(FRAMES_A_PASS)
        if self.position < len(self.data):
            with self.contained():
                while left > 0 and self.position < len(self.data) and not self.connection.closing:
                    left -= self.take_messages(left) or self.take_piece(left)
                self.answer_ping()
                self.send_pending()
                self.look_at_end()
        if self.connection.closing:
            self.drop_unread()
        elif self.position == len(self.data):
            self.position = 0
            self.data = self.waiting.pop(0) if self.waiting else b""
        self.note_kept()
        if self.data:
            self.connection.core.call_soon(self.next_pass)
            return
        if self.is_held:
            self.is_held = False
            self.resume_reading()
        if self.peer_ended and not self.lingers:
            self.end()
            self.transport.close()

    def answer_ping(self) -> None:
        """Answers the last ping; to a peer that takes nothing, once it does: its pings must not fill our memory."""
        if not self.connection.blocked & SOCKET:
            self.protocol.answer_ping()

    def note_kept(self) -> None:
        """A frame under way shows that its sender lives, as a packet does: if it grows by enough."""
        kept = self.connection.framed_bytes = self.kept_bytes()
        if kept - self.grown_to >= GROWTH:
            self.connection.seen = self.connection.core.clock()
            self.grown_to = kept
        self.grown_to = min(self.grown_to, kept)

    def kept_bytes(self) -> int:
        """Bytes of a frame that is not whole, and of what the next passes read."""
        unread = len(self.data) - self.position + sum(map(len, self.waiting))
        request = 0 if self.request is None else self.request_size
        return len(self.protocol.reader.buffer) + request + unread

    def drop_unread(self) -> None:
        self.data = b""
        self.position = 0
        self.waiting.clear()

    def take_messages(self, most: int) -> int:
        """Reads so many frames at most that are a whole message each; returns how many it were.

        The library would say the same of them: it is in the midst of nothing, and the stream is open.
        """
        protocol, connection = self.protocol, self.connection
        is_open = protocol.state is State.OPEN and not connection.closing
        is_midway = protocol.cur_size is not None or not self.frames.is_between()
        if is_midway or not is_open or connection.session.subscriber is None:
            return 0
        messages, self.position = take_messages(self.data, self.position, most, self.max_size)
        self.hand_on(messages)
        return len(messages)

    def take_piece(self, most: int) -> int:
        """Reads the request, or so many frames; returns how many it were.

        Before CONNECT one frame after the other, and none that is larger than a CONNECT may be: nobody knows yet
        who it is that would have us keep it.
        """
        data, start = self.data, self.position
        is_accepted = self.connection.session.subscriber is not None
        largest = self.connection.session.decoder.max_packet_size
        if self.request is not None:
            spoken = "" if self.request_size else protocol_of(data[:FIRST_BYTES])
            if spoken not in ("", "HTTP"):
                self.connection.close(f"WebSocket failed: {spoken} instead of HTTP")
                return 1
            self.position = end = self.end_of_request(self.request)
            read = 1
            if self.request_size > largest:
                text = f"upgrade request of more than {largest} bytes (max_connect_size)"
                self.connection.close("WebSocket failed: " + text)
                self.connection.outbox.flush()
                return read
        else:
            self.position = end = self.frames.cut(data, start, most if is_accepted else 1)
            read = max(1, self.frames.count)
            if not is_accepted and self.frames.size > largest:
                self.refuse_frame(largest)
                return read
        self.connection.send_corked()  # the library may answer a close frame at once: nothing can follow that
        self.protocol.receive_data(data if end - start == len(data) else data[start:end])
        self.handle_events()
        return read

    def end_of_request(self, tail: bytes) -> int:
        """How far the upgrade's request goes in the present chunk; `tail` is the end of what came of it before."""
        seen = tail + self.data
        found = seen.find(END_OF_REQUEST)
        if found < 0:
            self.request = seen[-len(END_OF_REQUEST) + 1 :]
            self.request_size += len(self.data)
            return len(self.data)
        self.request = None
        return found + len(END_OF_REQUEST) - len(tail)

    def refuse_frame(self, largest: int) -> None:
        self.connection.core.counters.ws_frame_too_large += 1
        self.protocol.fail(CloseCode.MESSAGE_TOO_BIG, f"{largest} bytes are taken before CONNECT")
        self.send_pending()
        text = "frame of %d bytes before CONNECT, for which %d are taken (max_connect_size) [MQTT-4.8.0-1]"
        self.connection.close("WebSocket failed: " + text % (self.frames.size, largest))
        self.connection.outbox.flush()

    # Frames

    def handle_events(self) -> None:
        payloads: list[bytes] = []
        for event in self.protocol.events_received():
            if isinstance(event, Request):
                self.answer(event)
            elif isinstance(event, Frame):
                self.on_frame(event, payloads)
        self.hand_on(payloads)

    def hand_on(self, payloads: list[bytes]) -> None:
        """Frames with nothing in them are no sign of life of a client of MQTT [MQTT-3.1.2-24]."""
        if data := b"".join(payloads):
            self.connection.data_received(data)

    def end(self) -> None:
        """The stream has ended."""
        with self.contained():
            self.connection.send_corked()
            self.protocol.receive_eof()
            self.send_pending()
            self.look_at_end()

    def look_at_end(self) -> None:
        """Ends the connection if the WebSocket has ended, or failed."""
        # A close frame that came with the upgrade was read before the stream was open.
        closing = self.protocol.close_expected() or self.protocol.close_rcvd is not None
        if self.protocol.handshake_exc is not None or closing:
            reason = f"WebSocket failed: {self.failed}" if self.failed else "WebSocket closed"
            error = self.protocol.handshake_exc or self.protocol.parser_exc
            if error is None or isinstance(error, EOFError):
                if self.connection.eof_received():
                    return  # what came before is handled first
            if error is not None:
                reason = f"WebSocket failed: {error}"
            if isinstance(error, PayloadTooBig) and not self.connection.closing:
                self.connection.core.counters.ws_frame_too_large += 1
                reason += " (max_ws_frame_size)"
            self.connection.close(reason)
            self.connection.outbox.flush()

    def answer(self, request: Request) -> None:
        """Accepts the upgrade, or refuses it with a status that says why."""
        forwarded = False
        may_stay = True
        if self.forwarders is not None:
            headers = request.headers.get_all("X-Forwarded-For")
            peer = forwarded_peer(headers, self.forwarders)
            if peer:
                forwarded = True
                self.connection.peer = peer
                self.connection.network = self.forwarders.network_of_client(peer)
                may_stay = addresses.arrived(self.connection)
        if not may_stay:
            why = addresses.reason(self.connection.core, self.connection.network)
            response = self.protocol.reject(HTTPStatus.TOO_MANY_REQUESTS, why + "\n")
            self.protocol.handshake_exc = InvalidHandshake(why)
        elif request.path.split("?", 1)[0] != self.path:
            response = self.protocol.reject(
                HTTPStatus.NOT_FOUND, f"MQTT is served at {self.path}\n"
            )
            self.protocol.handshake_exc = InvalidHandshake("wrong path " + request.path[:80])
        elif not all(value.isascii() for _, value in request.headers.raw_items()):
            # The library would quote them, or decode them, and raise.
            response = self.protocol.reject(HTTPStatus.BAD_REQUEST, "headers must be ASCII\n")
            self.protocol.handshake_exc = InvalidHandshake("header that is not ASCII")
        else:
            response = self.look_at_page(request, forwarded) or self.protocol.accept(request)
        # What came behind the request may have failed the stream already.
        if self.protocol.eof_sent:
            self.protocol.handshake_exc = InvalidHandshake("bad frame before the upgrade's answer")
        else:
            self.protocol.send_response(response)

    def look_at_page(self, request: Request, forwarded: bool) -> Response | None:
        """The answer to a page that is not to come in; None if it may, or may try with credentials."""
        if self.origins is None:
            return None
        hosts = request.headers.get_all("Host")
        status, reason = HTTPStatus.MISDIRECTED_REQUEST, self.origins.misdirected(hosts, forwarded)
        if not reason:
            session = self.connection.session
            page = self.origins.foreign(request.headers.get_all("Origin"), hosts, forwarded)
            if not page:
                return None
            status, reason = HTTPStatus.FORBIDDEN, self.origins.refusal(page)
            if not self.origins.is_told and not session.is_open():
                session.foreign = reason
                return None
        self.connection.core.counters.ws_page_refused += 1
        self.protocol.handshake_exc = InvalidHandshake(reason)
        return self.protocol.reject(status, reason + "\n")

    def on_frame(self, frame: Frame, payloads: list[bytes]) -> None:
        """Collects what binary frames and their continuations carry [MQTT-6.0.0-2]."""
        if self.failed:
            return
        if frame.opcode is Opcode.BINARY or frame.opcode is Opcode.CONT:
            payloads.append(bytes(frame.data))
        elif frame.opcode is Opcode.TEXT:
            self.failed = "MQTT needs binary frames [MQTT-6.0.0-1]"
            self.protocol.fail(CloseCode.UNSUPPORTED_DATA, self.failed)

    def send_pending(self) -> None:
        if not self.protocol.writes:
            return
        pieces = self.protocol.data_to_send()
        data = b"".join(pieces)
        if data:
            self.transport.write(data)
        if b"" in pieces:  # the protocol's sign for the end of the stream
            self.close_socket()

    def close_socket(self) -> None:
        """Ends the stream, behind a close frame for something too large a moment later."""
        sent, later = self.protocol.close_sent, self.connection.core.call_later
        is_large = sent is not None and sent.code == CloseCode.MESSAGE_TOO_BIG
        if not is_large or later is None or self.peer_ended:
            self.transport.close()
        elif not self.lingers:
            self.lingers = True
            if self.pauses:
                self.transport.resume_reading()
            later(LINGER, self.transport.close)

    def send_corked(self) -> None:
        self.connection.send_corked()

    # The transport of the connection

    def write(self, data: bytes) -> None:
        if self.protocol.state is State.OPEN:
            self.send_pending()  # the upgrade's answer may be among it
            if len(data) > FRAME_SIZE:
                parts = [data[at : at + FRAME_SIZE] for at in range(0, len(data), FRAME_SIZE)]
                self.transport.write(b"".join(message_head(len(each)) + each for each in parts))
            elif data:
                self.transport.write(message_head(len(data)) + data)

    def close(self) -> None:
        """Ends the stream after a close frame, without waiting for the peer's."""
        if self.protocol.state is State.OPEN and self.protocol.close_rcvd is None:
            with self.contained():
                code = CLOSE_CODES.get(self.connection.state, CloseCode.POLICY_VIOLATION)
                self.protocol.send_close(code)
                self.send_pending()
        self.close_socket()

    def abort(self) -> None:
        self.transport.abort()

    def pause_reading(self) -> None:
        self.pauses += 1
        if self.pauses == 1:
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        self.pauses -= 1
        if self.pauses == 0 and not self.connection.closing:
            self.transport.resume_reading()

    def get_write_buffer_size(self) -> int:
        size: int = self.transport.get_write_buffer_size()
        return size

    def set_write_buffer_limits(self, high: int) -> None:
        self.transport.set_write_buffer_limits(high=high)

    def get_extra_info(self, name: str) -> Any:
        return self.transport.get_extra_info(name)

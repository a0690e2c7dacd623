"""The ZeroMQ sockets of the link, on an asyncio loop: what each of them is for."""

import asyncio
import logging
import struct
from collections.abc import Callable
from typing import Any, Final

import aiozmq
import zmq
from zmq.utils import z85

log = logging.getLogger("vmq.cluster.link")

#: Frames that libzmq keeps for one connection, each way; they have about a MiB at most.
FRAMES: Final = 64
#: Bytes that wait for a peer besides, if it is up and if it is not.
WRITE_BUFFER: Final = 8 * 1024 * 1024
SMALL_BUFFER: Final = 16 * 1024
_BROKEN: Final = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
#: What is heard of connections that come to nothing.
REFUSALS: Final = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH | _BROKEN

#: Frames that are read in one pass of the loop at most, so that clients have their turn.
READS: Final = 16

_DONTWAIT: Final = int(zmq.DONTWAIT)
_EVENTS: Final = int(zmq.EVENTS)
_POLLIN: Final = int(zmq.POLLIN)

#: Logs what may happen often.
Warn = Callable[[str], None]


class Socket(aiozmq.ZmqProtocol):  # type: ignore[misc]  # aiozmq has no types
    """A ZeroMQ socket on the loop; `closed` is done when it is gone."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        if self.closed.done():  # nobody waited for it any more
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if exc is not None:
            log.error("a socket of the link broke: %s", exc)
        if not self.closed.done():
            self.closed.set_result(None)

    async def open(self, socket: Any, bind: str = "", connect: str = "") -> None:
        """Puts a socket on the loop.

        Raises:
            OSError: the address cannot be used.
        """
        try:
            if bind:
                socket.bind(bind)
            if connect:
                socket.connect(connect)
        except zmq.ZMQError as error:
            socket.disable_monitor()
            socket.close()
            raise OSError(error.errno, error.strerror) from None
        opening = aiozmq.create_zmq_connection(lambda: self, socket.type, zmq_sock=socket)
        # The library cannot bear to be cancelled here; `connection_made` sees to it that nothing stays open.
        await asyncio.shield(opening)

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()
        elif not self.closed.done():
            self.closed.set_result(None)


class Gatekeeper(Socket):
    """Answers ZeroMQ's question who may connect: who has the cluster's key (RFC 27, ZAP)."""

    def __init__(self, public: bytes, warn: Warn) -> None:
        super().__init__()
        self._warn = warn
        self._key = z85.decode(public)

    def msg_received(self, parts: list[bytes]) -> None:
        request, address, mechanism, *credentials = parts[1], parts[3], *parts[5:]
        is_ours = mechanism == b"CURVE" and credentials == [self._key]
        if not is_ours:
            self._warn(
                f"refused a node at {address.decode()}: it has another cluster key than this node; it is refused until "
                "it has this node's cluster.key_file"
            )
        status, text = (b"200", b"OK") if is_ours else (b"400", b"wrong key")
        self.transport.write([b"1.0", request, status, text, b"", b""])


class Monitor(Socket):
    """Hears of connections that failed before they could be asked who they are."""

    def __init__(self, warn: Warn) -> None:
        super().__init__()
        self._warn = warn

    def msg_received(self, parts: list[bytes]) -> None:
        (event,) = struct.unpack_from("=h", parts[0])
        if event & _BROKEN:  # who has no key at all may go away before it is told so
            self._warn(
                "a connection of a node ended in its handshake: the network broke it, or that node has another cluster "
                "key than this one, or none"
            )
        elif event & REFUSALS:
            self._warn(
                "refused a node: it has another cluster key than this node, or none, or is no node; it is refused "
                "until it has this node's cluster.key_file"
            )


class Listener(Socket):
    """The ROUTER: hands on what others send.

    It only reads, and does so itself: the transport takes one message in a pass of the loop, and asks libzmq for
    events before and behind each. Here one wake-up takes all that is there, up to a bound.
    """

    def __init__(self, received: Callable[[list[bytes]], None]) -> None:
        super().__init__()
        self._received = received
        self._socket: Any = None
        self._last: Any = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if not self.closed.done():
            self._socket = transport.get_extra_info("zmq_socket")
            loop = asyncio.get_running_loop()
            loop.add_reader(self._socket.get(zmq.FD), self._read)  # in place of the transport's own
            loop.call_soon(self._read)  # libzmq tells of what comes, not of what is there

    def connection_lost(self, exc: Exception | None) -> None:
        self._socket = None
        super().connection_lost(exc)

    def msg_received(self, parts: list[bytes]) -> None:
        self._received(parts)

    def close(self) -> None:
        self._socket = None
        super().close()

    @property
    def last_host(self) -> str:
        """The host that the last message came from; nothing if it came from this machine by a path."""
        try:
            return str(self._last.get("Peer-Address"))
        except (zmq.ZMQError, AttributeError, LookupError):
            return ""

    def _read(self) -> None:
        for turn in range(READS):
            # Who is woken finds a message. For the next it asks: an exception at the end costs more than the message.
            if turn and not self._has_more():
                return
            parts = self._next()
            if parts is None:
                return
            try:
                self._received(parts)
            except Exception:  # a defect here: libzmq says nothing more of what is not read now
                log.exception("cannot take what a node sent")
        asyncio.get_running_loop().call_soon(self._read)

    def _has_more(self) -> bool:
        """Whether a message is there. libzmq signals the next one once it was asked and there was none."""
        socket = self._socket
        try:
            return socket is not None and bool(socket.get(_EVENTS) & _POLLIN)
        except zmq.ZMQError:
            return True  # and reading says why

    def _next(self) -> list[bytes] | None:
        """One message, if one is there."""
        socket = self._socket
        if socket is None:
            return None
        try:
            parts = [socket.recv(_DONTWAIT)]  # the routing id
            while True:
                self._last = frame = socket.recv(_DONTWAIT, copy=False)
                parts.append(frame.bytes)
                if not frame.more:
                    return parts
        except zmq.Again:
            return None
        except zmq.ZMQError as error:
            log.error("the link hears nothing any more: %s", error)
            self.close()
            return None

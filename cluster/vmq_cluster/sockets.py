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
#: Bytes that wait in front of those, for a peer that is up and for one that is not.
WRITE_BUFFER: Final = 8 * 1024 * 1024
SMALL_BUFFER: Final = 16 * 1024
#: What is heard of connections that come to nothing.
REFUSALS: Final = (
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)

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
            self._warn(f"refused a node at {address.decode()}: it has another key")
        status, text = (b"200", b"OK") if is_ours else (b"400", b"wrong key")
        self.transport.write([b"1.0", request, status, text, b"", b""])


class Monitor(Socket):
    """Hears of connections that failed before they could be asked who they are."""

    def __init__(self, warn: Warn) -> None:
        super().__init__()
        self._warn = warn

    def msg_received(self, parts: list[bytes]) -> None:
        (event,) = struct.unpack_from("=h", parts[0])
        if event & REFUSALS:
            self._warn("refused a node: it does not have the cluster's key, or is none")


class Listener(Socket):
    """The ROUTER: hands on what others send."""

    def __init__(self, received: Callable[[list[bytes]], None]) -> None:
        super().__init__()
        self._received = received

    def msg_received(self, parts: list[bytes]) -> None:
        self._received(parts)


class Peer(Socket):
    """A DEALER: what this node says to one address."""

    def __init__(self, address: str, socket: Any, warn: Warn) -> None:
        super().__init__()
        self.address = address
        self._warn = warn
        #: Bytes that may wait; what is said to a dead peer for days is not to reach it all at once.
        self.limit = SMALL_BUFFER
        #: Frames from before the socket is on the loop.
        self._early: list[bytes] = []
        self._opening = asyncio.get_running_loop().create_task(self._open(socket))

    async def _open(self, socket: Any) -> None:
        try:
            await self.open(socket, connect=self.address)
        except OSError as error:
            self._warn(f"cannot connect to {self.address}: {error.strerror}")
            self.connection_lost(None)
            return
        for raw in self._early:
            self.transport.write([raw])
        self._early.clear()

    def send(self, raw: bytes) -> bool:
        """Returns whether there was room."""
        if self.closed.done():
            return False
        if self.transport is not None:
            if self.transport.get_write_buffer_size() > self.limit:
                return False
            self.transport.write([raw])
        elif len(self._early) < FRAMES:
            self._early.append(raw)
        else:
            return False
        return True

    async def end(self) -> None:
        """Closes the socket, wherever it is on its way to the loop."""
        await self._opening
        self.close()
        await self.closed

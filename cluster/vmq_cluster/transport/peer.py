"""What a node says to another one over ZeroMQ."""

import asyncio
from typing import Any, Final

import zmq

from vmq_cluster.transport.ends import EndMonitor
from vmq_cluster.transport.sockets import FRAMES, SMALL_BUFFER, Socket, Warn

_DONTWAIT: Final = int(zmq.DONTWAIT)


class Peer(Socket):
    """A DEALER: what this node says to one address."""

    def __init__(self, address: str, socket: Any, warn: Warn, monitor: EndMonitor) -> None:
        """`monitor` is told how the connection fares."""
        super().__init__()
        self.address = address
        self._monitor = monitor
        self._warn = warn
        #: Bytes that may wait; what is said to a dead peer for days is not to reach it all at once.
        self.limit = SMALL_BUFFER
        #: Frames from before the socket is on the loop.
        self._early: list[bytes] = []
        #: Set while all goes straight to libzmq, and the transport has nothing that waits.
        self._socket: Any = None
        self._opening = asyncio.get_running_loop().create_task(self._open(socket))

    async def _open(self, socket: Any) -> None:
        try:
            await self._monitor.watch(socket)
            await self.open(socket, connect=self.address)
        except (OSError, zmq.ZMQError) as error:
            socket.close()
            self._warn(f"cannot connect to {self.address}: {error.strerror}")
            self.connection_lost(None)
            return
        for raw in self._early:
            self.transport.write([raw])
        self._early.clear()
        self._socket = self.transport.get_extra_info("zmq_socket")

    def connection_lost(self, exc: Exception | None) -> None:
        self._socket = None
        super().connection_lost(exc)

    def close(self) -> None:
        self._socket = None
        super().close()

    def hurry(self) -> None:
        """Who listens there is back. libzmq's pauses between attempts are short."""

    def send(self, raw: bytes) -> bool:
        """Returns whether there was room."""
        if self.closed.done():
            return False
        transport = self.transport
        if transport is not None:
            waiting = transport.get_write_buffer_size()
            if waiting > self.limit:
                return False
            if waiting or not self._send_at_once(raw):
                transport.write([raw])
        elif len(self._early) < FRAMES:
            self._early.append(raw)
        else:
            return False
        return True

    def _send_at_once(self, raw: bytes) -> bool:
        """Gives libzmq a frame; returns whether it took it.

        The transport would look for events in another pass of the loop, as sending may swallow the signal of some. A
        DEALER that is answered nothing waits for none, except to write what the transport has, which is nothing.
        """
        if self._socket is None:
            return False
        try:
            self._socket.send(raw, _DONTWAIT)
        except zmq.ZMQError:
            return False
        return True

    async def end(self) -> None:
        """Closes the socket, wherever it is on its way to the loop."""
        await self._opening
        if self.transport is not None:
            self.transport.get_extra_info("zmq_socket").disable_monitor()
        self._monitor.close()
        self.close()
        await asyncio.gather(self.closed, self._monitor.closed)

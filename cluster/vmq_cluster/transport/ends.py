"""The end of another node's process, as ZeroMQ shows it: its connection ends, and nobody listens there any more."""

import asyncio
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import zmq

from vmq_cluster.transport.refusals import Refusals
from vmq_cluster.transport.sockets import Socket

#: Seconds that one look at an address may take: a port that nobody listens at answers at once.
_LOOK: Final = 1.0


class EndMonitor(Socket):
    """Hears from libzmq how the connection to one address fares.

    libzmq does not say why an attempt failed: so the address is asked once more whether it refuses. Not before: a node
    that is there would wonder who that was.
    """

    EVENTS: Final = zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECTED | zmq.EVENT_CLOSED

    def __init__(self, address: str, where: str, socket: Any, on_gone: Callable[[], None]) -> None:
        """`socket` is a PAIR that is told of it at the address `where` within the process."""
        super().__init__()
        self._where = where
        self._socket = socket
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._refusals = Refusals(on_gone)
        self._is_linked = True
        self._looking: asyncio.Task[None] | None = None

    async def watch(self, dealer: Any) -> None:
        """Hears of the connections of a DEALER from now on."""
        # This end must be there before the other is asked to speak.
        await self.open(self._socket, connect=self._where)
        dealer.monitor(self._where, self.EVENTS)

    def msg_received(self, parts: list[bytes]) -> None:
        (event,) = struct.unpack_from("=h", parts[0])
        if event & zmq.EVENT_CONNECTED:
            self._is_linked = True
            self._refusals.linked()
        elif event & zmq.EVENT_DISCONNECTED:
            self._is_linked = False
        elif event & zmq.EVENT_CLOSED and not self._is_linked:
            self._look_soon()

    def _look_soon(self) -> None:
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(self._look())

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(_LOOK):
                _, writer = await asyncio.open_connection(self._host, self._port)
        except ConnectionRefusedError:
            if not self._is_linked:
                self._refusals.refused()
        except (OSError, TimeoutError):
            pass  # no process that has ended: its machine, or the way there
        else:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
        super().close()

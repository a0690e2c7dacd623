"""A worker's own side: it does what its supervisor tells, takes connections from it, and tells how it fares."""

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from vmq.config.options import ConfigError
from vmq.config.reload import ReloadError
from vmq.http.dashboard.dashboard import dashboard_of
from vmq.listeners.handed import HandedListener
from vmq.listeners.sockets import AcceptedSocket
from vmq.workers.control import Alive, Channel, DoorCount, Follow, Followed, Watch
from vmq.workers.handover import Handed, Receiver

if TYPE_CHECKING:
    from vmq.workers.roles import WorkerBroker

#: Seconds between two signs of life.
ALIVE: Final = 1.0


class WorkerPart:
    """What a broker is told as one of several.

    Args:
        broker: of this process.
        channel: to the supervisor.
        shut: why no clients are served; "": they are.
    """

    def __init__(
        self, broker: "WorkerBroker", channel: Channel, shut: Callable[[], str] = str
    ) -> None:
        self._broker = broker
        self._shut = shut
        self._channel = channel
        self._is_watched = False
        self._receiver: Receiver | None = None

    async def do(self, message: Follow | Watch) -> None:
        """What the supervisor tells."""
        if isinstance(message, Watch):
            self._is_watched = message.is_watched
            return
        refusal = ""
        try:
            self._broker.take_over(message.settings.live)
            if message.is_read:
                self._broker.read_files_anew()
            refusal = "; ".join(await self._broker.followed())
        except (ConfigError, ReloadError, OSError) as problem:
            refusal = str(problem)
        self._channel.send(Followed(refusal))

    def take_connections(self, sock: socket.socket) -> None:
        """Takes those that the supervisor hands over, until `close`."""
        self._receiver = Receiver(sock, self._take)

    def _take(self, handed: Handed, sock: AcceptedSocket) -> None:
        listener = self._broker.listeners.get(handed.listener)
        if isinstance(listener, HandedListener) and listener.is_open:
            listener.take(sock, handed.begun)
        else:
            sock.close()

    def close(self) -> None:
        """Takes no connections any more."""
        if self._receiver is not None:
            self._receiver.close()

    async def tell(self) -> None:
        """Tells the figures of each second, until cancelled."""
        figures = dashboard_of(self._broker).source.figures
        figures.start()
        try:
            while True:
                reading = figures.read(is_watched=self._is_watched)
                if not self._channel.is_behind:
                    self._channel.send(Alive(reading, self._doors(), self._shut()))
                await asyncio.sleep(ALIVE)
        finally:
            figures.stop()

    async def tell_of_stop(self) -> None:
        """Tells that the event loop runs, while the broker stops, until cancelled."""
        while True:
            self._channel.send(Alive())
            await asyncio.sleep(ALIVE)

    def _doors(self) -> dict[str, DoorCount]:
        taken = {} if self._receiver is None else self._receiver.taken
        return {
            name: DoorCount(taken.get(name, 0), each.connections)
            for name, each in self._broker.listeners.items()
            if isinstance(each, HandedListener)
        }

"""The MQTT connections of a broker: each is watched from its beginning, and all have ended when the broker has."""

import asyncio
from collections.abc import Callable, Iterator

from vmq.core.states import LEAVING
from vmq.listeners.listener import Listener
from vmq.protocol.connection import Connection
from vmq.runtime.deadlines import Deadlines, SessionWatch
from vmq.runtime.frequent import Frequent


class Connections:
    """The connections that came through listeners, until they have ended.

    Args:
        clock: monotonic seconds.
        connect_timeout: seconds that a connection has for its CONNECT; asked for each.
    """

    def __init__(self, clock: Callable[[], float], connect_timeout: Callable[[], float]) -> None:
        loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(clock, loop.call_later, loop.call_soon)
        self._connect_timeout = connect_timeout
        self._watches: dict[Connection, SessionWatch] = {}
        self._all_ended: asyncio.Future[None] | None = None
        #: Whose connections end often, by client id.
        self.ended = Frequent()

    def __iter__(self) -> Iterator[Connection]:
        """Those of now; they may end meanwhile."""
        return iter(list(self._watches))

    def on_opened(self, connection: Connection, listener: Listener) -> None:
        lifetime = listener.options.max_connection_lifetime
        timeout = self._connect_timeout()
        self._watches[connection] = SessionWatch(connection, self._deadlines, timeout, lifetime)

    def on_closed(self, connection: Connection) -> None:
        watch = self._watches.pop(connection, None)
        if watch is not None:
            watch.cancel()
            if connection.session.client_id:
                self.ended.count(connection.session.client_id)
        if self._all_ended is not None and not self._watches:
            self._all_ended.set_result(None)

    def wake(self) -> None:
        """Has every watch look anew: the options changed that it goes by."""
        for watch in self._watches.values():
            watch.wake()

    def close(self, reason: str) -> None:
        """Has every connection end in order, as soon as its peer has what was written to it: the broker goes."""
        for connection in self:
            connection.finish(reason, LEAVING)

    async def end(self) -> None:
        """Ends what has not ended by itself; returns when nothing is left."""
        for connection in self:
            connection.abort()
        if self._watches:
            self._all_ended = asyncio.get_running_loop().create_future()
            await self._all_ended

    def stop_watching(self) -> None:
        """No watch looks any more."""
        self._deadlines.close()

"""What an HTTP listener limits below HTTP: connections, and the time that a first request may take.

A client that sends its request byte by byte would otherwise hold its connection for as long as it
likes. The library bounds what comes after the first request (`KEEP_ALIVE`); here is what comes before.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from aiohttp import web

from vmq.config.options import ListenerOptions
from vmq.core.context import Counters
from vmq.listeners.listener import READ_FIRST, peer_of

log = logging.getLogger("vmq.http")

#: Seconds that a connection may wait for its next request.
KEEP_ALIVE: Final = 75.0


class Guards:
    """The connections of one HTTP listener; called by its server for the protocol of a new one."""

    #: Makes the library's protocol for a connection; set when its server is.
    make: Callable[[], asyncio.Protocol]

    def __init__(self, name: str, options: ListenerOptions, counters: Counters) -> None:
        self.name = name
        self.timeout = options.http_request_timeout
        self.limit = options.max_connections
        self.counters = counters
        #: By transport, which is what a request knows of its connection.
        self.present: dict[object, HttpGuard] = {}

    def __call__(self) -> asyncio.Protocol:
        return HttpGuard(self, self.make())

    def refuse(self, transport: Any, reason: str) -> None:
        peer = peer_of(transport.get_extra_info("peername"))
        log.warning('refused listener=%s peer=%s reason="%s"', self.name, peer, reason)
        transport.abort()

    @web.middleware
    async def on_request(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """A whole head is there."""
        guard = self.present.get(request.transport)
        if guard is not None:
            guard.passed()
        response: web.StreamResponse = await handler(request)
        return response


class HttpGuard(asyncio.Protocol):
    """One connection: hands everything on to the library's protocol."""

    def __init__(self, guards: Guards, inner: asyncio.Protocol) -> None:
        self.guards = guards
        self.inner = inner
        self.transport: asyncio.BaseTransport | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.data_received = inner.data_received  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        guards = self.guards
        self.transport = transport
        guards.present[transport] = self
        self.inner.connection_made(transport)
        if guards.limit and len(guards.present) > guards.limit:
            guards.refuse(transport, f"max_connections = {guards.limit} reached")
            return
        loop = asyncio.get_running_loop()
        self.timer = loop.call_later(guards.timeout, self.read_first)

    def read_first(self) -> None:
        """The loop may have been late itself: what came in time lies unread, and timers come before sockets."""
        self.timer = asyncio.get_running_loop().call_later(READ_FIRST, self.too_slow)

    def too_slow(self) -> None:
        self.guards.counters.http_timeouts += 1
        self.guards.refuse(self.transport, "no request within http_request_timeout")

    def passed(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def connection_lost(self, error: Exception | None) -> None:
        self.passed()
        self.guards.present.pop(self.transport, None)
        self.inner.connection_lost(error)

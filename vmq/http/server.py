"""Serves the HTTP application on a listening socket."""

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Final

from aiohttp import web

from vmq.http.app import make_app

if TYPE_CHECKING:
    from vmq.broker import Broker

#: Seconds that a request under way has to end when the broker stops.
STOP_TIMEOUT: Final = 1.0

#: What the library says of each request is news only if it is a warning.
log = logging.getLogger("vmq.http")


class HttpServer:
    """An HTTP listener that serves. Made by `serve`."""

    def __init__(self, runner: web.AppRunner, server: asyncio.Server) -> None:
        self._runner = runner
        self._server = server

    def is_serving(self) -> bool:
        """Whether new connections are accepted."""
        return self._server.is_serving()

    def close(self) -> None:
        """Accepts nothing more."""
        self._server.close()

    async def finish(self) -> None:
        """Ends the connections; requests under way have a moment to end by themselves."""
        self._server.close()
        await self._runner.cleanup()


async def serve(
    sock: socket.socket, broker: "Broker", backlog: int, *, allow_remote: bool
) -> HttpServer:
    """Serves the broker's HTTP application on a listening socket."""
    app = make_app(broker, allow_remote=allow_remote)
    runner = web.AppRunner(app, access_log=None, logger=log, shutdown_timeout=STOP_TIMEOUT)
    await runner.setup()
    assert runner.server is not None
    server = await asyncio.get_running_loop().create_server(
        runner.server, sock=sock, backlog=backlog
    )
    return HttpServer(runner, server)

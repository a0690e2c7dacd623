"""What listens for HTTP: at once. The library and the application that answer come with the first who connects."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from vmq.config.options import Config, ListenerOptions
from vmq.core.context import Counters
from vmq.http.guard import Guards, MqttDoor
from vmq.listeners.sockets import bind

if TYPE_CHECKING:
    from aiohttp import web

log = logging.getLogger("vmq.http")


class LateServer:
    """A socket that listens; the application is loaded once somebody connects, who waits for it.

    Loading takes as long as all else of a start. Right after one, clients of MQTT come back, and are not to wait for
    what many brokers are never asked for.

    Args:
        what: it is, for the log.
        sock: has its address; it is the server's from now on.
        backlog: connections that may wait.
        load: makes the application, with its runner.
        accept: makes the protocol of a connection, once there is a runner; None: that makes it.

    Raises:
        OSError: it cannot listen; the socket is closed.
    """

    def __init__(
        self,
        what: str,
        sock: socket.socket,
        backlog: int,
        load: "Callable[[], Awaitable[web.AppRunner]]",
        accept: Callable[[], asyncio.Protocol] | None = None,
    ) -> None:
        self._what = what
        self._sock = sock
        self._backlog = backlog
        self._load = load
        self._accept = accept
        #: Who connects is waited for, in this loop.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving: asyncio.Task[None] | None = None
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        #: Whether new connections are let in.
        self.is_open = True
        try:
            sock.listen(backlog)
        except OSError:
            sock.close()
            raise

    def serve(self) -> None:
        """From now on the application is loaded for who connects, and answers; once."""
        if self.is_open and self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._sock, self._on_first)

    def _on_first(self) -> None:
        assert self._loop is not None
        self._loop.remove_reader(self._sock)
        self._serving = self._loop.create_task(self._serve())
        self._serving.add_done_callback(self._told)

    async def _serve(self) -> None:
        self._runner = runner = await self._load()
        await runner.setup()
        accept = self._accept or runner.server
        assert accept is not None
        self._server = await asyncio.get_running_loop().create_server(
            accept, sock=self._sock, backlog=self._backlog, start_serving=False
        )
        await self._server.start_serving()

    def _told(self, serving: "asyncio.Task[None]") -> None:
        if not serving.cancelled() and (error := serving.exception()) is not None:
            log.critical("%s is not served", self._what, exc_info=error)
            self.close()  # nobody shall wait for an answer

    def close(self) -> None:
        """Lets nobody in any more; who waits for the application is sent away."""
        if self._serving is not None:
            self._serving.cancel()
        elif self._loop is not None and self.is_open:
            self._loop.remove_reader(self._sock)
        self.is_open = False
        if self._server is not None:
            self._server.close()
        self._sock.close()

    async def stop(self) -> None:
        """Ends the connections; requests under way have a moment to end by themselves."""
        self.close()
        if self._serving is not None:
            await asyncio.wait([self._serving])
        if self._runner is not None:
            await self._runner.cleanup()


class HttpListener:
    """A listener for HTTP. It has its address and listens; what answers comes after `serve`, with who connects.

    Args:
        name: its name in the configuration.
        options: its options.
        make_app: makes what answers.
        counters: are told of who was too slow.
        backlog: connections that may wait to be accepted.
        mqtt: takes those who speak MQTT; it has no socket of its own.
        ended: is called when it has ended.

    Raises:
        OSError: its address cannot be had.
    """

    #: Who comes to a listener of HTTP that has no room is told so, and does not wait.
    is_wanting = False

    def __init__(
        self,
        name: str,
        options: ListenerOptions,
        make_app: "Callable[[], Awaitable[web.Application]]",
        counters: Counters,
        backlog: int,
        mqtt: MqttDoor | None = None,
        ended: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.name = name
        self.endpoint = options.endpoint
        self._make_app = make_app
        self._mqtt = mqtt
        self._ended = ended
        self._guards = Guards(name, options, counters)
        self._guards.mqtt = mqtt
        sock = bind(options.endpoint.host, options.endpoint.port)
        host, port = sock.getsockname()[:2]
        self.url = options.endpoint.with_address(host, port).url
        self._server = LateServer(f"listener {name}", sock, backlog, self._load, self._guards)

    async def _load(self) -> "web.AppRunner":
        app = await self._make_app()
        # Late: it needs the library, which the application has loaded.
        from vmq.http.connection import runner_of

        return runner_of(app, self._guards)

    @property
    def is_open(self) -> bool:
        """Whether new connections are let in."""
        return self._server.is_open

    @property
    def connections(self) -> int:
        """Open connections of MQTT."""
        return 0 if self._mqtt is None else self._mqtt.connections

    def serve(self) -> None:
        """From now on the application is loaded for who connects, and answers; once."""
        self._server.serve()

    def configure(self, config: Config) -> None:
        """Goes by another configuration, for the connections to come."""
        self._guards.limit = config.listeners[self.name].max_connections
        if self._mqtt is not None:
            self._mqtt.configure(config)

    def close(self) -> None:
        """Lets nobody in any more."""
        self._server.close()

    async def finish(self) -> None:
        """Ends the connections; requests under way have a moment to end by themselves."""
        self._server.close()
        self._guards.drop_silent()
        await self._server.stop()
        if self._ended is not None:
            await self._ended()

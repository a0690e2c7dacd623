"""A listener that serves the HTTP application."""

import asyncio
import logging
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from vmq.config.options import Config, ListenerOptions
from vmq.config.values import Endpoint
from vmq.core.context import Counters
from vmq.http.guard import KEEP_ALIVE, Guards, MqttDoor
from vmq.http.headers import complete_head
from vmq.http.keys import BODY_TIMEOUT
from vmq.listeners.sockets import bind

#: Seconds that a request under way has to end when the broker stops.
STOP_TIMEOUT: Final = 1.0

#: What the library says of each request is news only if it is a warning.
log = logging.getLogger("vmq.http")

#: Bytes of the library's words that the log gets of what is no HTTP.
SHOWN: Final = 80


def in_one_line(record: logging.LogRecord) -> bool:
    """What a peer sends that is no HTTP is no defect here: it costs a line, with no traceback and nothing of it."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, web.RequestPayloadError):  # of a body that nobody has read
        error = error.__cause__
    if isinstance(error, HttpProcessingError):
        what = next(iter(error.message.strip().splitlines()), type(error).__name__)
        record.exc_info = None
        record.levelno, record.levelname = logging.WARNING, "WARNING"
        record.msg = 'refused peer=%s reason="no good HTTP: %s"'
        peer = record.args[:1] if isinstance(record.args, tuple) else ()
        record.args = (*(peer or ("unknown",)), what.partition(": b")[0].rstrip(":")[:SHOWN])
    return True


log.addFilter(in_one_line)


class HttpConnection(web.RequestHandler):
    """The library's protocol of one connection. What is no HTTP it answers itself, without the application."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what cannot be served, with the head that all answers have."""
        response = super().handle_error(request, status, exc, message)
        complete_head(response)
        return response


class HttpListener:
    """A listener for HTTP that serves. Made by `open_http`."""

    def __init__(
        self,
        name: str,
        url: str,
        endpoint: Endpoint,
        runner: web.AppRunner,
        server: asyncio.Server,
        guards: Guards,
    ) -> None:
        self.name = name
        self._guards = guards
        self._mqtt = guards.mqtt
        self.url = url
        self.endpoint = endpoint
        self._runner = runner
        self._server = server

    @property
    def is_open(self) -> bool:
        """Whether new connections are let in."""
        return self._server.is_serving()

    @property
    def connections(self) -> int:
        """Open connections of MQTT."""
        return 0 if self._mqtt is None else self._mqtt.connections

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
        await self._runner.cleanup()


async def open_http(
    name: str,
    options: ListenerOptions,
    app: web.Application,
    counters: Counters,
    backlog: int,
    mqtt: MqttDoor | None = None,
) -> HttpListener:
    """Opens a listener that serves an HTTP application.

    Args:
        name: its name in the configuration.
        options: its options.
        app: what answers.
        counters: are told of who was too slow.
        backlog: connections that may wait to be accepted.
        mqtt: takes those who speak MQTT; it has no socket of its own.

    Raises:
        OSError: its address cannot be had.
    """
    sock = bind(options.endpoint.host, options.endpoint.port)
    app[BODY_TIMEOUT] = options.http_request_timeout
    guards = Guards(name, options, counters)
    guards.mqtt = mqtt
    app.middlewares.insert(0, guards.on_request)
    how: dict[str, Any] = {
        "access_log": None,
        "logger": log,
        "keepalive_timeout": KEEP_ALIVE,
        "auto_decompress": False,  # it would unpack a whole body in one turn of the event loop
    }
    runner = web.AppRunner(app, shutdown_timeout=STOP_TIMEOUT, **how)
    try:
        await runner.setup()
        assert runner.server is not None
        inner, loop = runner.server, asyncio.get_running_loop()
        guards.make = lambda: HttpConnection(inner, loop=loop, **how)
        server = await loop.create_server(guards, sock=sock, backlog=backlog, start_serving=False)
    except BaseException:
        sock.close()
        await runner.cleanup()
        raise
    host, port = sock.getsockname()[:2]
    url = options.endpoint.with_address(host, port).url
    listener = HttpListener(name, url, options.endpoint, runner, server, guards)
    try:
        await server.start_serving()
    except BaseException:  # a start may be cancelled here, and nobody knows the listener yet
        await listener.finish()
        raise
    return listener

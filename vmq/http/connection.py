"""What the library has of an HTTP listener: its protocol for a connection, and the runner of the application."""

import asyncio
import logging
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Middleware

from vmq.http.guard import KEEP_ALIVE, Guards
from vmq.http.headers import complete_head
from vmq.http.keys import BODY_TIMEOUT

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


def one_by_one(guards: Guards) -> Middleware:
    """Begins requests in turns of the event loop: clients of MQTT have theirs between, however many ask at once."""
    turn = asyncio.Lock()

    @web.middleware
    async def on_request(request: web.Request, handler: Any) -> web.StreamResponse:
        guards.on_request(request.transport)
        if "Content-Encoding" in request.headers:
            raise web.HTTPUnsupportedMediaType(text="accepted: a body without Content-Encoding\n")
        async with turn:
            await asyncio.sleep(0)
        response: web.StreamResponse = await handler(request)
        return response

    return on_request


def runner_of(app: web.Application, guards: Guards) -> web.AppRunner:
    """What runs an application for the connections of a listener, which are its guards' first."""
    app[BODY_TIMEOUT] = guards.timeout
    app.middlewares.insert(0, one_by_one(guards))
    how: dict[str, Any] = {
        "access_log": None,
        "logger": log,
        "keepalive_timeout": KEEP_ALIVE,
        "auto_decompress": False,  # it would unpack a whole body in one turn of the event loop
    }
    runner = web.AppRunner(app, shutdown_timeout=STOP_TIMEOUT, **how)

    def make() -> HttpConnection:
        assert runner.server is not None, "the runner is not set up"
        return HttpConnection(runner.server, loop=asyncio.get_running_loop(), **how)

    guards.make = make
    return runner

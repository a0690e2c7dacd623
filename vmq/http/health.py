"""`/health`: whether the broker can do its work, and if not, why.

200 if it can, 503 with the reasons if it cannot, as a load balancer or a container's health check
wants it. `/health/ping` only shows that the process answers.
"""

from http import HTTPStatus
from typing import Any

from aiohttp import web

from vmq.http.keys import BROKER


def verdict(reasons: list[str], **more: Any) -> web.Response:
    """The answer: 200 if there is no reason against it."""
    body = {"status": "failing" if reasons else "ok", "reasons": reasons, **more}
    code = HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK
    return web.json_response(body, status=code)


async def show_health(request: web.Request) -> web.Response:
    """Listeners, store and event loop together."""
    return verdict(request.app[BROKER].health())


async def show_ping(_request: web.Request) -> web.Response:
    """The process answers."""
    return verdict([])


async def show_listeners(request: web.Request) -> web.Response:
    """Each listener: where it is, whether it accepts, how many connections it has."""
    broker = request.app[BROKER]
    listeners = {
        name: {
            "url": listener.url,
            "accepting": listener.is_open,
            "connections": listener.connections,
        }
        for name, listener in broker.listeners.items()
    }
    return verdict(broker.listeners.problems(), listeners=listeners)


def routes() -> list[web.AbstractRouteDef]:
    """What this module answers."""
    return [
        web.get("/health", show_health),
        web.get("/health/ping", show_ping),
        web.get("/health/listeners", show_listeners),
    ]

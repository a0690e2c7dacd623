"""`/health`: whether the broker can do its work, and if not, why.

200 while new clients can be served, if only in part (`degraded`, with the reasons), else 503. `/health/ready` says the
same to a load balancer. `/health/live` (and `/health/ping`) shows that the process answers, for whoever would start it
anew otherwise, which mends no disk and no damage.
"""

from http import HTTPStatus
from typing import Any

from aiohttp import web

from vmq.http.keys import BROKER
from vmq.runtime.health import Health


def verdict(health: Health, **more: Any) -> web.Response:
    """The answer: 200 unless new clients cannot be served."""
    body = {"status": health.status, "reasons": health.reasons, **more}
    code = HTTPStatus.SERVICE_UNAVAILABLE if health.failing else HTTPStatus.OK
    return web.json_response(body, status=code)


def readiness(health: Health) -> web.Response:
    """The answer to who only wants to know whether new clients are served."""
    return verdict(Health(health.failing, []))


async def show_health(request: web.Request) -> web.Response:
    """Listeners, store, streams, cluster and event loop together."""
    return verdict(request.app[BROKER].condition())


async def show_ready(request: web.Request) -> web.Response:
    """New clients are served."""
    return readiness(request.app[BROKER].condition())


async def show_live(_request: web.Request) -> web.Response:
    """The process answers."""
    return verdict(Health([], []))


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
    return verdict(Health(broker.listeners.problems(), []), listeners=listeners)


def routes() -> list[web.AbstractRouteDef]:
    """What this module answers."""
    return [
        web.get("/health", show_health),
        web.get("/health/live", show_live),
        web.get("/health/ready", show_ready),
        web.get("/health/ping", show_live),
        web.get("/health/listeners", show_listeners),
    ]

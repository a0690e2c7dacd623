"""The HTTP application: which module answers which path.

/links, /manual                             vmq.http.home
/, /page/...                                vmq.http.dashboard.files
/metrics                                    vmq.http.metrics
/health, /health/...                        vmq.http.health
/status.json                                vmq.http.status
/api/v1/...                                 vmq.http.api
/restmqtt/api/v1/publish                    vmq.http.http_pub
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from aiohttp import web

from vmq.http import health, home, metrics, report, status
from vmq.http.api import add_routes
from vmq.http.dashboard import files
from vmq.http.headers import complete_head
from vmq.http.keys import BROKER
from vmq.listeners.origins import is_this_host

if TYPE_CHECKING:
    from vmq.config.options import LimitOptions
    from vmq.ports import BrokerView

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Bytes of the largest accepted body of a request, besides the job that it may have.
MAX_BODY: Final = 1_048_576


def make_app(broker: "BrokerView", *, allow_remote: bool = False) -> web.Application:
    """The application that one HTTP listener serves.

    Args:
        broker: whose figures are shown; it is started, or about to be.
        allow_remote: answer to any host name. Without it only requests for this machine by its
            own name or by an address are served, so that no web page can read the answers through
            a name that it made point here.
    """
    app = bare_app(broker.config.limits, allow_remote=allow_remote)
    app[BROKER] = broker
    for module in (files, metrics, health, status):
        app.add_routes(module.routes())
    add_routes(app, broker)
    return app


def bare_app(limits: "LimitOptions", *, allow_remote: bool) -> web.Application:
    """An application with links and manual alone, and what holds for all answers; `allow_remote` as for `make_app`."""
    app = web.Application(
        middlewares=[] if allow_remote else [only_this_host],
        client_max_size=_largest_body(limits),
    )
    app.on_response_prepare.append(complete)
    app.add_routes(home.routes())
    return app


def make_admin_app(broker: "BrokerView") -> web.Application:
    """The application behind the admin socket: the API for its operator, and one answer with all of its figures."""
    app = web.Application(client_max_size=_largest_body(broker.config.limits))
    app[BROKER] = broker
    add_routes(app, broker, trusted=True)
    app.add_routes(report.routes())
    return app


def _largest_body(limits: "LimitOptions") -> int:
    """Bytes that a request's body may have: a job in it is in base64, or escaped."""
    return MAX_BODY + 2 * limits.max_job_size


async def complete(_request: web.Request, response: web.StreamResponse) -> None:
    """Every answer of the application has the same head."""
    complete_head(response)


@web.middleware
async def only_this_host(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses requests that name another host than this machine."""
    if not is_this_host(request.host):
        text = (
            f"this listener serves its own machine only, as localhost or by its address, not as {request.host!r}; "
            "its allow_remote = true serves others\n"
        )
        raise web.HTTPMisdirectedRequest(text=text)
    return await handler(request)

"""The operations of `vmq.http.operations` as HTTP routes under /api/v1/."""

import asyncio
import base64
import binascii
import inspect
import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote_to_bytes

import msgspec
from aiohttp import web

from vmq.admin.errors import AdminError, TooSlow
from vmq.admin.keys import KeyRow
from vmq.admin.listing import Listing
from vmq.config.text import HIDDEN, accepted, is_secret, shortened, toml_value
from vmq.http import http_pub
from vmq.http.auditing import audited, key_at_work, name_of
from vmq.http.dashboard.dashboard import Dashboard, dashboard_of
from vmq.http.dashboard.for_front import ForFront
from vmq.http.dashboard.routes import LiveRoutes
from vmq.http.dashboard.tokens import is_of_page
from vmq.http.keys import BODY_TIMEOUT
from vmq.http.openapi import Failure, describe
from vmq.http.operation import Context, Operation, Result
from vmq.http.operations import OPERATIONS
from vmq.http.sql import SqlQueries
from vmq.http.stream_tail import StreamTails
from vmq.http.trace import stream
from vmq.runtime.audit import tell_of_key

if TYPE_CHECKING:
    from vmq.ports import BrokerView

log = logging.getLogger("vmq.http")

PREFIX: Final = "/api/v1"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Finds(Protocol):
    """Knows the keys that requests bring."""

    def find(self, key: str) -> KeyRow | None:
        """What is known of a key; None: it is none."""


#: Does an operation with its parameters. What comes as Raw is JSON already.
Doing = Callable[[Operation, Any], Result | msgspec.Raw | Awaitable[Result | msgspec.Raw]]

#: Which parameter an error of msgspec is about.
_PLACE: Final = re.compile(r" - at `\$\.(\w+)")

_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def add_routes(app: web.Application, broker: "BrokerView", *, trusted: bool = False) -> None:
    """Adds the API to an application.

    Args:
        app: where to.
        broker: the broker that it works on; started before the first request comes.
        trusted: whoever reaches the application is the operator: no API keys are asked for, and they may be managed.
    """
    context = Context(broker)
    dashboard = dashboard_of(broker)

    async def traced(request: web.Request) -> web.StreamResponse:
        return await stream(request, broker)

    tails = StreamTails(broker)
    app.on_shutdown.append(tails.stop)
    live: dict[str, Handler] = {
        "/trace": traced,
        "/stream/tail": tails.serve,
        "/sql": SqlQueries(broker).serve,
    }
    if broker.share is None:
        add_dashboard(app, dashboard, trusted=trusted)
    else:
        _add_for_front(app, ForFront(broker))
    do = in_turns(dashboard, lambda operation, wanted: operation.run(context, wanted))
    # A worker is asked by its supervisor, who was asked by somebody.
    add_api(app, do, live, None if trusted else dashboard, broker.share is None)


def in_turns(dashboard: Dashboard, do: Doing) -> Doing:
    """Does operations, and has pages wait for those that walk over all sessions: all pages together once a second."""

    def done(operation: Operation, wanted: Any) -> Any:
        if operation.name == "list_sessions" and is_of_page(key_at_work.get()):
            return in_turn(operation, wanted)
        return do(operation, wanted)

    async def in_turn(operation: Operation, wanted: Any) -> Any:
        await dashboard.walk_turn()
        result = do(operation, wanted)
        return await result if inspect.isawaitable(result) else result

    return done


def _add_for_front(app: web.Application, front: ForFront) -> None:
    for path, handler in front.asked.items():
        app.router.add_get(PREFIX + path, _guarded(handler, None))
    for path, handler in front.told.items():
        app.router.add_post(PREFIX + path, _guarded(handler, None))


def add_dashboard(app: web.Application, dashboard: Dashboard, *, trusted: bool) -> None:
    """Adds what the page asks for, and has the broker's figures read while the application is served.

    Args:
        app: where to.
        dashboard: of the broker.
        trusted: whoever reaches the application is the operator, who makes links.
    """
    live = LiveRoutes(dashboard, None if trusted else _key_of)
    keys = None if trusted else dashboard
    shown, taken = live.guarded(), {}
    if trusted:
        taken["/live/token"] = live.token
    else:
        shown["/live/trace"] = live.trace
        taken = {"/live/page": live.page, "/live/login": live.login}
    for path, handler in shown.items():
        app.router.add_get(PREFIX + path, _guarded(handler, keys))
        app.router.add_route("*", PREFIX + path, _guarded(_only("GET, HEAD"), keys))
    for path, handler in taken.items():
        app.router.add_post(PREFIX + path, _guarded(handler, None))
        app.router.add_route("*", PREFIX + path, _guarded(_only("POST"), None))

    async def start(_app: web.Application) -> None:
        dashboard.start()

    async def end_pages(_app: web.Application) -> None:
        dashboard.feed.close()

    async def stop(_app: web.Application) -> None:
        await dashboard.stop()

    app.on_startup.append(start)
    app.on_shutdown.append(end_pages)
    app.on_cleanup.append(stop)


def add_api(
    app: web.Application,
    do: Doing,
    live: Mapping[str, Handler],
    keys: Finds | None,
    is_audited: bool = True,
) -> None:
    """Adds the API to an application.

    Args:
        app: where to.
        do: does what is asked.
        live: what answers otherwise than in one piece of JSON, by its path; only those get it who are trusted.
        keys: which one of them a request is to bring; None = whoever reaches the application is the operator.
        is_audited: what changes something is told of in the audit log; False = who asks us does so.
    """
    trusted = keys is None
    served = [each for each in OPERATIONS if trusted or not each.local]
    for operation in served:
        handler = _handler(operation, do, is_audited)
        app.router.add_route(operation.method, PREFIX + operation.path, _guarded(handler, keys))

    @cache
    def document() -> bytes:
        return msgspec.json.encode(describe(served, PREFIX, with_keys=not trusted))

    async def openapi(_request: web.Request) -> web.Response:
        return _json(document())

    methods: dict[str, list[str]] = {f"{PREFIX}/openapi.json": ["GET"]}
    for each in served:
        methods.setdefault(PREFIX + each.path, []).append(each.method)

    async def unknown(request: web.Request) -> web.Response:
        allowed = ", ".join(methods.get(request.path, ()))
        if not allowed:
            return _failure(404, f"there is no {request.path}; see {PREFIX}/openapi.json")
        return _no_method(request, allowed)

    app.router.add_route("*", http_pub.PATH, _guarded(http_pub.handler(do), keys))
    if trusted:
        for path, follow in live.items():
            for method in ("GET", "POST"):
                app.router.add_route(method, PREFIX + path, _guarded(follow, None))
    app.router.add_get(f"{PREFIX}/openapi.json", openapi)
    for path in (PREFIX, PREFIX + "/{rest:.*}"):
        app.router.add_route("*", path, _guarded(unknown, keys))


def _guarded(handler: Handler, keys: Finds | None) -> Handler:
    """A handler that wants an API key (keys None: none), and whose errors are answers."""

    async def guarded(request: web.Request) -> web.StreamResponse:
        try:
            if keys is not None:
                key = keys.find(_key_of(request))
                if key is None or not _is_good_for(key, request.method):
                    return _refusal(request, key)
                key_at_work.set(key)
            _check_query(request)
            return await handler(request)
        except AdminError as error:
            return _failure(error.status, str(error))
        except web.RequestPayloadError:
            return _failure(400, "the body does not come as its head says")
        except web.HTTPRequestEntityTooLarge:
            most = f"at most {request.client_max_size} bytes; of a job: limits.max_job_size"
            return _failure(413, f"the body is too large ({most})")
        except web.HTTPException:
            raise
        except Exception as error:
            is_gone = request.transport is None or request.transport.is_closing()
            if is_gone and isinstance(error, ConnectionError):
                return web.Response()  # nobody hears it
            log.exception("cannot answer %s %s", request.method, request.path)
            return _failure(500, "an error of the broker's own; its log says more")

    return guarded


def _check_query(request: web.Request) -> None:
    """Refuses a query whose bytes are no text: the library would read U+FFFD instead, the name of something else."""
    try:
        unquote_to_bytes(request.rel_url.raw_query_string).decode()
    except UnicodeError:
        raise AdminError("the query is no UTF-8") from None


def _only(allowed: str) -> Handler:
    """What answers the other methods of a path."""

    async def refuse(request: web.Request) -> web.Response:
        return _no_method(request, allowed)

    return refuse


def _no_method(request: web.Request, allowed: str) -> web.Response:
    """The answer to a request whose path has other methods."""
    answer = _failure(405, f"there is no {request.method} {request.path}; accepted: {allowed}")
    answer.headers["Allow"] = allowed
    return answer


def _is_good_for(key: KeyRow, method: str) -> bool:
    return key.scope == "all" or method in ("GET", "HEAD")


def _refusal(request: web.Request, key: KeyRow | None) -> web.Response:
    """The answer to a request whose key is none, or not good for this."""
    by = "nobody" if key is None else name_of(key)
    tell_of_key(request.remote or "", request.path, by)
    if key is not None:
        return _failure(403, "this API key may look, and change nothing (its scope is read)")
    answer = _failure(401, "an API key is needed: x-api-key, or the basic-auth user")
    answer.headers["WWW-Authenticate"] = 'Basic realm="vmq", charset="UTF-8"'
    return answer


def _key_of(request: web.Request) -> str:
    """The key that a request brings: the header, or the user name of basic authentication."""
    key = request.headers.get("x-api-key", "")
    if key:
        return key
    scheme, _, value = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value.strip(), validate=True).decode().partition(":")[0]
    except (binascii.Error, ValueError):
        return ""


def _handler(operation: Operation, do: Doing, is_audited: bool) -> Handler:
    read = _body if operation.method == "POST" else _query

    async def perform(plain: dict[str, Any]) -> Result | msgspec.Raw:
        try:
            wanted = msgspec.convert(plain, operation.parameters, strict=operation.method == "POST")
        except msgspec.ValidationError as error:
            raise AdminError(_mistake(operation.parameters, plain, str(error))) from None
        result = do(operation, wanted)
        return await result if inspect.isawaitable(result) else result

    async def handle(request: web.Request) -> web.StreamResponse:
        plain = await read(request)
        if is_audited and operation.change and operation.method != "GET":
            with audited(request, operation.name, plain):
                result = await perform(plain)
        else:
            result = await perform(plain)
        if isinstance(result, Listing):
            return await _stream(request, result)
        return _json(msgspec.json.encode(result))

    return handle


def _mistake(parameters: type[msgspec.Struct], plain: Mapping[str, object], error: str) -> str:
    """What is wrong with parameters: the one, its value and what it accepts, where the error names one."""
    fields = {each.encode_name: each.type for each in msgspec.structs.fields(parameters)}
    found = _PLACE.search(error)
    name = found[1] if found else ""
    if name in fields and name in plain:
        value = shortened(toml_value(HIDDEN if is_secret(name) else plain[name]))
        with suppress(KeyError):  # a type that has no words
            return f"{name}: {value} is not accepted; accepted: {accepted(fields[name])}"
    return f"{error}; accepted parameters: {', '.join(fields) or 'none'}"


async def _query(request: web.Request) -> dict[str, Any]:
    for name in request.query:
        if len(request.query.getall(name)) > 1:
            raise AdminError(f"{name}: given more than once")
    return dict(request.query)


async def _body(request: web.Request) -> dict[str, Any]:
    """The JSON object of a POST.

    It must say that it is JSON: no page of another site can make a browser send that unasked.
    """
    if request.content_type != "application/json":
        raise AdminError("the body must be of Content-Type: application/json")
    if request.query:
        raise AdminError("POST takes its parameters from the body, not from the query")
    try:
        async with asyncio.timeout(request.app.get(BODY_TIMEOUT)):
            data = await request.read()
        plain: object = msgspec.json.decode(data)
    except TimeoutError:
        raise TooSlow("the body did not come within http_request_timeout") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise AdminError(f"the body is no JSON: {error}") from None
    except RecursionError:
        raise AdminError("the body is nested too deep") from None
    if not isinstance(plain, dict):
        raise AdminError("the body must be a JSON object")
    return plain


async def _stream(request: web.Request, listing: Listing[Any]) -> web.StreamResponse:
    """Sends rows as they are made, so that a long listing is never in memory as a whole."""
    response = web.StreamResponse(headers=_HEADERS)
    response.content_type = "application/json"
    await response.prepare(request)
    begin = b'{"rows":['
    async for rows in listing.slices():
        if rows:
            await response.write(begin + msgspec.json.encode(rows)[1:-1])
            begin = b","
    if begin != b",":
        await response.write(begin)
    missing = b',"missing":' + msgspec.json.encode(listing.missing) if listing.missing else b""
    await response.write(b'],"more":%s%s}' % (b"true" if listing.more else b"false", missing))
    await response.write_eof()
    return response


def _json(data: bytes) -> web.Response:
    return web.Response(body=data, content_type="application/json", headers=_HEADERS)


def _failure(status: int, text: str) -> web.Response:
    answer = _json(msgspec.json.encode(Failure(text)))
    answer.set_status(status)
    return answer

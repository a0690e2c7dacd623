"""What the page asks for beside the API's operations; all of it under /api/v1/live.

GET  /live            the figures of each second, as server-sent events
GET  /live/history    the last hour of them
GET  /live/topics     branches of the tree of topics
GET  /live/hooks      what plugins' hooks took and said
GET  /live/samples    metrics with their labels
GET  /live/trace      what one client does, line by line
POST /live/page       gives a token back for a key
POST /live/login      gives name and password of a user for a key
POST /live/token      makes a token; on the admin socket only
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta, Struct

from vmq.admin.errors import AdminError, RefusedError
from vmq.admin.keys import Scope
from vmq.http.auditing import key_at_work
from vmq.http.dashboard.dashboard import Dashboard
from vmq.http.dashboard.feed import OpenPage
from vmq.http.dashboard.links import links_of
from vmq.http.dashboard.reading import STEP
from vmq.http.dashboard.sampler import SERIES
from vmq.http.dashboard.tokens import TOKEN_SECONDS
from vmq.http.dashboard.topics import MOST_BRANCHES
from vmq.http.keys import BODY_TIMEOUT
from vmq.runtime.audit import tell_of_key
from vmq.version import __version__, is_compiled

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Seconds that a page may take nothing of what is sent to it.
PATIENCE: Final = 30.0
#: Ticks between two looks whether the key of a page is still good.
TICKS_A_LOOK: Final = 5
#: Samples of metrics that one answer may have.
MOST_SAMPLES: Final = 2000
#: Bytes of a request for a key.
_MOST_BODY: Final = 4000

S = TypeVar("S", bound=Struct)


class Hello(Struct, frozen=True):
    """What does not change while the broker runs."""

    version: str
    compiled: bool
    node: str
    #: When it was started, in seconds since 1970: for people. `run` is another one each time, whatever clocks say.
    started: float
    run: str
    scope: Scope
    series: tuple[str, ...]
    step: float


class _Topics(Struct, frozen=True, forbid_unknown_fields=True):
    """Which branches, as a JSON list of topics.

    The top is NUL, as in `TOP`: the empty text is the first level of the topics that begin with "/".
    """

    branches: Annotated[str, Meta(max_length=65_536)] = '["\\u0000"]'


class _Samples(Struct, frozen=True, forbid_unknown_fields=True):
    """Metrics whose names begin so."""

    prefix: Annotated[str, Meta(min_length=1, max_length=200)]


class _Token(Struct, frozen=True, forbid_unknown_fields=True):
    """A token that is given back."""

    token: Annotated[str, Meta(max_length=200)]


class _Login(Struct, frozen=True, forbid_unknown_fields=True):
    """A user, and what shows that it is."""

    user: Annotated[str, Meta(min_length=1, max_length=200)]
    password: Annotated[str, Meta(max_length=200)]


class _NewToken(Struct, frozen=True, forbid_unknown_fields=True):
    """What a page may do that is opened with it."""

    scope: Scope = "read"


class LiveRoutes:
    """Answers for one application.

    Args:
        dashboard: of the broker.
        find: whose key a request brought that is asked again later; None: nobody is asked for one.
    """

    def __init__(self, dashboard: Dashboard, key_of: Callable[[web.Request], str] | None) -> None:
        self._dashboard = dashboard
        self._source = dashboard.source
        self._key_of = key_of

    def guarded(self) -> dict[str, Handler]:
        """What wants a key, by path."""
        return {
            "/live": self.live,
            "/live/history": self.history,
            "/live/topics": self.topics,
            "/live/hooks": self.hooks,
            "/live/samples": self.samples,
        }

    # Figures

    async def live(self, request: web.Request) -> web.StreamResponse:
        """Server-sent events until the page goes, its key is good no more, or the broker stops."""
        if request.method == "HEAD":
            return _head_of("text/event-stream")
        page = self._dashboard.feed.join()
        response = web.StreamResponse(headers={"Cache-Control": "no-store"})
        response.content_type = "text/event-stream"
        try:
            await response.prepare(request)
            await response.write(_event("hello", self._hello()))
            await self._send(request, page, response)
        except (ConnectionError, TimeoutError):
            pass  # the page went
        finally:
            self._dashboard.feed.leave(page)
        return response

    async def _send(
        self, request: web.Request, page: OpenPage, response: web.StreamResponse
    ) -> None:
        number = 0
        while True:
            data = await page.take()
            number += 1
            if number % TICKS_A_LOOK == 0 and not self._is_still_good(request):
                return
            async with asyncio.timeout(PATIENCE):
                await response.write(data)
            if page.is_closed:
                return

    def _is_still_good(self, request: web.Request) -> bool:
        return self._key_of is None or self._dashboard.find(self._key_of(request)) is not None

    def _hello(self) -> Hello:
        key = key_at_work.get()
        return Hello(
            __version__,
            is_compiled(),
            self._source.node,
            self._source.started,
            self._dashboard.run,
            "all" if key is None else key.scope,
            SERIES,
            STEP,
        )

    async def history(self, _request: web.Request) -> web.StreamResponse:
        """The last hour, as `vmq.http.dashboard.history` encodes it."""
        data = self._dashboard.feed.history.encoded()
        return web.Response(body=data, content_type="application/octet-stream")

    async def topics(self, request: web.Request) -> web.StreamResponse:
        """Branches of the tree."""
        wanted = _query(request, _Topics)
        try:
            paths = msgspec.json.decode(wanted.branches, type=list[str])
        except msgspec.MsgspecError as error:
            raise AdminError(f"branches: {error}; accepted: a JSON list of topics") from None
        if len(paths) > MOST_BRANCHES:
            raise AdminError(f"branches: {len(paths)} are open; accepted: up to {MOST_BRANCHES}")
        found = await self._dashboard.topics.branches(paths)
        return json_of({"branches": found})

    async def hooks(self, _request: web.Request) -> web.StreamResponse:
        """Each hook of each plugin."""
        return json_of({"rows": await self._source.hooks()})

    async def samples(self, request: web.Request) -> web.StreamResponse:
        """Metrics with their labels."""
        rows = await self._source.samples(_query(request, _Samples).prefix)
        return json_of({"rows": rows[:MOST_SAMPLES], "more": len(rows) > MOST_SAMPLES})

    async def trace(self, request: web.Request) -> web.StreamResponse:
        """What one client does. It shows payloads, so a key that may only look is not enough."""
        key = key_at_work.get()
        if key is not None and key.scope != "all":
            raise _Forbidden("a trace shows what clients send: this key may look at figures only")
        if request.method == "HEAD":
            return _head_of("text/plain")
        return await self._source.trace(request)

    # Who may

    async def page(self, request: web.Request) -> web.StreamResponse:
        """A key for a page, for a token."""
        wanted = await _body(request, _Token)
        found = self._dashboard.page_keys.redeem(wanted.token)
        if found is None:
            tell_of_key(request.remote or "", request.path, "nobody")
            raise _Unknown("the link was used already, or is too old: vmq open makes another one")
        key, scope = found
        return json_of({"key": key, "scope": scope})

    async def login(self, request: web.Request) -> web.StreamResponse:
        """A key for the page of a user."""
        wanted = await _body(request, _Login)
        logins, address = self._dashboard.logins, request.remote or ""
        scope = await logins.enter(wanted.user, wanted.password, address, request.path)
        return json_of({"key": self._dashboard.page_keys.make(scope, wanted.user), "scope": scope})

    async def token(self, request: web.Request) -> web.StreamResponse:
        """A token, and the links that it opens."""
        wanted = await _body(request, _NewToken)
        urls = links_of(self._dashboard, wanted.scope)
        if not urls:
            raise RefusedError("no listener of http:// is open, so there is no page")
        return json_of({"urls": urls, "seconds": TOKEN_SECONDS, "scope": wanted.scope})


class _Unknown(AdminError):
    """Nobody knows who that is."""

    status = 401


class _Forbidden(AdminError):
    """That is not for everybody."""

    status = 403


def _event(kind: str, what: object) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(what))


def _head_of(kind: str) -> web.Response:
    """The head alone of what has no end: whoever asks for that gets no place among those who are sent the rest."""
    return web.Response(content_type=kind, headers={"Cache-Control": "no-store"})


def _query(request: web.Request, kind: type[S]) -> S:
    try:
        return msgspec.convert(dict(request.query), kind, strict=False)
    except msgspec.ValidationError as error:
        accepted = ", ".join(kind.__struct_fields__)
        raise AdminError(f"{error}; accepted parameters: {accepted}") from None


async def _body(request: web.Request, kind: type[S]) -> S:
    """The body, which must say that it is JSON: no page of another site can have a browser send that unasked."""
    if request.content_type != "application/json":
        raise AdminError("the body must be of Content-Type: application/json")
    try:
        data = b""
        async with asyncio.timeout(request.app.get(BODY_TIMEOUT)):
            async for chunk in request.content.iter_any():
                data += chunk
                if len(data) > _MOST_BODY:
                    raise AdminError(f"the body is too large; accepted: {_MOST_BODY} bytes")
        return msgspec.json.decode(data, type=kind)
    except (TimeoutError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AdminError(f"the body is not what is accepted: {error}") from None


def json_of(what: Any) -> web.Response:
    """An answer in JSON."""
    return web.Response(body=msgspec.json.encode(what), content_type="application/json")

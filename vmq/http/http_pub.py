"""Publishing in the shape of VerneMQ's plugin vmq_http_pub, for scripts that were written for it.

The message comes as JSON; or topic, QoS and the rest come as headers or in the query, and the body is the payload. With
`?encoding=base64` the payload in the JSON is base64. User properties belong to MQTT 5; they are read and dropped.
"""

import asyncio
import base64
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from vmq.admin.errors import AdminError, TooSlow
from vmq.http.keys import BODY_TIMEOUT
from vmq.http.publishing import CLIENT_ID, PUBLISH, MessageWanted

PATH: Final = "/restmqtt/api/v1/publish"

_NAMES: Final = ("topic", "user", "password", "client_id", "qos", "retain")


class _Body(msgspec.Struct):
    """VerneMQ's JSON. Other keys are dropped, as there."""

    topic: str
    payload: str = ""
    user: str | None = None
    password: str | None = None
    client_id: str = CLIENT_ID
    qos: int = 0
    retain: bool = False


def handler(
    do: Callable[[Any, Any], Any],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """The handler of the route; `do` does an operation of the API."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if request.method not in ("POST", "PUT"):
            raise web.HTTPMethodNotAllowed(request.method, ("POST", "PUT"))
        _refuse_pages(request)
        result = do(PUBLISH, await _wanted(request))
        if inspect.isawaitable(result):
            await result
        return web.Response(headers={"Cache-Control": "no-store"})

    return handle


def _refuse_pages(request: web.Request) -> None:
    """A browser sends the Origin of the page that makes it send this; programs have none."""
    if "Origin" in request.headers:
        raise AdminError("pages of the web may not publish here; POST /api/v1/publish is for them")


async def _wanted(request: web.Request) -> MessageWanted:
    """What a request wants published.

    Raises:
        AdminError: it is none of the three forms.
    """
    try:
        async with asyncio.timeout(request.app.get(BODY_TIMEOUT)):
            data = await request.read()
    except TimeoutError:
        raise TooSlow("the body did not come within http_request_timeout") from None
    in_query, in_headers = "topic" in request.query, "topic" in request.headers
    if in_query and in_headers:
        raise AdminError("topic: it stands in the headers and in the query; accepted: one of them")
    if in_query or in_headers:
        return _of_parts(request.query if in_query else request.headers, data)
    return _of_json(data, request.query.get("encoding", "plain"))


def _of_parts(parts: Mapping[str, str], data: bytes) -> MessageWanted:
    stated: dict[str, Any] = {name: parts[name] for name in _NAMES if name in parts}
    if "clientid" in parts:  # as VerneMQ's own example writes it
        stated.setdefault("client_id", parts["clientid"])
    body = _convert(stated, strict=False)
    return _made(body, base64.b64encode(data).decode(), "base64")


def _of_json(data: bytes, encoding: str) -> MessageWanted:
    if encoding not in ("plain", "base64"):
        raise AdminError(f"encoding: {encoding!r:.100}; accepted: plain, base64")
    try:
        plain = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        raise AdminError(
            "accepted: a JSON object with topic and payload, or topic as header or in the query"
        ) from None
    body = _convert(plain, strict=True)
    return _made(body, body.payload, "base64" if encoding == "base64" else "text")


def _convert(stated: Any, *, strict: bool) -> _Body:
    try:
        return msgspec.convert(stated, _Body, strict=strict)
    except msgspec.ValidationError as error:
        raise AdminError(str(error)) from None


def _made(body: _Body, payload: str, encoding: str) -> MessageWanted:
    stated = msgspec.structs.asdict(body) | {"payload": payload, "encoding": encoding}
    if not stated["user"]:
        stated["user"] = stated["password"] = None
    try:
        return msgspec.convert(stated, MessageWanted)
    except msgspec.ValidationError as error:
        raise AdminError(str(error)) from None

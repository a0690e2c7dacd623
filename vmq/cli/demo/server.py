"""The page of the demo, on loopback: what there is to see as server-sent events, and buttons that kill."""

import asyncio
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from vmq.http.app import only_this_host
from vmq.http.dashboard.files import KINDS, POLICY, page_files

FOLDER: Final = Path(__file__).parent / "page"
#: A page of another site cannot make a browser send this header: it would have to ask first, and nobody answers.
HEADER: Final = "X-Vmq-Demo"
STOP_TIMEOUT: Final = 0.5
#: The chat talks to the brokers, at ports of their own.
DEMO_POLICY: Final = POLICY.replace("connect-src 'self'", "connect-src 'self' ws://127.0.0.1:*")


class DemoServer:
    """Serves the page.

    Args:
        act: does what a button says; returns what came of it.
    """

    def __init__(self, act: Callable[[str], str]) -> None:
        self._act = act
        #: Who may press buttons: whoever has the page.
        self._word = secrets.token_urlsafe(16)
        self._latest = b""
        self._changed = asyncio.Condition()
        self._is_closing = False
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self) -> None:
        """Opens it on any free port."""
        app = web.Application(middlewares=[only_this_host])
        app.on_response_prepare.append(self._complete)
        app.add_routes(
            [
                web.get("/", self._page),
                web.get("/feed", self._feed),
                web.post("/do/{what}", self._do),
                web.get("/demo/{path}", self._file),
                web.get("/page/{path:.+}", self._shared),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_TIMEOUT)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/"

    async def stop(self) -> None:
        """Ends it."""
        async with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        if self._runner is not None:
            await self._runner.cleanup()

    async def show(self, state: Any) -> None:
        """Tells all pages; encoded once."""
        self._latest = b"data: %s\n\n" % msgspec.json.encode(state)
        async with self._changed:
            self._changed.notify_all()

    async def _complete(self, _request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Content-Security-Policy"] = DEMO_POLICY
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"

    async def _page(self, _request: web.Request) -> web.Response:
        text = (FOLDER / "demo.html").read_text().replace("{word}", self._word)
        return web.Response(text=text, content_type="text/html")

    async def _file(self, request: web.Request) -> web.Response:
        files = {path.name: path for path in FOLDER.iterdir() if path.suffix in (".js", ".css")}
        path = files.get(request.match_info["path"])
        if path is None:
            raise web.HTTPNotFound
        return web.Response(
            body=path.read_bytes(), content_type=KINDS[path.suffix], charset="utf-8"
        )

    async def _shared(self, request: web.Request) -> web.Response:
        """What the live page of a broker consists of."""
        file = page_files().get(request.match_info["path"])
        if file is None:
            raise web.HTTPNotFound
        return web.Response(body=file.body, content_type=file.kind, charset="utf-8")

    async def _feed(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        await response.prepare(request)
        try:
            while not self._is_closing:
                await response.write(self._latest)
                async with self._changed:
                    await self._changed.wait()
        except ConnectionError:
            pass  # the page went
        return response

    async def _do(self, request: web.Request) -> web.Response:
        if not secrets.compare_digest(
            request.headers.get(HEADER, "").encode(), self._word.encode()
        ):
            raise web.HTTPForbidden(text="the page of the demo has the buttons\n")
        return web.json_response({"said": self._act(request.match_info["what"])})

"""A real HTTP server whose answers a test sets."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Body = dict[str, Any]


class Hooks:
    """What the server was asked, and what it answers."""

    def __init__(self) -> None:
        #: By hook: a JSON value, or what makes a response. Others are answered with ok.
        self.answers: dict[str, Any] = {}
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str, Body]] = []
        self.requests: list[web.Request] = []
        #: The connections that they came by.
        self.peers: set[tuple[str, int]] = set()
        self.url = ""
        self._more = asyncio.Event()

    def count(self, hook: str) -> int:
        return sum(name == hook for name, _ in self.asked)

    async def wait_asked(self, hook: str, times: int = 1) -> Body:
        """The body of the last of so many requests."""
        async with asyncio.timeout(20):
            while self.count(hook) < times:
                self._more.clear()
                await self._more.wait()
        return [body for name, body in self.asked if name == hook][times - 1]

    async def handle(self, request: web.Request) -> web.StreamResponse:
        hook = request.headers["vernemq-hook"]
        self.requests.append(request)
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        self.asked.append((hook, await request.json()))
        self._more.set()
        answer = self.answers.get(hook, {"result": "ok"})
        if callable(answer):
            make: Callable[[web.Request], Awaitable[web.StreamResponse]] = answer
            return await make(request)
        return web.json_response(answer, headers=self.headers)


@asynccontextmanager
async def web_server(tls: ssl.SSLContext | None = None) -> AsyncIterator[Hooks]:
    hooks = Hooks()
    app = web.Application()
    app.router.add_post("/hook", hooks.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    port = runner.addresses[0][1]
    hooks.url = f"{'https' if tls else 'http'}://localhost:{port}/hook"
    try:
        yield hooks
    finally:
        await runner.cleanup()

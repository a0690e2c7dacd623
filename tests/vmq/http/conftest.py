"""A broker with an HTTP listener, and a look at what that answers; and the API alone, within the test's process."""

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import pytest
from aiohttp import web
from msgspec.structs import replace

from vmq.broker import Broker
from vmq.config.options import BrokerOptions, ClusterOptions, Config
from vmq.http.api import add_routes
from vmq.testing.process import BrokerProcess

LISTEN = ("tcp://127.0.0.1:0", "ws://127.0.0.1:0/mqtt", "http://127.0.0.1:0")


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def get(url: str, path: str, headers: Mapping[str, str] | None = None) -> Answer:
    """One request, straight to the address: no proxy of the environment is asked."""
    parts = urlsplit(url)
    with closing(HTTPConnection(parts.netloc, timeout=60)) as connection:
        connection.request("GET", path, headers=dict(headers or {}))
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())


@pytest.fixture(scope="module")
def web_broker() -> Iterator[BrokerProcess]:
    """A broker with TCP, WebSocket and HTTP, shared by a module's tests."""
    with BrokerProcess.start(listen=LISTEN) as process:
        yield process


class Site:
    """The API as a client sees it."""

    def __init__(self, broker: Broker, base: str, client: aiohttp.ClientSession) -> None:
        self.broker = broker
        self.base = base
        self.client = client

    @property
    def folder(self) -> Path:
        return Path(self.broker.config.broker.data_dir)


async def serve(broker: Broker, *, trusted: bool) -> AsyncIterator[Site]:
    app = web.Application()
    add_routes(app, broker, trusted=trusted)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with aiohttp.ClientSession() as client:
            yield Site(broker, f"http://127.0.0.1:{port}", client)
    finally:
        await runner.cleanup()


@pytest.fixture
async def site(config: Config) -> AsyncIterator[Site]:
    """As the HTTP listener serves it: with API keys."""
    async with Broker(config) as broker:
        async for each in serve(broker, trusted=False):
            yield each


@pytest.fixture
async def local(config: Config, tmp_path: Path) -> AsyncIterator[Site]:
    """As the admin socket serves it: without."""
    there = replace(
        config,
        broker=BrokerOptions(data_dir=str(tmp_path / "local")),
        # The tests' peers expect to be served in the call itself.
        cluster=ClusterOptions(listen="tcp://127.0.0.1:0", slots=8),
    )
    async with Broker(there) as broker:
        async for each in serve(broker, trusted=True):
            yield each


async def ask(site: Site, method: str, path: str, **more: Any) -> tuple[int, Any]:
    """Status and answer of a request to the API."""
    async with site.client.request(method, site.base + "/api/v1" + path, **more) as answer:
        assert answer.content_type == "application/json"
        assert answer.headers["Cache-Control"] == "no-store"
        return answer.status, await answer.json()

"""A listener of HTTP whose application comes later than its socket."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web

from tests.vmq.sockets import peer_of
from vmq.broker import Broker
from vmq.config.options import ListenerOptions
from vmq.core.context import Counters
from vmq.http.server import HttpListener
from vmq.startup import listening


async def test_mqtt_is_served_while_requests_wait_for_the_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads, loaded = asyncio.Event(), asyncio.Event()

    async def load() -> None:
        loads.set()
        await loaded.wait()

    monkeypatch.setattr(listening, "_load_http", load)
    broker = Broker(listen=["http://127.0.0.1:0", "tcp://127.0.0.1:0"], data_dir=tmp_path)
    async with asyncio.timeout(60), broker:
        async with peer_of(broker, 1) as client:
            assert (await client.connect("c")).return_code == 0
            assert not loads.is_set(), "nobody has asked"
        async with peer_of(broker, 0) as waiting, peer_of(broker, 1) as client:
            waiting.send(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            await loads.wait()
            assert (await client.connect("c")).return_code == 0
            assert not broker.health()
            loaded.set()
            assert (await waiting.reader.readline()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("how", ["closed", "broken"])
async def test_who_waits_for_an_application_that_never_comes_is_sent_away(
    how: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = asyncio.Event()

    async def make_app() -> web.Application:
        await asked.wait()
        raise ImportError("aiohttp")

    options = ListenerOptions(url="http://127.0.0.1:0")
    listener = HttpListener("web", options, make_app, Counters(), backlog=8)
    listener.serve()
    async with asyncio.timeout(60):
        host, port = listener.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        if how == "closed":
            listener.close()
        asked.set()
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        assert not listener.is_open
        await listener.finish()
    assert ("listener web is not served" in caplog.text) == (how == "broken")

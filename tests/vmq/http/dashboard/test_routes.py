"""What the page asks for, over HTTP; with a broker in the test's own process."""

import asyncio
import json
import struct
import time
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit

import aiohttp
import pytest
from msgspec.structs import replace

from tests.support.peer import Peer
from tests.vmq.http.conftest import Site
from vmq.broker import Broker
from vmq.config.options import Config, ListenerOptions
from vmq.http.dashboard import routes
from vmq.http.dashboard.dashboard import dashboard_of

LIVE = "/api/v1/live"


@pytest.fixture
async def page(config: Config) -> AsyncIterator[Site]:
    """A broker with its listener of HTTP, as a page sees it."""
    listeners = {**config.listeners, "http": ListenerOptions(url="http://127.0.0.1:0")}
    async with (
        Broker(replace(config, listeners=listeners)) as broker,
        aiohttp.ClientSession() as client,
    ):
        yield Site(broker, broker.listeners["http"].url, client)


def key_of(site: Site, scope: Any = "read") -> dict[str, str]:
    keys = dashboard_of(site.broker).page_keys
    found = keys.redeem(keys.token(scope))
    assert found is not None
    return {"x-api-key": found[0]}


async def ask(site: Site, method: str, path: str, **more: Any) -> tuple[int, Any]:
    async with site.client.request(method, site.base + path, **more) as answer:
        return answer.status, await answer.json()


async def events(answer: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, Any]]:
    kind = ""
    async for line in answer.content:
        name, _, data = line.decode().strip().partition(": ")
        if name == "event":
            kind = data
        elif name == "data":
            yield kind, json.loads(data)


async def test_a_token_is_given_back_for_a_key_once(page: Site) -> None:
    token = dashboard_of(page.broker).page_keys.token()
    status, answer = await ask(page, "POST", LIVE + "/page", json={"token": token})
    assert (status, answer["scope"]) == (200, "read")
    key = {"x-api-key": answer["key"]}
    assert (await ask(page, "GET", "/api/v1/sessions", headers=key))[0] == 200
    status, answer = await ask(page, "POST", LIVE + "/page", json={"token": token})
    assert status == 401
    assert "vmq open" in answer["error"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"token": 1}',
        b'{"x": "y"}',
        b"{" * 5000,
        b"\xff\xfe",
        b'{"token": "\xff"}',
        b'{"x": ' + b"[" * 3900,
    ],
)
@pytest.mark.parametrize("path", ["/page", "/login"])
async def test_what_is_no_token_is_refused(
    page: Site, path: str, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"Content-Type": "application/json"}
    status, answer = await ask(page, "POST", LIVE + path, data=body, headers=headers)
    assert (status, "the body" in answer["error"]) == (400, True)
    assert "Traceback" not in caplog.text


async def test_a_form_of_another_site_gives_no_token_back(page: Site) -> None:
    token = dashboard_of(page.broker).page_keys.token()
    body = json.dumps({"token": token})
    status, _ = await ask(
        page, "POST", LIVE + "/page", data=body, headers={"Content-Type": "text/plain"}
    )
    assert status == 400
    assert dashboard_of(page.broker).page_keys.redeem(token)


@pytest.mark.parametrize("path", ["", "/history", "/topics", "/hooks", "/samples", "/trace"])
async def test_without_a_key_nothing_is_told(page: Site, path: str) -> None:
    for headers in ({}, {"x-api-key": "vmqpage_x.y"}, {"x-api-key": "vmq_x"}):
        assert (await ask(page, "GET", LIVE + path, headers=headers))[0] == 401


async def test_tokens_are_made_on_the_admin_socket_only(page: Site) -> None:
    status, _ = await ask(page, "POST", LIVE + "/token", json={}, headers=key_of(page, "all"))
    assert status == 404


async def test_the_operator_makes_links(local: Site) -> None:
    status, answer = await ask(local, "POST", LIVE + "/token", json={"scope": "all"})
    assert (status, answer["error"]) == (409, "no listener of http:// is open, so there is no page")


async def test_a_page_that_may_look_changes_nothing(page: Site) -> None:
    peer = Peer(page.broker.registry(), "me")
    asked = {"client_id": "me"}
    status, _ = await ask(page, "DELETE", "/api/v1/session", params=asked, headers=key_of(page))
    assert (status, peer.is_open) == (403, True)
    status, _ = await ask(page, "GET", LIVE + "/trace", params=asked, headers=key_of(page))
    assert status == 403, "a trace shows what clients send"
    status, _ = await ask(
        page, "DELETE", "/api/v1/session", params=asked, headers=key_of(page, "all")
    )
    assert (status, peer.is_open) == (200, False)


async def test_the_head_of_what_has_no_end_is_all_of_it(page: Site) -> None:
    """HEAD has no body, and takes none of the places for pages."""
    for path, key in ((LIVE, "read"), (LIVE + "/trace?client_id=me", "all")):
        async with asyncio.timeout(30):
            async with page.client.head(page.base + path, headers=key_of(page, key)) as answer:
                assert answer.status == 200
                assert await answer.read() == b""
    assert dashboard_of(page.broker).feed.pages == {}
    async with page.client.head(page.base + LIVE) as answer:
        assert answer.status == 401


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("OPTIONS", "", "GET, HEAD"),
        ("POST", "", "GET, HEAD"),
        ("DELETE", "/history", "GET, HEAD"),
        ("PUT", "/trace", "GET, HEAD"),
        ("GET", "/page", "POST"),
        ("GET", "/login", "POST"),
    ],
)
async def test_another_method_is_told_which_there_is(
    page: Site, method: str, path: str, allowed: str
) -> None:
    key = key_of(page, "all")
    async with page.client.request(method, page.base + LIVE + path, headers=key) as answer:
        assert (answer.status, answer.headers["Allow"]) == (405, allowed)
        assert allowed in (await answer.json())["error"]


async def test_figures_come_as_events(page: Site) -> None:
    async with page.client.get(page.base + LIVE, headers=key_of(page)) as answer:
        assert answer.content_type == "text/event-stream"
        kinds = []
        async for kind, data in events(answer):
            kinds.append(kind)
            if kind == "hello":
                assert data["scope"] == "read"
                assert abs(time.time() - data["started"]) < 600
                assert len(data["series"]) == len(dashboard_of(page.broker).feed.history.names)
            if kind == "worst":
                break
        assert kinds[0] == "hello"
        assert "tick" in kinds
    await page.broker.stop()


async def test_a_page_is_told_when_the_broker_stops(page: Site) -> None:
    async with page.client.get(page.base + LIVE, headers=key_of(page)) as answer:
        reading = events(answer)
        await anext(reading)
        stopping = asyncio.create_task(page.broker.stop())
        async for _ in reading:
            pass
        await stopping


@patch.object(routes, "TICKS_A_LOOK", 1)
async def test_a_key_that_was_deleted_is_told_nothing_more(page: Site) -> None:
    keys = dashboard_of(page.broker).api_keys
    made = keys.create()
    async with page.client.get(page.base + LIVE, headers={"x-api-key": made.key}) as answer:
        reading = events(answer)
        await anext(reading)
        keys.delete(made.id)
        async for _ in reading:
            pass


async def test_the_last_hour_is_there(page: Site) -> None:
    history = dashboard_of(page.broker).feed.history
    async with page.client.get(page.base + LIVE + "/history", headers=key_of(page)) as answer:
        data = await answer.read()
    (size,) = struct.unpack_from("<I", data)
    head = json.loads(data[4 : 4 + size])
    assert head["names"] == list(history.names)
    assert head["rows"] >= 1


async def test_topics_are_a_tree(page: Site) -> None:
    Peer(page.broker.registry(), "me").publish("a/<img>")
    asked = {"branches": json.dumps(["\0", "a"])}
    status, answer = await ask(page, "GET", LIVE + "/topics", params=asked, headers=key_of(page))
    assert status == 200
    top, below = answer["branches"]
    assert (top["path"], [row["name"] for row in top["rows"]]) == ("\0", ["a"])
    assert (below["path"], [row["name"] for row in below["rows"]]) == ("a", ["<img>"])
    for wrong in ("", "x", "[1]", "{}", json.dumps([str(each) for each in range(101)])):
        params = {"branches": wrong}
        status, _ = await ask(page, "GET", LIVE + "/topics", params=params, headers=key_of(page))
        assert status == 400, wrong


async def test_samples_have_their_labels(page: Site) -> None:
    asked = {"prefix": "mqtt_connack_sent"}
    status, answer = await ask(page, "GET", LIVE + "/samples", params=asked, headers=key_of(page))
    assert status == 200
    assert {row["labels"]["return_code"] for row in answer["rows"]} >= {"success", "not_authorized"}
    assert (await ask(page, "GET", LIVE + "/samples", headers=key_of(page)))[0] == 400


async def test_a_trace_is_for_those_who_may_all(page: Site) -> None:
    asked = {"client_id": "me"}
    headers = key_of(page, "all")
    async with page.client.get(
        page.base + LIVE + "/trace", params=asked, headers=headers
    ) as answer:
        assert await answer.content.readline() == b"\n"
        Peer(page.broker.registry(), "me").publish("a/b")
        while b"a/b" not in (await answer.content.readline()):
            pass


async def test_pages_walk_over_all_sessions_in_turn(
    page: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        turns += 1

    monkeypatch.setattr(dashboard_of(page.broker), "walk_turn", turn)
    await ask(page, "GET", "/api/v1/sessions", headers=key_of(page))
    key = dashboard_of(page.broker).api_keys.create()
    await ask(page, "GET", "/api/v1/sessions", headers={"x-api-key": key.key})
    assert turns == 1


async def test_the_limit_of_connections_follows_a_reload(page: Site) -> None:
    config = page.broker.config
    http = replace(config.listeners["http"], max_connections=1)
    page.broker.reload(replace(config, listeners={**config.listeners, "http": http}))
    where = urlsplit(page.base)
    _, first = await asyncio.open_connection(where.hostname, where.port)
    reader, second = await asyncio.open_connection(where.hostname, where.port)
    assert await reader.read(12) == b"HTTP/1.1 503"
    for each in (first, second):
        each.close()

"""Users of plugins who open the page: those that the listener names, with what it says."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from tests.vmq.http.conftest import Site
from tests.vmq.http.dashboard.test_routes import LIVE, ask
from vmq.broker import Broker
from vmq.http.dashboard import logins
from vmq.http.dashboard.dashboard import dashboard_of

LISTENERS = {
    "tcp": {"url": "tcp://127.0.0.1:0"},
    "http": {"url": "http://127.0.0.1:0", "page_users": {"anna": "read", "root": "all"}},
}
USERS = {"anna": "a", "root": "r", "lamp": "l"}


@pytest.fixture
async def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(logins, "PAUSE", 0)
    broker = Broker(data_dir=str(tmp_path), users=USERS, listeners=LISTENERS)
    async with broker, aiohttp.ClientSession() as client:
        yield Site(broker, broker.listeners["http"].url, client)


async def login(site: Site, user: str, password: str) -> tuple[int, Any]:
    wanted = {"user": user, "password": password}
    return await ask(site, "POST", LIVE + "/login", json=wanted)


async def test_a_user_may_what_the_listener_says(page: Site) -> None:
    for user, scope, change in (("anna", "read", 403), ("root", "all", 404)):
        status, answer = await login(page, user, USERS[user])
        assert (status, answer["scope"]) == (200, scope)
        key = {"x-api-key": answer["key"]}
        assert (await ask(page, "GET", "/api/v1/sessions", headers=key))[0] == 200
        path = "/api/v1/session?client_id=nobody"
        assert (await ask(page, "DELETE", path, headers=key))[0] == change


@pytest.mark.parametrize(("user", "password"), [("anna", "b"), ("lamp", "l"), ("nobody", "")])
async def test_nobody_else_comes_in_and_all_are_answered_alike(
    page: Site, user: str, password: str, caplog: pytest.LogCaptureFixture
) -> None:
    status, answer = await login(page, user, password)
    assert (status, answer["error"]) == (401, "this user with this password may not open the page")
    assert f'by="user {user}"' in caplog.text


async def test_who_is_named_no_more_is_out(page: Site) -> None:
    _, answer = await login(page, "anna", "a")
    key = {"x-api-key": answer["key"]}
    config = page.broker.config
    listener = replace(config.listeners["http"], page_users={"root": "all"})
    page.broker.reload(replace(config, listeners={**config.listeners, "http": listener}))
    assert (await ask(page, "GET", "/api/v1/sessions", headers=key))[0] == 401


async def test_who_is_banned_stays_out(page: Site) -> None:
    await login(page, "root", "r")
    page.broker.banning.bans.add("user", "anna")
    assert (await login(page, "anna", "a"))[0] == 401


async def test_few_may_knock_at_a_time(page: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "MOST_WAITING", 0)
    status, answer = await login(page, "anna", "a")
    assert (status, answer["error"]) == (503, "too many want to come in; try again in a moment")
    assert not dashboard_of(page.broker).logins._waiting


async def test_without_a_plugin_there_are_no_users(tmp_path: Path) -> None:
    broker = Broker(data_dir=str(tmp_path), listeners=LISTENERS)
    async with broker, aiohttp.ClientSession() as client:
        site = Site(broker, broker.listeners["http"].url, client)
        status, answer = await login(site, "anna", "a")
    assert status == 409
    assert "no plugin decides about users" in answer["error"]

"""The plugin when an endpoint fails: no verdict is made up, and the others go on."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from vmq_hooks import Accept, Refuse
from vmq_hooks.testing import FakeBroker
from vmq_webhooks import WebhooksPlugin
from vmq_webhooks.answers import EndpointError
from vmq_webhooks.endpoint import Endpoint, Turns

from tests.plugins.vmq_webhooks.calls import (
    ALICE,
    ALL,
    TIMEOUT,
    config,
    publish,
    register,
    started,
    subscribe,
)
from tests.plugins.vmq_webhooks.server import Hooks, web_server


async def rubbish(_request: web.Request) -> web.Response:
    return web.Response(text="<html>", content_type="text/html")


async def not_found(_request: web.Request) -> web.Response:
    return web.json_response({"result": "ok"}, status=404)


async def elsewhere(_request: web.Request) -> web.Response:
    raise web.HTTPFound("http://localhost:1/")


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b" " * 65536)


async def hangs(_request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError


async def cuts(request: web.Request) -> web.Response:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


BAD: list[tuple[Any, str]] = [
    (rubbish, "accepted: "),
    (not_found, "status 404"),
    (elsewhere, "status 302"),
    (endless, "an answer of more than"),
    (hangs, "no answer within|no verdict in time"),
    (cuts, "disconnected"),
    ({}, "result"),
    ([], "Expected `object`"),
    ({"result": "yes"}, "result"),
    ({"result": {"error": 5}}, "error"),
    ({"result": "ok", "modifiers": {"usrname": "x"}}, "usrname"),
    ({"result": "ok", "modifiers": {"qos": 7}}, "qos"),
    ({"result": "ok", "modifiers": {"payload": "%"}}, "base64"),
    ({"result": "ok", "topics": [{"topic": "a", "qos": 1}]}, "topics|1 subscriptions for 2"),
    ({"result": "ok", "topics": [{"topic": "#a", "qos": 1}] * 2}, "topics|no topic filter"),
    ({"result": "ok", "topics": ["a", "b"]}, "topics"),
]


@pytest.mark.parametrize(("answer", "problem"), BAD)
async def test_an_endpoint_that_fails_refuses(
    tmp_path: Path, server: Hooks, heard: asyncio.Queue[str], answer: Any, problem: str
) -> None:
    for hook in ALL:
        server.answers[hook] = answer
    section = config({"url": server.url}, timeout=1 if answer is hangs else 10)
    async with FakeBroker(tmp_path) as broker:
        plugin = WebhooksPlugin()
        await plugin.start(broker, section)
        calls = [publish(plugin)] if "payload" in str(answer) or "qos" in str(answer) else []
        calls += [subscribe(plugin)] if "topics" in str(answer) else []
        for verdict in await asyncio.gather(*(calls or [register(plugin)])):
            assert isinstance(verdict, Refuse), verdict
            assert verdict.unavailable, "who was not judged comes again"
            assert verdict.reason == "endpoint e0 failed"
        line = await asyncio.wait_for(heard.get(), TIMEOUT)
        assert any(each in line for each in problem.split("|")), line
        assert broker.counters['webhook_errors{endpoint="e0"}'].value >= 1
        await plugin.stop()


async def test_a_connection_of_the_pool_that_the_server_has_closed_costs_no_verdict(
    tmp_path: Path, server: Hooks
) -> None:
    async def once(request: web.Request) -> web.Response:
        del server.answers["auth_on_register"]
        return await cuts(request)

    async with started(tmp_path, config({"url": server.url})) as plugin:
        assert await register(plugin) == Accept()
        server.answers["auth_on_register"] = once
        assert await register(plugin) == Accept()
        assert server.count("auth_on_register") == 3


async def test_a_fleet_that_is_back_at_once_waits_and_is_no_failure_of_the_server(
    tmp_path: Path, server: Hooks
) -> None:
    async def answer(_request: web.Request) -> web.Response:
        await asyncio.sleep(0.05)
        return web.json_response({"result": "ok"})

    server.answers["auth_on_register"] = answer
    # All together take more than the time that one has.
    section = config({"url": server.url}, pool_max_connections=2, timeout=1.5)
    async with started(tmp_path, section) as plugin:
        fleet = [asyncio.ensure_future(register(plugin)) for _ in range(100)]
        assert await asyncio.gather(*fleet) == [Accept()] * 100


async def test_nobody_there_refuses_and_informs_nobody(tmp_path: Path) -> None:
    async with web_server() as gone:
        url = gone.url
    async with started(tmp_path, config({"url": url})) as plugin:
        assert isinstance(await register(plugin), Refuse)
        assert await plugin.on_unsubscribe("alice", ALICE, ["a"]) is None
        await plugin.on_client_gone(ALICE)


async def test_an_endpoint_that_fails_is_left_alone_and_the_others_go_on(
    tmp_path: Path, heard: asyncio.Queue[str]
) -> None:
    async with web_server() as sick, web_server() as well, FakeBroker(tmp_path) as broker:
        sick.answers = {hook: {"result": "rubbish"} for hook in ALL}
        section = config(
            {"url": sick.url, "hooks": ["auth_on_register"], "breaker_failures": 2},
            {"url": well.url, "hooks": ["auth_on_publish", "on_client_gone"]},
        )
        plugin = WebhooksPlugin()
        await plugin.start(broker, section)
        for _ in range(5):
            verdict = await register(plugin)
            assert isinstance(verdict, Refuse)
            assert verdict.unavailable
            assert await publish(plugin) == Accept()
            await plugin.on_client_gone(ALICE)
        assert (sick.count("auth_on_register"), well.count("auth_on_publish")) == (2, 5)
        values = {name: each.value for name, each in broker.counters.items()}
        assert values['webhook_errors{endpoint="e0"}'] == 2
        assert values['webhook_skipped{endpoint="e0"}'] == 3
        assert values['webhook_requests{endpoint="e1"}'] == 10
        assert values['webhook_skipped{endpoint="e1"}'] == 0
        assert {
            labels["endpoint"]: value for labels, value in broker.gauges["webhook_breaker_open"]()
        } == {"e0": 1, "e1": 0}
        lines = [await asyncio.wait_for(heard.get(), TIMEOUT) for _ in range(2)]
        assert "endpoint e0 is asked once in 30 s until it answers: failures=2" in lines[1]
        await plugin.stop()


async def test_an_outage_is_told_of_more_and_more_rarely_and_when_it_is_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    async with FakeBroker(tmp_path) as broker, aiohttp.ClientSession() as session:
        [section] = config({"url": "http://a/"}).endpoints.values()
        endpoint = Endpoint(broker, "e", section, None, session, 1.0, lambda: now)

        def fail(seconds: int) -> list[str]:
            nonlocal now
            caplog.clear()
            for _ in range(seconds):
                endpoint.failed("on_publish", EndpointError("away"))
                now += 1
            return caplog.messages

        failed = "endpoint e failed hook=on_publish: away more="
        off = "endpoint e is asked once in 30 s until it answers: failures=5"
        assert fail(130) == [f"{failed}0", off, f"{failed}9", f"{failed}19", f"{failed}39"]
        assert [each[: len(failed)] for each in fail(10_000)] == [failed] * 18
        caplog.clear()
        for _ in range(2):
            endpoint.succeeded()
        assert caplog.messages == ["endpoint e answers again failures=10130"]
        assert fail(10) == [off]


async def test_who_took_the_time_is_to_blame_when_it_runs_out(tmp_path: Path) -> None:
    now = 0.0
    async with FakeBroker(tmp_path) as broker, aiohttp.ClientSession() as session:
        section = config({"url": "http://a/"}, {"url": "http://b/"})
        slow, last = [
            Endpoint(broker, name, each, None, session, 1.0)
            for name, each in section.endpoints.items()
        ]
        turns = Turns(lambda: now)
        for endpoint in turns.over([slow, last]):
            now += 0.9 if endpoint is slow else 0.1
        assert turns.blame(TimeoutError()) is slow
        assert turns.blame(EndpointError("no answer")) is last

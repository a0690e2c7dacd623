"""The plugin against a real web server: what it sends, what it makes of answers, what it does without."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from vmq_hooks import (
    REFUSED_QOS,
    Accept,
    Cache,
    Message,
    Next,
    Peer,
    PublishModifiers,
    Refuse,
    RegisterModifiers,
    SubscriberId,
    Subscription,
)
from vmq_hooks.specs import CHAINS
from vmq_hooks.testing import FakeBroker
from vmq_webhooks import WebhooksConfig, WebhooksPlugin
from vmq_webhooks.answers import EndpointError
from vmq_webhooks.config import Hook
from vmq_webhooks.endpoint import Endpoint, Turns

from tests.listeners.conftest import authority
from tests.plugins.vmq_webhooks.server import Hooks, web_server
from vmq.testing.authority import Authority

__all__ = ["authority"]

TIMEOUT = 20.0
PEER = Peer("192.0.2.1", 4711, "tcp")
ALICE = SubscriberId("lamp", "home")
ALL = list(Hook.__args__)  # type: ignore[attr-defined]


def config(*endpoints: dict[str, Any], **more: Any) -> WebhooksConfig:
    named = {f"e{number}": {"hooks": ALL, **each} for number, each in enumerate(endpoints)}
    return msgspec.convert({"endpoints": named, **more}, WebhooksConfig)


@asynccontextmanager
async def started(folder: Path, section: WebhooksConfig) -> AsyncIterator[WebhooksPlugin]:
    async with FakeBroker(folder) as broker:
        plugin = WebhooksPlugin()
        await plugin.start(broker, section)
        try:
            yield plugin
        finally:
            await plugin.stop()


@pytest.fixture
async def server() -> AsyncIterator[Hooks]:
    async with web_server() as hooks:
        yield hooks


async def register(plugin: WebhooksPlugin, password: bytes | None = b"pw") -> Any:
    return await plugin.auth_on_register(PEER, ALICE, "alice", password, True)


async def publish(plugin: WebhooksPlugin, payload: bytes = b"\xff1") -> Any:
    return await plugin.auth_on_publish("alice", ALICE, Message("a/b", payload, 1, True))


async def subscribe(plugin: WebhooksPlugin) -> Any:
    wanted = [Subscription("a/#", 1), Subscription("b", 2)]
    return await plugin.auth_on_subscribe("alice", ALICE, wanted)


async def test_each_hook_is_sent_in_vernemqs_names(tmp_path: Path, server: Hooks) -> None:
    who = {"client_id": "lamp", "mountpoint": "home"}
    alice = {**who, "username": "alice"}
    at = {"peer_addr": "192.0.2.1", "peer_port": 4711}
    sent = {"topic": "a/b", "qos": 1, "retain": True, "payload": "/zE="}
    topics = {"topics": [{"topic": "a/#", "qos": 1}, {"topic": "b", "qos": 2}]}
    message = Message("a/b", b"\xff1", 1, True)
    wanted = [Subscription("a/#", 1), Subscription("b", 2)]
    async with started(tmp_path, config({"url": server.url})) as plugin:
        await register(plugin)
        await publish(plugin)
        await subscribe(plugin)
        await plugin.on_register(PEER, ALICE, "alice")
        await plugin.on_publish("alice", ALICE, message)
        await plugin.on_subscribe("alice", ALICE, wanted)
        await plugin.on_unsubscribe("alice", ALICE, ["a"])
        await plugin.on_topic_unsubscribed(ALICE, ["a"])
        await plugin.on_offline_message(ALICE, message)
        await plugin.on_message_drop(ALICE, lambda: message, "queue_full")
        for name in (
            "on_client_wakeup",
            "on_client_offline",
            "on_client_gone",
            "on_session_expired",
        ):
            await getattr(plugin, name)(ALICE)
        await plugin.on_config_change({"queue.drop": "oldest"})
    assert dict(server.asked) == {
        "auth_on_register": {**alice, **at, "password": "pw", "clean_session": True},
        "auth_on_publish": {**alice, **sent},
        "auth_on_subscribe": {**alice, **topics},
        "on_register": {**alice, **at},
        "on_publish": {**alice, **sent},
        "on_subscribe": {**alice, **topics},
        "on_unsubscribe": {**alice, "topics": ["a"]},
        "on_topic_unsubscribed": {**who, "topics": ["a"]},
        "on_offline_message": {**who, **sent},
        "on_message_drop": {**who, **sent, "reason": "queue_full"},
        "on_client_wakeup": who,
        "on_client_offline": who,
        "on_client_gone": who,
        "on_session_expired": who,
        "on_config_change": {"changed": {"queue.drop": "oldest"}},
    }
    assert {each.content_type for each in server.requests} == {"application/json"}
    # Every hook of VerneMQ's webhooks can be asked for, but the one that cannot wait.
    own = {"on_acked", "auth_on_unsubscribe", "discover_nodes", "expression_functions"}
    assert set(ALL) == set(CHAINS) - {"on_deliver", *own}


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ({"result": "ok"}, Accept()),
        ({"result": "next"}, Next()),
        ({"result": "ok", "modifiers": {}}, Accept()),
        (
            {"result": "ok", "modifiers": {"username": "bob", "max_message_size": 10}},
            Accept(RegisterModifiers(username="bob", max_message_size=10)),
        ),
        (
            {"result": "ok", "modifiers": {"subscriber_id": {"client_id": "c", "mountpoint": ""}}},
            Accept(RegisterModifiers(subscriber_id=SubscriberId("c"))),
        ),
    ],
)
async def test_answers_to_auth_on_register(
    tmp_path: Path, server: Hooks, answer: Any, verdict: Any
) -> None:
    server.answers["auth_on_register"] = answer
    async with started(tmp_path, config({"url": server.url})) as plugin:
        assert await register(plugin) == verdict


async def test_refusals_have_the_servers_reason(tmp_path: Path, server: Hooks) -> None:
    async with started(tmp_path, config({"url": server.url})) as plugin:
        for reason, bad, unavailable in (
            ("not_allowed", False, False),
            ("invalid_credentials", True, False),
            ("unavailable", False, True),
        ):
            server.answers["auth_on_register"] = {"result": {"error": reason}}
            verdict = await register(plugin)
            assert isinstance(verdict, Refuse)
            assert verdict.reason == reason
            assert (verdict.bad_credentials, verdict.unavailable) == (bad, unavailable)
        server.asked.clear()
        verdict = await register(plugin, b"\xff")
        assert isinstance(verdict, Refuse)
        assert server.asked == []
        assert await plugin.auth_on_register(PEER, ALICE, None, None, True) is not None
        assert server.asked[0][1]["password"] is None


async def test_answers_to_publishes_and_subscriptions(tmp_path: Path, server: Hooks) -> None:
    server.answers["auth_on_publish"] = {
        "result": "ok",
        "modifiers": {"topic": "c", "payload": "/zI=", "qos": 0, "retain": False, "throttle": 5},
    }
    server.answers["auth_on_subscribe"] = {
        "result": "ok",
        "topics": [{"topic": "x", "qos": 0}, {"topic": "b", "qos": 128}],
    }
    server.answers["on_unsubscribe"] = {"result": "ok", "topics": ["x"]}
    async with started(tmp_path, config({"url": server.url})) as plugin:
        assert await publish(plugin) == Accept(
            PublishModifiers(topic="c", payload=b"\xff2", qos=0, retain=False, throttle=5)
        )
        assert await subscribe(plugin) == Accept(
            subscriptions=[Subscription("x", 0), Subscription("b", REFUSED_QOS)]
        )
        assert await plugin.on_unsubscribe("alice", ALICE, ["a"]) == ["x"]
        server.answers["on_unsubscribe"] = {"result": "next"}
        assert await plugin.on_unsubscribe("alice", ALICE, ["a"]) is None


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


async def test_endpoints_are_asked_in_order_until_one_decides(tmp_path: Path) -> None:
    async with web_server() as first, web_server() as second, web_server() as third:
        section = config({"url": first.url}, {"url": second.url}, {"url": third.url})
        async with started(tmp_path, section) as plugin:
            first.answers["auth_on_register"] = {"result": "next"}
            second.answers["auth_on_register"] = {"result": {"error": "no"}}
            verdict = await register(plugin)
            assert isinstance(verdict, Refuse)
            assert [len(each.asked) for each in (first, second, third)] == [1, 1, 0]
            second.answers["auth_on_register"] = third.answers["auth_on_register"] = {
                "result": "next"
            }
            assert await register(plugin) == Next()
            await plugin.on_client_gone(ALICE)
            assert [each.count("on_client_gone") for each in (first, second, third)] == [1, 1, 1]


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("max-age=60", 60),
        ("private, Max-Age=60", 60),
        ('max-age="60"', 60),
        ("max-age=99999999999999999999", 31_536_000),
        ("max-age=0", None),
        ("max-age=-1", None),
        ("max-age=x", None),
        ("no-store, max-age=60", None),
        ("no-cache, max-age=60", None),
        ("", None),
    ],
)
async def test_verdicts_hold_as_long_as_the_server_says(
    tmp_path: Path, server: Hooks, header: str, seconds: float | None
) -> None:
    server.headers["cache-control"] = header
    async with started(tmp_path, config({"url": server.url})) as plugin:
        verdict, others = await register(plugin), await subscribe(plugin)
        assert (verdict.cache and verdict.cache.seconds) == seconds
        assert (others.cache and others.cache.seconds) == seconds
        if seconds:
            assert verdict.cache.by == {"peer", "username", "client_id", "password"}


async def test_a_verdict_on_a_payload_is_never_kept(tmp_path: Path, server: Hooks) -> None:
    server.headers["cache-control"] = "max-age=60"
    async with started(tmp_path, config({"url": server.url})) as plugin:
        assert (await publish(plugin)).cache is None
    async with started(tmp_path, config({"url": server.url, "no_payload": True})) as plugin:
        verdict = await publish(plugin)
        assert verdict.cache == Cache(
            60, frozenset({"username", "client_id", "topic", "qos", "retain"})
        )
        assert "payload" not in server.asked[-1][1]
        server.answers["auth_on_publish"] = {"result": {"error": "no"}}
        assert (await publish(plugin)).cache == verdict.cache


async def test_a_verdict_holds_no_longer_than_those_before_it(tmp_path: Path) -> None:
    async with web_server() as first, web_server() as second:
        first.answers["auth_on_register"] = {"result": "next"}
        section = config({"url": first.url}, {"url": second.url})
        async with started(tmp_path, section) as plugin:
            for one, two, wanted in (("5", "9", 5), ("9", "5", 5), ("0", "9", None)):
                first.headers["cache-control"] = f"max-age={one}"
                second.headers["cache-control"] = f"max-age={two}"
                cache = (await register(plugin)).cache
                assert (cache and cache.seconds) == wanted


async def test_tls(tmp_path: Path, authority: Authority) -> None:
    ours = authority.issue("us")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue("server", ["localhost"]).load_into(context)
    context.load_verify_locations(authority.cafile)
    context.verify_mode = ssl.CERT_REQUIRED
    stranger = Authority(tmp_path / "other")
    async with web_server(context) as server:
        files = {"cafile": "ca/ca.pem", "certfile": "ca/us.pem", "keyfile": "ca/us.key"}
        assert ours.certfile == tmp_path / "ca/us.pem"
        for changes, good in (
            ({}, True),
            ({"cafile": str(stranger.cafile)}, False),
            ({"certfile": None, "keyfile": None}, False),
            ({"url": server.url.replace("localhost", "127.0.0.1")}, False),
        ):
            section = config({"url": server.url, **files, **changes})
            async with started(tmp_path, section) as plugin:
                assert isinstance(await register(plugin), Accept if good else Refuse), changes


async def test_certificates_are_read_anew_when_the_configuration_is(
    tmp_path: Path, authority: Authority
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue("server", ["localhost"]).load_into(context)
    cafile = tmp_path / "trusted.pem"
    cafile.write_bytes(Authority(tmp_path / "other").cafile.read_bytes())
    async with web_server(context) as server, FakeBroker(tmp_path) as broker:
        plugin = WebhooksPlugin()
        await plugin.start(broker, config({"url": server.url, "cafile": "trusted.pem"}))
        try:
            assert isinstance(await register(plugin), Refuse)
            cafile.write_bytes(authority.cafile.read_bytes())
            await broker.reload()
            assert isinstance(await register(plugin), Accept)
            cafile.write_text("no certificate")
            await broker.reload()
            assert isinstance(await register(plugin), Accept)
        finally:
            await plugin.stop()


async def test_no_more_connections_than_the_pool_has(tmp_path: Path, server: Hooks) -> None:
    together: list[int] = []
    release = asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        together.append(1)
        if len(together) == 2:
            release.set()
        await release.wait()
        return web.json_response({"result": "ok"})

    server.answers["auth_on_register"] = slow
    section = config({"url": server.url}, pool_max_connections=2)
    async with started(tmp_path, section) as plugin:
        assert await asyncio.gather(*[register(plugin) for _ in range(10)]) == [Accept()] * 10
    assert len(server.peers) == 2


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ({"url": "ftp://x"}, "accepted: http"),
        ({"url": "http://x:0/"}, "accepted: http"),
        ({"url": "http://x", "hooks": []}, "length >= 1"),
        ({"url": "http://x", "hooks": ["on_deliver"]}, "on_deliver"),
        (
            {"url": "http://x", "cafile": "a"},
            "cafile: it would have no effect; accepted: with a url of https://",
        ),
        ({"url": "https://x", "keyfile": "a"}, "keyfile without a certfile"),
        ({"url": "http://x", "headers": {"a": "b\r\nc: d"}}, "control characters"),
        ({"url": "http://x", "headers": {"a b": "c"}}, "'a b' is no name of a header"),
        ({"url": "http://x", "no_payloads": True}, "unknown field"),
    ],
)
def test_a_mistake_in_the_configuration_is_named(endpoint: dict[str, Any], problem: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=problem):
        config(endpoint)


async def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    section = config({"url": "https://localhost/", "cafile": "nowhere.pem"})
    async with FakeBroker(tmp_path) as broker:
        with pytest.raises(ValueError, match=r"cafile: /.*/nowhere\.pem: No such file"):
            await WebhooksPlugin().start(broker, section)


async def test_only_configured_hooks_are_served(tmp_path: Path, server: Hooks) -> None:
    section = config({"url": server.url, "hooks": ["on_publish", "auth_on_register"]})
    async with started(tmp_path, section) as plugin:
        found = [each for each in CHAINS if plugin.serves(each)]
        assert found == ["auth_on_register", "on_publish"]

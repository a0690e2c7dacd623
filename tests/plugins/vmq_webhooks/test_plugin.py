"""The plugin against a real web server: what it sends, what it makes of answers, what it does without."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from vmq_hooks import (
    REFUSED_QOS,
    Accept,
    Cache,
    Message,
    Next,
    PublishModifiers,
    Refuse,
    RegisterModifiers,
    SubscriberId,
    Subscription,
)
from vmq_hooks.specs import CHAINS
from vmq_hooks.testing import FakeBroker
from vmq_webhooks import WebhooksPlugin

from tests.listeners.conftest import authority
from tests.plugins.vmq_webhooks import calls
from tests.plugins.vmq_webhooks.server import Hooks, web_server
from vmq.testing.authority import Authority

__all__ = ["authority"]


async def test_each_hook_is_sent_in_vernemqs_names(tmp_path: Path, server: Hooks) -> None:
    who = {"client_id": "lamp", "mountpoint": "home"}
    alice = {**who, "username": "alice"}
    at = {"peer_addr": "192.0.2.1", "peer_port": 4711}
    sent = {"topic": "a/b", "qos": 1, "retain": True, "payload": "/zE="}
    topics = {"topics": [{"topic": "a/#", "qos": 1}, {"topic": "b", "qos": 2}]}
    message = Message("a/b", b"\xff1", 1, True)
    wanted = [Subscription("a/#", 1), Subscription("b", 2)]
    async with calls.started(tmp_path, calls.config({"url": server.url})) as plugin:
        await calls.register(plugin)
        await calls.publish(plugin)
        await calls.subscribe(plugin)
        await plugin.on_register(calls.PEER, calls.ALICE, "alice")
        await plugin.on_publish("alice", calls.ALICE, message)
        await plugin.on_subscribe("alice", calls.ALICE, wanted)
        await plugin.on_unsubscribe("alice", calls.ALICE, ["a"])
        await plugin.on_topic_unsubscribed(calls.ALICE, ["a"])
        await plugin.on_offline_message(calls.ALICE, message)
        await plugin.on_message_drop(calls.ALICE, lambda: message, "queue_full")
        for name in (
            "on_client_wakeup",
            "on_client_offline",
            "on_client_gone",
            "on_session_expired",
        ):
            await getattr(plugin, name)(calls.ALICE)
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
    assert set(calls.ALL) == set(CHAINS) - {"on_deliver", *own}


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
    async with calls.started(tmp_path, calls.config({"url": server.url})) as plugin:
        assert await calls.register(plugin) == verdict


async def test_refusals_have_the_servers_reason(tmp_path: Path, server: Hooks) -> None:
    async with calls.started(tmp_path, calls.config({"url": server.url})) as plugin:
        for reason, bad, unavailable in (
            ("not_allowed", False, False),
            ("invalid_credentials", True, False),
            ("unavailable", False, True),
        ):
            server.answers["auth_on_register"] = {"result": {"error": reason}}
            verdict = await calls.register(plugin)
            assert isinstance(verdict, Refuse)
            assert verdict.reason == reason
            assert (verdict.bad_credentials, verdict.unavailable) == (bad, unavailable)
        server.asked.clear()
        verdict = await calls.register(plugin, b"\xff")
        assert isinstance(verdict, Refuse)
        assert server.asked == []
        assert await plugin.auth_on_register(calls.PEER, calls.ALICE, None, None, True) is not None
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
    async with calls.started(tmp_path, calls.config({"url": server.url})) as plugin:
        assert await calls.publish(plugin) == Accept(
            PublishModifiers(topic="c", payload=b"\xff2", qos=0, retain=False, throttle=5)
        )
        assert await calls.subscribe(plugin) == Accept(
            subscriptions=[Subscription("x", 0), Subscription("b", REFUSED_QOS)]
        )
        assert await plugin.on_unsubscribe("alice", calls.ALICE, ["a"]) == ["x"]
        server.answers["on_unsubscribe"] = {"result": "next"}
        assert await plugin.on_unsubscribe("alice", calls.ALICE, ["a"]) is None


async def test_endpoints_are_asked_in_order_until_one_decides(tmp_path: Path) -> None:
    async with web_server() as first, web_server() as second, web_server() as third:
        section = calls.config({"url": first.url}, {"url": second.url}, {"url": third.url})
        async with calls.started(tmp_path, section) as plugin:
            first.answers["auth_on_register"] = {"result": "next"}
            second.answers["auth_on_register"] = {"result": {"error": "no"}}
            verdict = await calls.register(plugin)
            assert isinstance(verdict, Refuse)
            assert [len(each.asked) for each in (first, second, third)] == [1, 1, 0]
            second.answers["auth_on_register"] = third.answers["auth_on_register"] = {
                "result": "next"
            }
            assert await calls.register(plugin) == Next()
            await plugin.on_client_gone(calls.ALICE)
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
    async with calls.started(tmp_path, calls.config({"url": server.url})) as plugin:
        verdict, others = await calls.register(plugin), await calls.subscribe(plugin)
        assert (verdict.cache and verdict.cache.seconds) == seconds
        assert (others.cache and others.cache.seconds) == seconds
        if seconds:
            assert verdict.cache.by == {"peer", "username", "client_id", "password"}


async def test_a_verdict_on_a_payload_is_never_kept(tmp_path: Path, server: Hooks) -> None:
    server.headers["cache-control"] = "max-age=60"
    async with calls.started(tmp_path, calls.config({"url": server.url})) as plugin:
        assert (await calls.publish(plugin)).cache is None
    async with calls.started(
        tmp_path, calls.config({"url": server.url, "no_payload": True})
    ) as plugin:
        verdict = await calls.publish(plugin)
        assert verdict.cache == Cache(
            60, frozenset({"username", "client_id", "topic", "qos", "retain"})
        )
        assert "payload" not in server.asked[-1][1]
        server.answers["auth_on_publish"] = {"result": {"error": "no"}}
        assert (await calls.publish(plugin)).cache == verdict.cache


async def test_a_verdict_holds_no_longer_than_those_before_it(tmp_path: Path) -> None:
    async with web_server() as first, web_server() as second:
        first.answers["auth_on_register"] = {"result": "next"}
        section = calls.config({"url": first.url}, {"url": second.url})
        async with calls.started(tmp_path, section) as plugin:
            for one, two, wanted in (("5", "9", 5), ("9", "5", 5), ("0", "9", None)):
                first.headers["cache-control"] = f"max-age={one}"
                second.headers["cache-control"] = f"max-age={two}"
                cache = (await calls.register(plugin)).cache
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
            section = calls.config({"url": server.url, **files, **changes})
            async with calls.started(tmp_path, section) as plugin:
                assert isinstance(await calls.register(plugin), Accept if good else Refuse), changes


async def test_certificates_are_read_anew_when_the_configuration_is(
    tmp_path: Path, authority: Authority
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue("server", ["localhost"]).load_into(context)
    cafile = tmp_path / "trusted.pem"
    cafile.write_bytes(Authority(tmp_path / "other").cafile.read_bytes())
    async with web_server(context) as server, FakeBroker(tmp_path) as broker:
        plugin = WebhooksPlugin()
        await plugin.start(broker, calls.config({"url": server.url, "cafile": "trusted.pem"}))
        try:
            assert isinstance(await calls.register(plugin), Refuse)
            cafile.write_bytes(authority.cafile.read_bytes())
            await broker.reload()
            assert isinstance(await calls.register(plugin), Accept)
            cafile.write_text("no certificate")
            await broker.reload()
            assert isinstance(await calls.register(plugin), Accept)
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
    section = calls.config({"url": server.url}, pool_max_connections=2)
    async with calls.started(tmp_path, section) as plugin:
        assert await asyncio.gather(*[calls.register(plugin) for _ in range(10)]) == [Accept()] * 10
    assert len(server.peers) == 2


@pytest.mark.parametrize(
    ("endpoint", "problem"),
    [
        ({"url": "ftp://x"}, "accepted: http"),
        ({"url": "http://x:0/"}, "accepted: http"),
        ({"url": "http://x", "hooks": []}, "length >= 1"),
        ({"url": "http://x", "hooks": ["on_deliver"]}, "on_deliver"),
        ({"url": "http://x", "hooks": ["on_publish"] * 2}, "hooks: accepted: each of them once"),
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
        calls.config(endpoint)


async def test_a_file_that_is_not_there_stops_the_start(tmp_path: Path) -> None:
    section = calls.config({"url": "https://localhost/", "cafile": "nowhere.pem"})
    async with FakeBroker(tmp_path) as broker:
        with pytest.raises(ValueError, match=r"cafile: /.*/nowhere\.pem: No such file"):
            await WebhooksPlugin().start(broker, section)


async def test_only_configured_hooks_are_served(tmp_path: Path, server: Hooks) -> None:
    section = calls.config({"url": server.url, "hooks": ["on_publish", "auth_on_register"]})
    async with calls.started(tmp_path, section) as plugin:
        assert [*filter(plugin.serves, CHAINS)] == ["auth_on_register", "on_publish"]

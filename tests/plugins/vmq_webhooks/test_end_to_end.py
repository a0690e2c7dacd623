"""Webhooks as real clients of a real broker meet them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from aiohttp import web
from vmq_hooks.testing import RunningBroker, running_broker
from vmq_webhooks import WebhooksPlugin

from tests.plugins.vmq_webhooks.server import Hooks

TIMEOUT = 20.0
AUTH = ["auth_on_register", "auth_on_publish", "auth_on_subscribe"]


@asynccontextmanager
async def broker_asking(
    folder: Path, server: Hooks, hooks: list[str], *, anonymous: bool = False, **more: Any
) -> AsyncIterator[RunningBroker]:
    endpoint = {"url": server.url, "hooks": hooks, **more}
    async with running_broker(
        folder,
        {"vmq_webhooks": WebhooksPlugin()},
        options={"vmq_webhooks": {"endpoints": {"e": endpoint}}},
        allow_anonymous=anonymous,
    ) as running:
        yield running


def client(running: RunningBroker, name: str = "c", **more: Any) -> aiomqtt.Client:
    return aiomqtt.Client(running.host, running.port, identifier=name, timeout=TIMEOUT, **more)


async def next_of(subscriber: aiomqtt.Client) -> tuple[str, bytes]:
    async with asyncio.timeout(TIMEOUT):
        found = await anext(aiter(subscriber.messages))
    return str(found.topic), bytes(found.payload)


async def test_who_is_let_in(tmp_path: Path, server: Hooks) -> None:
    async def judge(request: web.Request) -> web.Response:
        body = await request.json()
        if body["password"] == "right":
            return web.json_response({"result": "ok"})
        return web.json_response({"result": {"error": "invalid_credentials"}})

    server.answers["auth_on_register"] = judge
    async with broker_asking(tmp_path, server, AUTH) as running:
        async with client(running, username="alice", password="right"):
            pass
        with pytest.raises(aiomqtt.MqttError, match="Bad user name or password"):
            async with client(running, username="alice", password="wrong"):
                pass
        server.answers["auth_on_register"] = {"result": {"error": "not_allowed"}}
        with pytest.raises(aiomqtt.MqttError, match="Not authorized"):
            async with client(running, username="alice", password="right"):
                pass
        server.answers["auth_on_register"] = "rubbish"
        with pytest.raises(aiomqtt.MqttError, match="Server unavailable"):
            async with client(running, username="alice", password="right"):
                pass


async def test_what_is_changed_on_the_way(tmp_path: Path, server: Hooks) -> None:
    async def move(request: web.Request) -> web.Response:
        topic = "moved/" + (await request.json())["topic"]
        return web.json_response({"result": "ok", "modifiers": {"topic": topic, "payload": "bmV3"}})

    server.answers["auth_on_publish"] = move
    server.answers["auth_on_subscribe"] = {
        "result": "ok",
        "topics": [{"topic": "moved/#", "qos": 1}, {"topic": "no", "qos": 128}],
    }
    async with broker_asking(tmp_path, server, AUTH) as running, client(running) as both:
        granted = await both.subscribe([("x", 1), ("no", 1)])
        assert [code if isinstance(code, int) else code.value for code in granted] == [1, 128]
        await both.publish("a", b"old", qos=1)
        assert await next_of(both) == ("moved/a", b"new")


async def test_information_comes_in_order_and_nobody_waits_for_it(
    tmp_path: Path, server: Hooks
) -> None:
    release = asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        await release.wait()
        return web.json_response({"result": "ok"})

    told = ["on_register", "on_publish", "on_subscribe", "on_unsubscribe", "on_client_gone"]
    server.answers["on_register"] = slow
    # No auth hook is served, so nobody is asked and everybody may.
    async with broker_asking(tmp_path, server, told, anonymous=True) as running:
        async with client(running) as both:
            await both.subscribe("#", qos=1)
            for number in range(3):
                await both.publish(f"a/{number}", b"", qos=1)
                assert (await next_of(both))[0] == f"a/{number}"
            await server.wait_asked("on_register")
            assert [hook for hook, _ in server.asked] == ["on_register"]
            release.set()
            await server.wait_asked("on_publish", 3)
            await both.unsubscribe("#")
        gone = await server.wait_asked("on_client_gone")
        assert gone["client_id"] == "c"
        assert [hook for hook, _ in server.asked] == [
            "on_register",
            "on_subscribe",
            *["on_publish"] * 3,
            "on_unsubscribe",
            "on_client_gone",
        ]
        topics = [body["topic"] for hook, body in server.asked if hook == "on_publish"]
        assert topics == ["a/0", "a/1", "a/2"]

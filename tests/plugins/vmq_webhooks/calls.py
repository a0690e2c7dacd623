"""The plugin with a configuration, and what a broker asks it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import msgspec
from vmq_hooks import Message, Peer, SubscriberId, Subscription
from vmq_hooks.testing import FakeBroker
from vmq_webhooks import WebhooksConfig, WebhooksPlugin
from vmq_webhooks.config import Hook

TIMEOUT = 20.0
PEER = Peer("192.0.2.1", 4711, "tcp")
ALICE = SubscriberId("lamp", "home")
ALL = list(get_args(Hook))


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


async def register(plugin: WebhooksPlugin, password: bytes | None = b"pw") -> Any:
    return await plugin.auth_on_register(PEER, ALICE, "alice", password, True)


async def publish(plugin: WebhooksPlugin, payload: bytes = b"\xff1") -> Any:
    return await plugin.auth_on_publish("alice", ALICE, Message("a/b", payload, 1, True))


async def subscribe(plugin: WebhooksPlugin) -> Any:
    wanted = [Subscription("a/#", 1), Subscription("b", 2)]
    return await plugin.auth_on_subscribe("alice", ALICE, wanted)

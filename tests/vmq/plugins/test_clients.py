"""A real client is refused and allowed by plugins."""

import asyncio
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from vmq_hooks import Message, Plugin, Refuse, Subscription, hook

from tests.vmq.plugins.support import TIMEOUT, serving


class Rooms(Plugin):
    @hook
    async def auth_on_register(self, username: str | None, password: bytes | None) -> Any:
        await asyncio.sleep(0)
        if password != b"salt":
            return Refuse("wrong password", bad_credentials=True)
        return True

    @hook
    def auth_on_publish(self, username: str | None, message: Message) -> Any:
        return True if message.topic.startswith(f"{username}/") else Refuse("not its room")

    @hook
    def auth_on_subscribe(
        self, username: str | None, subscriptions: list[Subscription]
    ) -> list[Subscription]:
        return [
            each
            if each.topic_filter.startswith(f"{username}/")
            else Subscription(each.topic_filter, 128)
            for each in subscriptions
        ]


async def test_a_client_keeps_to_its_room(tmp_path: Path) -> None:
    async with serving(tmp_path, {"rooms": Rooms()}, anonymous=False) as broker:
        port = int(broker.addresses[0].rpartition(":")[2])

        def client(password: str) -> aiomqtt.Client:
            return aiomqtt.Client(
                "127.0.0.1", port, username="kitchen", password=password, timeout=TIMEOUT
            )

        with pytest.raises(aiomqtt.MqttError, match=r"(?i)user ?name or password"):
            async with client("pepper"):
                pass
        async with client("salt") as kitchen:
            granted = await kitchen.subscribe([("kitchen/#", 1), ("cellar/#", 1)])
            assert [each if isinstance(each, int) else each.value for each in granted] == [1, 128]
            await kitchen.publish("kitchen/lamp", b"on", qos=1)
            async with asyncio.timeout(TIMEOUT):
                message = await anext(aiter(kitchen.messages))
            assert (str(message.topic), message.payload) == ("kitchen/lamp", b"on")

        async def intrude() -> None:
            async with client("salt") as kitchen, asyncio.timeout(TIMEOUT):
                await kitchen.publish("cellar/lamp", b"on")
                await anext(aiter(kitchen.messages))  # tells of the end of the connection

        with pytest.raises(aiomqtt.MqttError):
            await intrude()

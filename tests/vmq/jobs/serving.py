"""A broker that serves jobs, for tests: its configuration, clients of Redis, and plugins that guard it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from vmq_hooks import Plugin, Refuse, hook
from vmq_hooks.types import Message, Peer, SubscriberId, Subscription

from tests.vmq.sockets import config_in
from vmq.broker import Broker
from vmq.config.options import Config, ListenerOptions
from vmq.config.values import Endpoint
from vmq.jobs.machine import JobMachine

LOCAL = "resp://127.0.0.1:0"
#: The number of the listener for MQTT.
TCP = 1


def config_of(folder: Path, url: str = LOCAL, **options: Any) -> Config:
    """A broker with one listener for jobs; `jobs` and `limits` are sections, the rest is the listener's."""
    sections = {name: options.pop(name) for name in ("jobs", "limits") if name in options}
    config = config_in(
        folder,
        {
            "jobs": ListenerOptions(url=url, **options),
            "tcp": ListenerOptions(url="tcp://127.0.0.1:0"),
        },
    )
    return msgspec.structs.replace(config, **sections)


def port_of(broker: Broker) -> int:
    return Endpoint.parse(broker.listeners["jobs"].url).port


@asynccontextmanager
async def client_of(broker: Broker, **options: Any) -> AsyncIterator[Any]:
    client = Redis(
        port=port_of(broker),
        socket_timeout=30,
        single_connection_client=True,
        retry=Retry(
            NoBackoff(), 0
        ),  # its own is ten times within half a minute, also for who is refused
        **options,
    )
    try:
        yield await client.initialize()
    finally:
        await client.aclose()


def named(reply: Any) -> dict[bytes, Any]:
    """Names and values, of an array of both."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


async def raw(broker: Broker, data: bytes, *, ends: bool = True) -> bytes:
    """What comes until the end of the stream; whether it ends its own side is given."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
    writer.write(data)
    if ends:
        writer.write_eof()
    async with asyncio.timeout(30):
        found = await reader.read()
    writer.close()
    return found


class Guard(Plugin):
    """Knows one user, who may add to and take from what is called mail."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    @hook
    def auth_on_register(
        self, peer: Peer, subscriber_id: SubscriberId, username: str | None, password: bytes | None
    ) -> Any:
        self.asked.append(f"{peer.listener} {subscriber_id.client_id}")
        return self.know(username, password)

    @hook
    def auth_on_publish(self, message: Message) -> Any:
        self.asked.append(message.topic)
        return self.judge(message.topic)

    @hook
    def auth_on_subscribe(self, subscriptions: list[Subscription]) -> Any:
        filters = [each.topic_filter for each in subscriptions]
        self.asked.extend(filters)
        return self.judge(*filters)

    def know(self, *who: str | bytes | None) -> Any:
        return who == ("worker", b"secret") or Refuse("no", bad_credentials=True)

    def judge(self, *topics: str) -> Any:
        return all(each.startswith("$jobs/mail") for each in topics) or None


class SlowGuard(Guard):
    """Answers later; about queues, when `may_answer` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    @hook
    async def auth_on_register(
        self, peer: Peer, subscriber_id: SubscriberId, username: str | None, password: bytes | None
    ) -> Any:
        await asyncio.sleep(0)
        return self.know(username, password)

    @hook
    async def auth_on_publish(self, message: Message) -> Any:
        self.asked.append("add " + message.topic)
        await asyncio.sleep(0)
        await self.may_answer.wait()
        return self.judge(message.topic)

    @hook
    async def auth_on_subscribe(self, subscriptions: list[Subscription]) -> Any:
        self.asked.append(" ".join(f"{each.action} {each.topic_filter}" for each in subscriptions))
        await asyncio.sleep(0)
        await self.may_answer.wait()
        return self.judge(*(each.topic_filter for each in subscriptions))


def machine(broker: Broker) -> JobMachine:
    return broker.jobs.open().machine

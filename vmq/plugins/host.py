"""The broker's side of the plugins' handles."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from vmq_hooks import BridgeSession, Message, RegisterModifiers, SubscriberId

from vmq.config.cluster import ClusterOptions
from vmq.core.registry import Registry
from vmq.embedded import LocalClient
from vmq.plugins.bridging import BridgeClient, LocalBridge
from vmq.plugins.handle import Figure
from vmq.plugins.reauthorize import reauthorize
from vmq.plugins.starting import START_TIMEOUT
from vmq.protocol.connection import Connection
from vmq.runtime.local_clients import LocalClients
from vmq.runtime.metrics import Metrics

log = logging.getLogger("vmq.plugins")

#: Messages held for a plugin that reads slowly, before its queue's limits apply.
HELD = 1000


class PluginHost:
    """What handles ask for.

    Args:
        cluster: whose node it is.
        data_dir: the broker's.
        registries: the topic trees by mountpoint.
        registry: the topic tree of a mountpoint, made when first asked for.
        metrics: the broker's figures.
        declare_stream: has the broker keep a stream of these options.
        clients: those that plugins have inside the process.
        worker: which of several processes that are one broker, from 1.
    """

    def __init__(
        self,
        cluster: ClusterOptions,
        data_dir: Path,
        registries: Mapping[str, Registry],
        registry: Callable[[str], Registry],
        metrics: Callable[[], Metrics],
        declare_stream: Callable[[str, Mapping[str, Any]], Awaitable[None]],
        clients: LocalClients,
        worker: int = 1,
    ) -> None:
        self.node_name = cluster.node_name or socket.gethostname()
        self.worker = worker
        self.data_dir = data_dir
        self._registries = registries
        self._registry = registry
        self._metrics = metrics
        self._declare_stream = declare_stream
        self._clients = clients
        self._is_open = asyncio.Event()
        self._waiting: list[asyncio.Task[Any]] = []
        #: Users of whom a plugin says as it starts with the broker that they are gone; None: that has begun.
        self.gone: set[str] | None = set()
        if not cluster.listen:
            self._is_open.set()

    @property
    def is_open(self) -> bool:
        """Whether durable sessions can be had: those in slots when the node has taken its place."""
        return self._is_open.is_set()

    def before_clients(self, work: "asyncio.Task[Any]") -> None:
        """This waits for them, and clients for it."""
        self._waiting.append(work)

    async def open(self) -> None:
        """They can be had. Returns when all is done that waited, or some of it takes too long.

        Raises:
            ValueError, RuntimeError, OSError: what a plugin's work has raised.
        """
        self._is_open.set()
        waiting, self._waiting = self._waiting, []
        if waiting:
            done, late = await asyncio.wait(waiting, timeout=START_TIMEOUT)
            for each in late:
                log.warning("clients are let in before it is done: %s", each.get_name())
            for each in done:
                each.result()

    async def publish(
        self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, mountpoint: str = ""
    ) -> None:
        await self._clients.publish(topic, payload, qos, retain, mountpoint)

    @asynccontextmanager
    async def subscribe_for_plugin(
        self, filters: Sequence[str], qos: int, mountpoint: str, client_id: str | None, clean: bool
    ) -> AsyncIterator[AsyncIterator[Message]]:
        if not clean and not client_id:
            raise ValueError("a durable session needs a client id")
        if not clean:
            await self._is_open.wait()
        async with self._clients.subscribe(
            filters, qos, HELD, mountpoint, client_id, clean=clean
        ) as client:
            yield _seen(client)

    @asynccontextmanager
    async def bridge(
        self,
        client_id: str,
        mountpoint: str,
        max_inflight_messages: int | None,
        max_offline_messages: int | None,
    ) -> AsyncIterator[BridgeSession]:
        await self._is_open.wait()
        registry = self._registry(mountpoint)
        limits = RegisterModifiers(
            max_inflight_messages=max_inflight_messages,
            max_offline_messages=max_offline_messages,
        )
        options = registry.core.session_options.of(limits)
        client = self._clients.kept(
            lambda closed: BridgeClient(registry, client_id, HELD, closed, options)
        )
        try:
            yield LocalBridge(client)
        finally:
            client.close()

    async def disconnect(self, subscriber_id: SubscriberId, cleanup: bool) -> bool:
        registry = self._registries.get(subscriber_id.mountpoint)
        if cleanup:
            await self._is_open.wait()
            registry = self._registry(subscriber_id.mountpoint)
            registry.core.claims.end_session(registry, subscriber_id.client_id)
        found = None if registry is None else registry.subscribers.get(subscriber_id.client_id)
        if registry is None or found is None:
            return False
        output = found.output
        if isinstance(output, Connection):
            output.close("disconnected by a plugin")
        if cleanup and registry.subscribers.get(subscriber_id.client_id) is found:
            registry.end_session(found)
        registry.core.outbox.flush()
        return output is not None

    async def connected_elsewhere(self, subscriber_id: SubscriberId) -> str:
        mountpoint, client_id = subscriber_id.mountpoint, subscriber_id.client_id
        await self._is_open.wait()
        return self._registry(mountpoint).core.claims.elsewhere(mountpoint, client_id)

    async def disconnect_users(self, usernames: Collection[str]) -> int:
        def end(client: Connection) -> bool:
            client.session.will = None  # who is gone says nothing more
            client.close("disconnected by a plugin: its user is gone or changed")
            return True

        return await self._of_users(usernames, end)

    async def drop_wills(self, usernames: Collection[str]) -> int:
        def drop(client: Connection) -> bool:
            had_one = client.session.will is not None
            client.session.will = None
            return had_one

        return await self._of_users(usernames, drop)

    async def _of_users(self, usernames: Collection[str], act: Callable[[Connection], bool]) -> int:
        """Does something to all clients that are here under these names; returns for how many it was true."""
        if self.gone is not None:
            self.gone.update(usernames)
        done = 0
        for registry in list(self._registries.values()):
            for number, subscriber in enumerate(list(registry.subscribers.values())):
                output = subscriber.output
                if isinstance(output, Connection) and output.session.username in usernames:
                    done += act(output)
                if number % 1000 == 999:
                    registry.core.outbox.flush()
                    await asyncio.sleep(0)  # others want to be served
            registry.core.outbox.flush()
        return done

    async def reauthorize(self, subscriber_id: SubscriberId | None) -> int:
        return await reauthorize(self._registries, subscriber_id)

    async def declare_stream(self, name: str, options: Mapping[str, Any]) -> None:
        await self._declare_stream(name, options)

    def figures(self) -> list[Figure]:
        return [
            Figure(family.name, dict(sample.labels), sample.value, family.help)
            for family in self._metrics().families()
            for sample in family.samples
        ]


async def _seen(client: LocalClient) -> AsyncIterator[Message]:
    async for message in client.messages():
        yield Message(message.topic, message.payload, message.qos, message.retain)

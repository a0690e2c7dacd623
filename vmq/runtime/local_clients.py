"""The clients inside the broker's own process: for the program around it, and for plugins."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar
from uuid import uuid4

from vmq.core.registry import Registry
from vmq.embedded import LocalClient

C = TypeVar("C", bound=LocalClient)


class LocalClients:
    """Made when there is something to say or to hear, and closed at the end.

    Args:
        registry: the topic tree of a mountpoint, made when first asked for.
        prefix: what the ids begin with that it gives.
    """

    def __init__(self, registry: Callable[[str], Registry], prefix: str) -> None:
        self._registry = registry
        self._prefix = prefix
        self._clients: set[LocalClient] = set()
        #: Those that only publish, by mountpoint.
        self._publishers: dict[str, LocalClient] = {}

    async def publish(
        self, topic: str, payload: bytes, qos: int, retain: bool, mountpoint: str
    ) -> None:
        """Returns when the broker owns the message.

        Raises:
            ValueError: topic or QoS is not valid.
        """
        publisher = self._publishers.get(mountpoint)
        if publisher is None or publisher.is_closed:
            self._publishers[mountpoint] = publisher = self._client(mountpoint, None, 1)
        await publisher.publish(topic, payload, qos, retain)

    @asynccontextmanager
    async def subscribe(
        self,
        filters: Sequence[str],
        qos: int,
        limit: int,
        mountpoint: str,
        client_id: str | None = None,
        *,
        clean: bool = True,
    ) -> AsyncIterator[LocalClient]:
        """A client with these subscriptions, for as long as the block runs; `limit` messages wait for a slow reader.

        Raises:
            ValueError: a filter or the QoS is not valid.
        """
        client = self._client(mountpoint, client_id, limit, clean=clean)
        try:
            await client.subscribe(filters, qos)
            yield client
        finally:
            client.close()

    def kept(self, make: Callable[[Callable[[LocalClient], None]], C]) -> C:
        """A client of another kind; `make` is given whom it tells of its end."""
        client = make(self._clients.discard)
        self._clients.add(client)
        return client

    def _client(
        self, mountpoint: str, client_id: str | None, limit: int, *, clean: bool = True
    ) -> LocalClient:
        registry = self._registry(mountpoint)
        name = client_id or f"{self._prefix}-{uuid4().hex}"
        return self.kept(lambda closed: LocalClient(registry, name, limit, closed, clean=clean))

    def close(self) -> None:
        """Ends them all."""
        for client in list(self._clients):
            client.close()
        self._publishers.clear()

"""Nodes in the test's process that have copies of a stream."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.support.until import until
from tests.vmq.clustering.nodes import address, clustering, together
from tests.vmq.clustering.stream_nodes import stream, with_streams
from tests.vmq.streams.support import options
from tests.vmq.streams.support import payloads as payloads_of
from vmq.broker import Broker
from vmq.clustering.raft.service import GroupService
from vmq.config.options import Config, LimitOptions
from vmq.config.streams import StreamOptions


def groups(broker: Broker) -> GroupService:
    found = clustering(broker).streams.replicas.groups
    assert found is not None
    return found


def node_config(folder: Path, name: str, join: str, made: StreamOptions) -> Config:
    return with_streams(folder, name, join, s=made)


@asynccontextmanager
async def replicated(
    folder: Path,
    *names: str,
    partitions: int = 1,
    admin: bool = False,
    limit: int = 10_000,
    **given: Any,
) -> AsyncIterator[dict[str, Broker]]:
    """Nodes with a stream `s` of `s/#`, each partition of which has a leader."""
    made = options(
        **{"filters": ["s/#"], "replicas": 3, "key": "topic", "partitions": partitions, **given}
    )
    brokers: dict[str, Broker] = {}
    try:
        for name in names:
            join = address(next(iter(brokers.values()))) if brokers else ""
            config = node_config(folder, name, join, made)
            limits = LimitOptions(max_partitions=limit)
            config = msgspec.structs.replace(config, limits=limits)
            brokers[name] = Broker(config, admin=admin)
            await brokers[name].start()
        await together(*brokers.values())
        await until(lambda: all(is_led(each, partitions) for each in brokers.values()))
        yield brokers
    finally:
        for each in brokers.values():
            await each.stop()


def is_led(broker: Broker, partitions: int = 1) -> bool:
    """Whether a node knows the leaders of all partitions."""
    places = groups(broker).places
    return all(places.leader("s", number) for number in range(partitions))


def leader(broker: Broker, number: int = 0) -> str:
    return groups(broker).places.leader("s", number)


def payloads(broker: Broker, number: int = 0, name: str = "s") -> list[bytes]:
    """What readers see of a partition on a node."""
    return payloads_of(stream(broker, name).partitions[number])


async def has(broker: Broker, count: int, name: str = "s") -> None:
    """Waits until readers see so many rows on a node."""
    await until(lambda: len(payloads(broker, name=name)) == count)

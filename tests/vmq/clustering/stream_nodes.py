"""Brokers in the test's process that are nodes of one cluster, and have streams."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec
from pyarrow import flight

from tests.support.until import PATIENCE, until
from tests.vmq.clustering.nodes import address, clustering, config, together
from tests.vmq.streamed import payloads_of, streams_of
from tests.vmq.streams.flight_support import act
from tests.vmq.streams.support import options
from vmq.broker import Broker
from vmq.clustering.streams.metadata import chosen
from vmq.config.options import Config, ListenerOptions, StoreOptions
from vmq.config.streams import StreamOptions
from vmq.streams.catalog import Stream


def with_streams(
    folder: Path,
    name: str,
    join: str = "",
    listen: str = "",
    durability: Literal["os", "memory"] = "memory",
    flight: bool = False,
    **streams: StreamOptions,
) -> Config:
    """A node with streams; `flight`: it serves them, with a process of its own, which takes as long as all else."""
    made = config(folder, name, [join] if join else [], listen)
    made = msgspec.structs.replace(made, store=StoreOptions(durability=durability))
    listeners = {"tcp": ListenerOptions(url="tcp://127.0.0.1:0")}
    if flight:
        listeners["flight"] = ListenerOptions(url="grpc://127.0.0.1:0")
    return msgspec.structs.replace(made, streams=streams, listeners=listeners)


@asynccontextmanager
async def nodes(
    folder: Path,
    *names: str,
    durability: Literal["os", "memory"] = "memory",
    flight: bool = False,
    **streams: StreamOptions,
) -> AsyncIterator[list[Broker]]:
    """Nodes with the same streams in their configurations, who know each other's; of one copy, if that is open."""
    for name, made in streams.items():
        streams[name] = msgspec.structs.replace(made, replicas=made.replicas or 1)
    brokers: list[Broker] = []
    try:
        for name in names:
            join = address(brokers[0]) if brokers else ""
            of_node = with_streams(folder, name, join, "", durability, flight, **streams)
            brokers.append(Broker(of_node))
            await brokers[-1].start()
        await together(*brokers)
        await until(lambda: all(has_met(each, *names) for each in brokers if streams))
        views = [clustering(each).streams for each in brokers if flight]
        await until(lambda: all(view.address(name) for view in views for name in names))
        await until(lambda: agree(*brokers, streams=list(streams)))
        await until(
            lambda: all(owners(brokers[0], each) == wanted(brokers[0], each) for each in streams)
        )
        await until(lambda: agree(*brokers, streams=list(streams)))
        yield brokers
    finally:
        for each in brokers:
            await each.stop()


def stream(broker: Broker, name: str) -> Stream:
    return streams_of(broker).catalog.get(name)


def owners(broker: Broker, name: str) -> list[str]:
    """The owners of a stream's partitions, as this node sees them."""
    shared = clustering(broker).streams
    own = clustering(broker).node.name
    return [each or own for each in shared.owners(stream(broker, name))]


@asynccontextmanager
async def owned(folder: Path, **options: Any) -> AsyncIterator[tuple[Broker, Broker]]:
    """The owner of the one partition of a stream `s`, and another node."""
    async with nodes(folder, "a", "b", **options) as (a, b):
        yield (a, b) if owners(a, "s") == ["a"] else (b, a)


def agree(*brokers: Broker, streams: list[str]) -> bool:
    """Whether all nodes have the same streams and see the same owners, and all of these in records."""
    return all(
        len({stream(each, name).stream_id for each in brokers}) == 1
        and len({tuple(owners(each, name)) for each in brokers}) == 1
        and None
        not in [noted(each, name, n) for each in brokers for n in range(len(owners(each, name)))]
        and {tuple(owners(each, name)) for each in brokers}
        == {tuple(str(noted(brokers[0], name, n)) for n in range(len(owners(brokers[0], name))))}
        for name in streams
    )


def noted(broker: Broker, name: str, number: int) -> str | None:
    shared = clustering(broker).streams
    record = shared._records.owner(name, number)
    return record.node if record is not None and record.node in shared.members else None


def wanted(broker: Broker, name: str) -> list[str]:
    """The owners of a stream's partitions as the hashing has them."""
    shared = clustering(broker).streams
    return [chosen(name, each.number, shared.keepers()) for each in stream(broker, name).partitions]


def has_met(broker: Broker, *names: str) -> bool:
    """Whether a node knows that these keep streams."""
    return {*names} <= clustering(broker).streams.keepers()


async def create(broker: Broker, name: str, **given: Any) -> None:
    catalog = streams_of(broker).catalog
    await catalog.leaving.see_off(name)
    await catalog.create(name, options(**given))


def knows(broker: Broker, name: str) -> bool:
    return broker.streaming is not None and name in broker.streaming.catalog.streams


async def fill(broker: Broker, topics: list[str], qos: int, word: str) -> None:
    for topic in topics:
        await broker.publish(topic, f"{word} {topic}".encode(), qos=qos)


async def total(brokers: list[Broker], name: str) -> list[bytes]:
    found = []
    for each in brokers:
        found += await payloads_of(each, name)
    return sorted(found)


def kept(brokers: list[Broker], name: str) -> int:
    """The messages in a stream's logs on all nodes."""
    found = [stream(each, name).partitions for each in brokers]
    return sum(each.end - each.earliest for partitions in found for each in partitions)


def settled(brokers: list[Broker], name: str, count: int) -> bool:
    """Whether so many messages are in a stream's logs on all nodes, and none is on its way to another node.

    What is on its way is in two logs for a while: the one of them is a copy that no reader is shown.
    """
    return kept(brokers, name) >= count and not any(map(is_giving, brokers))


def is_giving(broker: Broker) -> bool:
    """Whether a node gives rows to another, or is about to."""
    handover = clustering(broker).streams.handover
    return handover is not None and (handover._task is not None or handover._has_any())


TOPICS = [f"x/{number}" for number in range(24)]


def read(location: str, name: str) -> list[bytes]:
    """What a plain Arrow client reads, which knows one node."""
    with flight.connect(location) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_path(name))
        found = []
        for each in info.endpoints:
            [place] = each.locations or [location]
            with flight.connect(place) as owner:
                found += owner.do_get(each.ticket).read_all().column("payload").to_pylist()
        assert info.total_records == len(found)
    return sorted(found)


def offsets(location: str, kind: str, **asked: Any) -> dict[str, int]:
    with flight.connect(location) as client:
        found: dict[str, int] = act(client, kind, **asked)
        return found


def flight_of(broker: Broker) -> str:
    return broker.listeners["flight"].url


async def leave(broker: Broker) -> None:
    """What `vmq cluster leave` does, without waiting until the others have said that they know all."""
    assert await clustering(broker).streams.leave(PATIENCE)
    assert await clustering(broker).leaving.send_rest(PATIENCE)
    await clustering(broker).node.leave(0.2)
    clustering(broker).outboxes.arrivals.open()

"""Brokers in the test's process that keep copies of each other's sessions, and die as processes do."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.support import wire as mqtt
from tests.support.until import until
from tests.vmq.clustering.nodes import address, clustering, config, kill, silenced, together
from tests.vmq.sockets import Peer, session_of
from vmq.broker import Broker
from vmq.config.options import Config, StoreOptions
from vmq.store.store import Store
from vmq.store.tools import check
from vmq_cluster.messages import Frame


def durable(folder: Path, name: str, join: list[str], **options: Any) -> Config:
    base = config(folder, name, join, listen=f"ipc://{folder}/{name}.socket")
    queue = options.pop("queue", base.queue)
    session = options.pop("session", base.session)
    streams = options.pop("streams", base.streams)
    mappings = options.pop("mappings", base.mappings)
    chosen = {"heartbeat_timeout": 0.6, **options}
    return replace(
        base,
        store=StoreOptions(durability="os"),
        queue=queue,
        session=session,
        streams=streams,
        mappings=mappings,
        cluster=replace(base.cluster, **chosen),
    )


class House:
    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder = folder
        self.options = options
        self.brokers: dict[str, Broker] = {}
        #: Pairs of nodes between which nothing gets through.
        self.cuts: set[frozenset[str]] = set()

    def __getitem__(self, name: str) -> Broker:
        return self.brokers[name]

    async def start(self, name: str) -> Broker:
        join = [address(each) for each in self.brokers.values()]
        self.brokers[name] = broker = Broker(durable(self.folder, name, join, **self.options))
        await broker.start()
        link: Any = clustering(broker).node.link
        send, send_at_once = link.send, link.send_at_once

        def is_open(other: str) -> bool:
            return frozenset((name, other)) not in self.cuts

        def send_if_open(other: str, frame: Frame) -> None:
            if is_open(other):
                send(other, frame)

        link.send = send_if_open
        link.send_at_once = lambda other, *rest: is_open(other) and send_at_once(other, *rest)
        # What is reliable goes in frames, whether it can be cut off or not.
        link.is_near = lambda other: False
        return broker

    async def part(self, one: str, *others: str) -> None:
        """Cuts a node off from others, and returns when they miss each other."""
        self.cuts.update(frozenset((one, other)) for other in others)
        for other in others:
            await until(partial(self.has_reach, one, other, 0))

    async def mend(self, one: str, *others: str) -> None:
        """Undoes it, and returns when they reach each other."""
        self.cuts.difference_update(frozenset((one, other)) for other in others)
        for other in others:
            await until(partial(self.has_reach, one, other, 2))

    def has_reach(self, one: str, other: str, count: int) -> bool:
        """Whether so many of two nodes reach the other."""
        pairs = ((one, other), (other, one))
        return sum(each[1] in clustering(self[each[0]]).node.up for each in pairs) == count

    async def kill(self, name: str) -> None:
        """It says nothing more; on its disk is what it had committed."""
        broker = self.brokers.pop(name)
        with silenced(broker):
            await kill(broker)

    async def lose(self, name: str) -> None:
        """It is killed, and its disk is lost."""
        await self.kill(name)
        shutil.rmtree(self.folder / name)


def store_of(broker: Broker) -> Store:
    return broker.parts.store


@asynccontextmanager
async def house(folder: Path, names: str = "abc", **options: Any) -> AsyncIterator[House]:
    made = House(folder, **options)
    try:
        for name in names:
            await made.start(name)
        await together(*made.brokers.values())
        yield made
    finally:
        for broker in made.brokers.values():
            await broker.stop()
    for name in names:  # every record is one that the store's check knows
        if not (folder / name / "store").exists():
            continue
        report = check(folder / name / "store")
        assert report.problems == []


async def subscribed(broker: Broker, *clients: str) -> None:
    """Durable sessions that listen to `t` and are away."""
    for client in clients:
        async with session_of(broker, client, clean=False) as peer:
            await peer.ask(mqtt.subscribe_packet(1, ("t", 2)))
            peer.send(mqtt.DISCONNECT_BYTES)
            assert await peer.rest() == b""


async def publish(broker: Broker, *payloads: bytes, qos: int = 1) -> None:
    """Publishes and waits until all are acknowledged."""
    async with session_of(broker, "publisher") as peer:
        for number, payload in enumerate(payloads, 1):
            peer.send(mqtt.publish_packet("t", payload, qos=qos, packet_id=number))
        for _ in payloads:
            assert (await peer.packet()).type == (mqtt.PUBACK if qos == 1 else mqtt.PUBREC)


async def received(peer: Peer, count: int) -> list[bytes]:
    found = []
    for _ in range(count):
        packet = await peer.packet()
        assert packet.type == mqtt.PUBLISH
        found.append(packet.payload)
        peer.send(mqtt.puback_packet(packet.packet_id))
    return found


NUMBERS = [b"%d" % number for number in range(30)]

"""Brokers that die while sessions move between them: nothing is lost that is on a disk."""

import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import clustering, config, is_subscribed, together
from vmq.broker import Broker
from vmq.clustering.takeover import local_sessions as sessions
from vmq.clustering.takeover.takeover import Takeover
from vmq.config.options import Config, QueueOptions, StoreOptions
from vmq.core.queue import Queue

#: Messages that wait before the move begins.
BACKLOG = 1500


class Life:
    """A broker through all its lives."""

    def __init__(self, folder: Path, name: str, join: list[str], **options: Any) -> None:
        self.folder = folder
        self.name = name
        self.address = f"ipc://{folder}/{name}.socket"
        base = config(folder, name, join, listen=self.address)
        self.config: Config = replace(
            base,
            cluster=replace(base.cluster, **options),
            store=StoreOptions(durability="os"),
            queue=QueueOptions(max_offline_messages=-1, max_online_messages=-1),
        )
        self.broker = Broker(self.config)

    async def start(self) -> None:
        self.broker = Broker(self.config)
        await self.broker.start()

    async def kill(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a killed process leaves is on the disk now; what a stop would add is undone."""
        data, left = self.folder / self.name, self.folder / f"{self.name}.left"
        shutil.copytree(data, left)
        committer = self.broker.parts.committer
        assert committer is not None
        with monkeypatch.context() as patch:
            patch.setattr(committer, "finish_all", nothing)
            patch.setattr("vmq.clustering.node.node.say_farewell", nothing)
            patch.setattr(committer, "commit", lambda: None)
            if committer.handle is not None:
                committer.handle.cancel()
            await self.broker.stop()
        shutil.rmtree(data)
        left.rename(data)

    @property
    def waiting(self) -> int:
        """How much of the session's queue is here."""
        subscriber = self.broker.registry().subscribers.get("d")
        return 0 if subscriber is None else subscriber.queue.waiting()

    @property
    def is_settled(self) -> bool:
        machine = clustering(self.broker).mover.moving
        return not (machine.outgoing or machine.incoming or machine.claims)


def begin_apart(mover: Takeover, queue: Queue) -> None:
    """Nodes happen to choose packet ids that are far from each other's."""
    queue.inflight.last_packet_id = ord(mover.name) * 500


async def nothing(*_: Any) -> None:
    """Takes the place of what a killed process does not do any more."""


@asynccontextmanager
async def lives(folder: Path, **options: Any) -> AsyncIterator[tuple[Life, Life, Life]]:
    """Three nodes; the options are those of the section [cluster]."""
    a = Life(folder, "a", [], **options)
    b, c = (Life(folder, name, [a.address], **options) for name in "bc")
    try:
        for each in (a, b, c):
            await each.start()
        await together(a.broker, b.broker, c.broker)
        yield a, b, c
    finally:
        for each in (a, b, c):
            if each.broker.clustering is not None:
                await each.broker.stop()


async def fill(device: Device, publisher: Device, a: Life, c: Life) -> None:
    """A session on `a` with a backlog, of a publisher on `c`."""
    await device.connect(a.broker)
    await device.subscribe(("t", 2))
    await device.drop()
    await publisher.connect(c.broker)
    await until(lambda: is_subscribed(c.broker, "d", "a"))
    for number in range(BACKLOG):
        publisher.publish("t", str(number), 2)
    await until(lambda: a.waiting == BACKLOG)


@pytest.mark.parametrize("dies", ["a", "b"])
async def test_the_old_owner_or_the_new_one_dies_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    monkeypatch.setattr(sessions, "BATCH_ENTRIES", 20)
    monkeypatch.setattr(Takeover, "_begin_anywhere", begin_apart)
    async with AsyncExitStack() as stack:
        a, b, c = await stack.enter_async_context(lives(tmp_path))
        device = await stack.enter_async_context(Device("d"))
        publisher = await stack.enter_async_context(Device("p", clean=True))
        await fill(device, publisher, a, c)
        assert await device.connect(b.broker)
        await device.until(lambda: len(device.log) >= BACKLOG // 5)
        assert not a.is_settled
        victim = a if dies == "a" else b
        await victim.kill(monkeypatch)
        for number in range(BACKLOG, BACKLOG + 100):
            publisher.publish("t", str(number), 2)
        if dies == "b":
            await device.until(lambda: not device.is_connected)
            await until(lambda: "b" not in clustering(c.broker).node.up)
            assert await device.connect(c.broker)
        await victim.start()
        wanted = {str(number) for number in range(BACKLOG + 100)}
        await device.until(lambda: set(device.log) == wanted)
        await until(lambda: a.is_settled and b.is_settled and c.is_settled)
        assert len(device.log) == len(wanted)
        first = [int(each) for each in device.log[: BACKLOG // 5]]
        assert first == sorted(first)

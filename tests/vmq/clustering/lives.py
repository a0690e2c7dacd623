"""Nodes in the test's process that are killed, and start again with what a process would have left."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from tests.support.until import until
from tests.vmq.clustering.nodes import clustering, config, kill, silenced, together
from vmq.broker import Broker
from vmq.config.options import Config, QueueOptions, StoreOptions


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


async def dead(b: Life, *others: Life) -> None:
    """It says nothing more: its clients look as if they were there still."""
    with silenced(b.broker):
        await kill(b.broker)
    await until(lambda: all(b.name not in clustering(each.broker).node.up for each in others))


def waits(life: Life) -> int:
    """Messages that wait at a node for others."""
    return clustering(life.broker).outboxes.waiting()[0]

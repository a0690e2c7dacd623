"""Brokers in the test's process that are nodes of one cluster."""

import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from tests.support.present import present
from tests.support.until import until
from vmq.broker import Broker
from vmq.clustering.node.node import Clustering
from vmq.config.options import BrokerOptions, ClusterOptions, Config, ListenerOptions, StoreOptions
from vmq.testing.ports import lasting_port
from vmq_cluster.messages import Frame, Received


def config(folder: Path, name: str, join: Sequence[str] = (), listen: str = "") -> Config:
    return Config(
        broker=BrokerOptions(data_dir=str(folder / name)),
        listeners={"tcp": ListenerOptions(url="tcp://127.0.0.1:0")},
        store=StoreOptions(durability="memory"),
        cluster=ClusterOptions(
            node_name=name,
            listen=listen or f"tcp://127.0.0.1:{lasting_port()}",
            join=list(join),
            heartbeat_interval=0.1,
            heartbeat_timeout=2,
            sync_timeout=1,
            slots=8,
        ),
    )


def clustering(broker: Broker) -> Clustering:
    return present(broker.clustering)


@contextmanager
def hushed(broker: Broker) -> Iterator[None]:
    """What arrives at a node is confirmed to nobody."""
    link = clustering(broker).node.link
    send = link.send

    def send_others(name: str, frame: Frame) -> None:
        left = [each for each in frame.messages if not isinstance(each, Received)]
        if left:
            send(name, replace(frame, messages=left))

    with patch.object(link, "send", send_others):
        yield


def silenced(broker: Broker) -> AbstractContextManager[Any]:
    """A node says nothing more, neither in frames nor without."""
    return patch.multiple(
        clustering(broker).node.link,
        send=lambda *_: None,
        send_at_once=lambda *_: False,
        is_near=lambda _: False,
    )


@contextmanager
def suspended(broker: Broker) -> Iterator[None]:
    """Nothing is committed meanwhile; what was due already is, for its timer would do so later."""
    committer = present(broker.parts.committer)
    if committer.handle is not None:
        committer.handle.cancel()
        committer.commit()
    assert committer.handle is None
    with patch.object(committer, "commit", lambda: None):
        yield


async def nothing(*_: object) -> None:
    """Takes the place of what a killed process does not do any more."""


async def kill(broker: Broker) -> None:
    """What a killed process leaves is on the disk now; what a stop would add is undone."""
    data = Path(broker.config.broker.data_dir)
    left = data.with_name(f"{data.name}.left")
    shutil.copytree(data, left)
    committer = present(broker.parts.committer)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(committer, "finish_all", nothing)
        patch.setattr(committer, "commit", lambda: None)
        patch.setattr("vmq.clustering.node.node.say_farewell", nothing)
        patch.setattr("vmq.jobs.nodes.JobNodes.hand_over", nothing)
        if committer.handle is not None:
            committer.handle.cancel()
        await broker.stop()
    shutil.rmtree(data)
    left.rename(data)


def address(broker: Broker) -> str:
    return clustering(broker).node.address


def knows(broker: Broker, client_id: str, node: str) -> bool:
    record = clustering(broker).directory.record("", client_id)
    return record is not None and record.node == node


def is_subscribed(broker: Broker, client_id: str, node: str) -> bool:
    """Whether it routes its messages there as well."""
    record = clustering(broker).directory.record("", client_id)
    return knows(broker, client_id, node) and record is not None and bool(record.subscriptions)


async def together(*brokers: Broker) -> None:
    """Waits until each of the nodes reaches all others."""
    await until(lambda: all(len(clustering(each).node.up) == len(brokers) - 1 for each in brokers))


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[tuple[Broker, Broker]]:
    """Two nodes, `a` and `b`, of which the second joined the first."""
    async with Broker(config(folder, "a")) as a, Broker(config(folder, "b", [address(a)])) as b:
        await together(a, b)
        yield a, b

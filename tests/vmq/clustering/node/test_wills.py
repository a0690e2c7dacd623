"""Wills of clients whose node ends: published once by another, unless the client has come back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import msgspec
import pytest
from vmq_hooks import Plugin, PublishModifiers, Refuse, hook
from vmq_hooks.types import Message, SubscriberId

from tests.support.present import present
from tests.support.until import until
from tests.support.wire import Will, connect_packet
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import house
from tests.vmq.clustering.lives import Life, dead, lives
from tests.vmq.clustering.nodes import clustering, is_subscribed, kill, silenced
from vmq.broker import Broker
from vmq.clustering.messages.codec import WireError, decode
from vmq.clustering.messages.wills import KeepWill
from vmq.clustering.node.wills import ClusterWills

#: Longer than any of these tests.
LONG = 1000.0


class Willing(Device):
    """A device with a will: its client id."""

    def send(self, data: bytes) -> None:
        if data[0] == 0x10:
            will = Will("wills", self.client_id.encode(), qos=1, retain=True)
            data = connect_packet(self.client_id, clean=self.clean, will=will)
        super().send(data)


def wills_of(broker: Broker) -> ClusterWills:
    return present(clustering(broker)._wills)


def owned(broker: Broker) -> int:
    """Slots that a node owns: it keeps the wills of their clients first of all."""
    slots = present(clustering(broker).slots)
    return slots.status.tally(slots.store).owned


def wait(seconds: float, *brokers: Broker) -> None:
    """Who keeps wills waits so long for a node that is away."""
    for each in brokers:
        wills_of(each)._patience = seconds


def kept(*brokers: Broker) -> list[str]:
    """The clients whose wills others keep."""
    all_kept = [each for broker in brokers for each in wills_of(broker)._kept.values()]
    return sorted(client for each in all_kept for _, client in each)


def published(*brokers: Broker) -> int:
    return sum(wills_of(each).published for each in brokers)


async def watching(watcher: Device, broker: Broker, *others: Broker) -> None:
    """It hears of all wills."""
    await watcher.connect(broker, ("wills", 1))
    node = clustering(broker).name
    for each in others:
        await until(partial(is_subscribed, each, watcher.client_id, node))


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as found:
        yield found


async def came(stack: AsyncExitStack, broker: Broker, *names: str) -> list[Willing]:
    """Clients with wills and clean sessions at a node."""
    found = [Willing(name, clean=True) for name in names]
    for each in found:
        await stack.enter_async_context(each)
        await each.connect(broker)
    return found


async def three(
    stack: AsyncExitStack, folder: Path, patience: float
) -> tuple[Life, Life, Life, Device]:
    """Three nodes, and who hears of wills at the first."""
    a, b, c = await stack.enter_async_context(lives(folder))
    wait(patience, *(each.broker for each in (a, b, c)))
    await until(lambda: all(owned(each.broker) for each in (a, b, c)))
    watcher = await stack.enter_async_context(Device("w", clean=True))
    await watching(watcher, a.broker, b.broker, c.broker)
    return a, b, c, watcher


@pytest.mark.parametrize("clean", (True, False))
async def test_when_a_node_stays_away_the_wills_of_its_clients_are_published_once(
    stack: AsyncExitStack, tmp_path: Path, clean: bool
) -> None:
    a, b, c, watcher = await three(stack, tmp_path, 0.3)
    clients = [f"client {number}" for number in range(20)]
    for name in clients:
        device = await stack.enter_async_context(Willing(name, clean=clean))
        await device.connect(b.broker)
    await until(lambda: kept(a.broker, c.broker) == sorted(clients))
    await dead(b, a, c)
    await watcher.until(lambda: len(watcher.log) >= 20)
    assert sorted(watcher.log) == sorted(clients)
    assert kept(a.broker, c.broker) == []
    assert published(a.broker, c.broker) == 20
    # Retained like any will, for whoever subscribes later.
    late = await stack.enter_async_context(Device("late", clean=True))
    await late.connect(c.broker, ("wills", 1))
    await late.until(lambda: len(late.log) == 1)


async def test_after_a_split_the_other_side_keeps_what_is_there_then(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    nodes = await stack.enter_async_context(house(tmp_path))
    a, b, c = (nodes[name] for name in "abc")
    wait(LONG, a, b, c)
    _, goes = await came(stack, b, "s", "g")
    await until(lambda: kept(a, c) == ["g", "s"])
    await nodes.part("b", "a", "c")
    await goes.disconnect()
    await came(stack, b, "c")
    await nodes.mend("b", "a", "c")
    await until(lambda: kept(a, c) == ["c", "s"])
    assert published(a, b, c) == 0


async def test_a_node_that_was_taken_out_publishes_nobodys_wills(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    nodes = await stack.enter_async_context(house(tmp_path))
    a, b, c = (nodes[name] for name in "abc")
    wait(0.3, a, b, c)
    await until(lambda: all(map(owned, (a, b, c))))
    for number in range(20):
        await came(stack, (a, c)[number % 2], f"{number}")
    await until(lambda: len(kept(a, b, c)) == 20)
    assert kept(b)
    clustering(a).node.remove("b", force=True)
    await until(lambda: clustering(b).joining.excluded_by != "")
    await until(lambda: not wills_of(b)._timers and kept(b) == [])
    assert published(b) == 0


@pytest.mark.parametrize(("topic", "flags"), [(b"a/#", 1), (b"", 1), (b"a\0", 0), (b"a", 3)])
def test_what_no_client_could_have_left_is_refused(topic: bytes, flags: int) -> None:
    raw = msgspec.msgpack.encode(KeepWill("", "c", 1, 1, topic, b"", flags))
    with pytest.raises(WireError):
        decode(raw)


async def test_a_split_that_lasts_looks_like_a_node_that_has_ended(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    nodes = await stack.enter_async_context(house(tmp_path))
    a, b, c = (nodes[name] for name in "abc")
    wait(0.3, a, b, c)
    watcher = await stack.enter_async_context(Device("w", clean=True))
    await watching(watcher, a, b, c)
    [stays] = await came(stack, b, "s")
    await until(lambda: kept(a, c) == ["s"])
    await nodes.part("b", "a", "c")
    await watcher.until(lambda: watcher.log == ["s"])
    await nodes.mend("b", "a", "c")
    await until(lambda: kept(a, c) == ["s"])
    await stays.drop()
    await watcher.until(lambda: len(watcher.log) == 2)
    assert published(a, b, c) == 1


class Judge(Plugin):
    """Lets clients publish no will whose ids begin with `refused`; those of others go to another topic."""

    @hook
    async def auth_on_publish(
        self, subscriber_id: SubscriberId, message: Message
    ) -> PublishModifiers:
        if subscriber_id.client_id.startswith("refused"):
            raise Refuse("no will of it")
        return PublishModifiers(topic=f"gone/{message.topic}")


async def test_when_all_end_at_once_what_their_clients_left_is_published_as_plugins_have_it(
    stack: AsyncExitStack, tmp_path: Path
) -> None:
    nodes = await stack.enter_async_context(lives(tmp_path))
    watcher = await stack.enter_async_context(Device("w"))
    await watcher.connect(nodes[0].broker, ("gone/wills", 1))
    names = "abc"
    for name, life in zip(names, nodes, strict=True):
        await came(stack, life.broker, f"{name} 1", f"{name} 2", f"refused {name}")
    brokers = [each.broker for each in nodes]
    wait(LONG, *brokers)  # who dies last publishes nothing of those that died before
    await until(lambda: len(kept(*brokers)) == 9)
    for each in brokers:
        stack.enter_context(silenced(each))
    for each in brokers:
        await kill(each)
    for life in reversed(nodes):
        life.broker = Broker(life.config, plugins={"judge": Judge()})
        await life.broker.start()
    await watcher.connect(nodes[2].broker)
    gone = [f"{name} {number}" for name in names for number in "12"]
    await watcher.until(lambda: len(set(watcher.log)) >= len(gone))
    await until(lambda: not any(wills_of(each.broker)._left_before.count for each in nodes))
    assert kept(*(each.broker for each in nodes)) == []
    late = await stack.enter_async_context(Device("late", clean=True))
    await late.connect(nodes[1].broker, ("gone/wills", 1), ("wills", 1))
    await late.until(lambda: len(late.log) == 1)
    assert sorted(watcher.log) == gone

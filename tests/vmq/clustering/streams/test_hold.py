"""Messages that wait while their partition changes its owner."""

import asyncio
from pathlib import Path
from unittest.mock import patch

from tests.support.until import PATIENCE, until
from tests.support.wire import PUBACK, PUBREC, publish_packet
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.nodes import address, clustering, suspended
from tests.vmq.clustering.stream_nodes import kept, owned, stream, total, with_streams
from tests.vmq.streams.support import options
from vmq.broker import Broker
from vmq.clustering.messages.streams import HoldPartition
from vmq.clustering.streams import hold as holding
from vmq.clustering.streams.hold import PartitionHolds

ONE = options(filters=["x/#"])


def holding_of(broker: Broker) -> PartitionHolds:
    return clustering(broker).streams._holding


def holds(broker: Broker) -> bool:
    return holding_of(broker).holds("s", 0)


async def test_what_is_published_meanwhile_is_acknowledged_when_it_is_on_its_way(
    tmp_path: Path,
) -> None:
    async with owned(tmp_path, s=ONE) as (owner, other), Device("p") as p, Device("q") as q:
        await p.connect(owner)
        await q.connect(other)
        up = clustering(owner).streams.up
        with holding_of(owner).own("s", 0, up) as number:
            await holding_of(owner).quiet("s", 0, number, up)
            assert holds(owner)
            assert holds(other)
            for device in (p, q):
                device.publish("x/1", f"{device.client_id} 1", 1)
                device.publish("x/1", f"{device.client_id} 2", 2)
                device.publish("y", "not in the stream", 1)
                device.publish("x/1", f"{device.client_id} 0", 0)
            await until(lambda: paused(owner) == paused(other) == 1)
            assert [len(device.unfinished) for device in (p, q)] == [3, 3]
            # They are read no further.
            p.publish("x/1", "p 3", 1)
            async with Device("r", clean=True) as other_client:
                await other_client.connect(owner)
            assert waiting(owner) == 3
            assert kept([owner, other], "s") == 0
        await until(lambda: not holds(other))
        await until(lambda: not p.unfinished and not q.unfinished)
        await until(lambda: kept([owner, other], "s") == 7)
        expected = [*(b"p %d" % number for number in range(4)), b"q 0", b"q 1", b"q 2"]
        assert await total([owner], "s") == expected
        assert kept([other], "s") == 0


def paused(broker: Broker) -> int:
    """Connections that a hold keeps from reading."""
    return sum(len(each.paused) for each in holding_of(broker)._held.values())


def waiting(broker: Broker) -> int:
    return sum(len(each.waiting) for each in holding_of(broker)._held.values())


async def test_what_has_waited_is_acknowledged_when_the_store_has_it(tmp_path: Path) -> None:
    async with (
        owned(tmp_path, durability="os", s=ONE) as (owner, other),
        Device("p") as p,
        Device("q", clean=True) as q,
    ):
        await p.connect(other)
        committer, name = other.parts.committer, clustering(owner).node.name
        assert committer is not None
        holding_of(other).on_hold(name, HoldPartition("s", 0, 1, 9))
        p.publish("x/1", "one", 1)
        await until(lambda: waiting(other) == 1)
        await committer.finish_all()
        with suspended(other):
            holding_of(other).on_hold(name, HoldPartition("s", 0, 1, 0))
            await q.connect(other)
            assert len(p.unfinished) == 1
        committer.commit()
        await p.until(lambda: not p.unfinished)
        await until(lambda: kept([owner], "s") == 1)


@patch.object(holding, "PATIENCE", 3600.0)
@patch.object(holding, "_AGAIN", 3600.0)
async def test_a_node_that_is_down_is_not_waited_for(tmp_path: Path) -> None:
    """Nor as long as one that is up: what it is missed by is its silence, however late a busy machine notices that."""
    async with owned(tmp_path, s=ONE) as (owner, other):
        up = clustering(owner).streams.up
        clustering(other).outboxes.arrivals._handlers[HoldPartition] = lambda *_: None
        with holding_of(owner).own("s", 0, up) as number:
            waiting = asyncio.create_task(holding_of(owner).quiet("s", 0, number, up))
            await until(lambda: number in holding_of(owner)._asked)
            await other.stop()
            async with asyncio.timeout(PATIENCE):
                await waiting
        assert holding_of(owner).given_up == 0


@patch.object(holding, "PATIENCE", 0.1)
async def test_who_does_not_answer_is_not_waited_for_long(tmp_path: Path) -> None:
    async with owned(tmp_path, s=ONE) as (owner, other):
        clustering(other).outboxes.arrivals._handlers[HoldPartition] = lambda *_: None
        up = clustering(owner).streams.up
        with holding_of(owner).own("s", 0, up) as number:
            await holding_of(owner).quiet("s", 0, number, up)
        assert holding_of(owner).given_up == 1


async def test_messages_go_on_when_the_owner_is_silent(tmp_path: Path) -> None:
    async with owned(tmp_path, s=ONE) as (owner, other), Device("p") as p:
        await p.connect(other)
        name = clustering(owner).node.name
        holding_of(other).on_hold(name, HoldPartition("s", 0, 1, 1.0))
        p.publish("x/1", "late", 2)
        await until(lambda: paused(other) == 1)
        await p.until(lambda: not p.unfinished)
        assert holding_of(other).given_up == 1
        await until(lambda: kept([owner], "s") == 1)


async def test_only_the_owner_may_ask_and_let_go(tmp_path: Path) -> None:
    async with owned(tmp_path, s=ONE) as (owner, other):
        held, name = holding_of(other), clustering(owner).node.name
        held.on_hold("c", HoldPartition("s", 0, 1, 5))
        assert not holds(other)
        held.on_hold(name, HoldPartition("s", 0, 2, 5))
        held.on_hold("c", HoldPartition("s", 0, 3, 0))
        assert holds(other)
        held.on_down("c")
        assert holds(other)
        held.on_hold(name, HoldPartition("s", 0, 2, 0))
        assert not holds(other)
        held.on_hold(name, HoldPartition("s", 0, 4, 5))
        held.on_down(name)
        assert not holds(other)


@patch.object(holding, "LIMIT", 1000)
async def test_what_waits_is_bounded(tmp_path: Path) -> None:
    async with owned(tmp_path, s=ONE) as (owner, _), Device("p") as p:
        await p.connect(owner)
        p.answers = False
        with holding_of(owner).own("s", 0, clustering(owner).streams.up):
            p.send(
                b"".join(
                    publish_packet("x/1", b"%d" % n + b"x" * 100, qos=1, packet_id=n)
                    for n in range(1, 10)
                )
            )
            await p.until(lambda: not p.is_connected)  # unacknowledged, to send again
        assert stream(owner, "s").appender.refused == 1
        assert not p.found(PUBACK)
        await until(lambda: kept([owner], "s") == 3)


async def test_a_broker_that_stops_keeps_what_waits(tmp_path: Path) -> None:
    """At QoS 2 its session remembers the message: sent again, it would be taken for one that the stream has."""
    async with owned(tmp_path, s=ONE) as (owner, other), Device("p") as p:
        await p.connect(other)
        p.answers = False
        name = clustering(owner).node.name
        holding_of(other).on_hold(name, HoldPartition("s", 0, 1, 9))
        p.send(publish_packet("x/1", b"twice", qos=2, packet_id=1))
        await until(lambda: paused(other) == 1)
        assert not p.found(PUBREC)
        place, folder = address(other), clustering(other).node.name
        await other.stop()
        async with Broker(with_streams(tmp_path, folder, listen=place, s=ONE)):
            await until(lambda: kept([owner], "s") == 1)

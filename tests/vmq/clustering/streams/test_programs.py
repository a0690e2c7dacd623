"""Programs that are members of groups, at several nodes, on which the partitions are, too."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

import vmq.streams
from tests.support.until import until
from tests.vmq.clustering.nodes import address, together
from tests.vmq.clustering.raft.replicas import groups, is_led
from tests.vmq.clustering.stream_nodes import nodes, with_streams
from tests.vmq.clustering.streams.test_groups import STREAM, groups_of, publish, reaches
from tests.vmq.streamed import payloads_of, streams_of
from tests.vmq.streams.client.test_exactly_once import doubled, work
from tests.vmq.streams.client.test_group import payloads
from tests.vmq.streams.support import options
from vmq.broker import Broker
from vmq.clustering.streams.groups import ClusterGroups
from vmq.streams.client.aio import AsyncStreamGroup
from vmq.streams.groups.records import GroupKey
from vmq.streams.groups.steps import PublishStep
from vmq.streams.serving import sinks
from vmq.streams.serving.sinks import SinkRows, Sinks


def group(broker: Broker, patience: float = 60.0) -> vmq.streams.group:
    (listener,) = streams_of(broker).listeners
    return vmq.streams.group("s", "g", server=listener.url, start="earliest", patience=patience)


class Program:
    """It reads and commits."""

    def __init__(self, member: AsyncStreamGroup) -> None:
        self.member = member
        self.found: list[int] = []
        self.task = asyncio.create_task(self.run())

    async def run(self) -> None:
        async for rows in self.member:
            await self.member.commit()
            self.found += payloads(rows)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_programs_at_any_node_share_the_partitions_and_one_cursor(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", "c", flight=True, s=STREAM) as brokers:
        await publish(brokers[0], range(100))
        async with group(brokers[0]) as first, group(brokers[1]) as second:
            await until(lambda: len(first.partitions) == len(second.partitions) == 2)
            programs = [Program(first), Program(second)]
            await publish(brokers[2], range(100, 200))
            await until(lambda: sum(len(each.found) for each in programs) >= 200)
            assert sorted(programs[0].found + programs[1].found) == list(range(200))
            assert all(each.found for each in programs)
            await reaches(brokers[2], 200)
            for each in programs:
                await each.stop()
            await publish(brokers[2], range(200, 216))
        await until(lambda: not any(groups_of(each).coordinator.groups for each in brokers))
        # Its cursor outlives its members.
        async with group(brokers[2]) as third:
            program = Program(third)
            await until(lambda: len(program.found) >= 16)
            assert sorted(program.found) == list(range(200, 216))
            await program.stop()


OUT = options(filters=["out/#"])


def staged(folder: Path) -> list[Path]:
    return list(folder.glob("*/sinks/members.*"))


async def out_of(brokers: list[Broker]) -> list[int]:
    """What was published, whichever node has it."""
    return sorted([int(row) for each in brokers for row in await payloads_of(each, "out")])


async def test_what_is_published_goes_with_the_commit_at_any_node(tmp_path: Path) -> None:
    async with nodes(tmp_path, "a", "b", "c", flight=True, s=STREAM, out=OUT) as brokers:
        await publish(brokers[2], range(100))
        async with group(brokers[0]) as first, group(brokers[1]) as second:
            await until(lambda: len(first.partitions) == len(second.partitions) == 2)
            tasks = [asyncio.create_task(answer(each)) for each in (first, second)]
            await reaches(brokers[2], 100)
            for each in tasks:
                each.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: not any(groups_of(each).coordinator.groups for each in brokers))
        # A member that goes leaves what was accepted to its node, which publishes that.
        await until(lambda: not staged(tmp_path))
        assert await out_of(brokers) == [2 * each for each in range(100)]


async def answer(member: AsyncStreamGroup) -> None:
    """Publishes what comes of each row, as long as it may."""
    async for rows in member:
        await member.commit(doubled(rows))


async def test_a_node_that_ends_before_it_hears_the_answer_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was accepted is published then."""
    real, waits = ClusterGroups.decided, asyncio.Event()

    async def decided(self: ClusterGroups, key: GroupKey, step: PublishStep) -> bool:
        assert await real(self, key, step)
        waits.set()
        return await asyncio.Event().wait()

    async with nodes(tmp_path, "a", "b", "c", flight=True, s=STREAM, out=OUT) as brokers:
        await publish(brokers[2], range(20))
        monkeypatch.setattr(ClusterGroups, "decided", decided)
        async with group(brokers[0], 0.0) as member:
            working = asyncio.create_task(work(member, 20))
            await waits.wait()
            await brokers[0].stop()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        assert await out_of(brokers[1:]) == []
        assert len(staged(tmp_path)) == 1
        monkeypatch.setattr(ClusterGroups, "decided", real)
        brokers[0] = Broker(brokers[0].config)
        await brokers[0].start()
        await until(lambda: not staged(tmp_path))
        before = len(await out_of(brokers))
        assert before > 0
        async with group(brokers[1]) as member:
            await work(member, 20 - before)
            assert await member.read(0.0) is None
        assert await out_of(brokers) == [2 * each for each in range(20)]


@asynccontextmanager
async def copied(folder: Path) -> AsyncIterator[list[Broker]]:
    """Three nodes, each of which has a copy of both streams."""
    made = {
        "s": msgspec.structs.replace(STREAM, replicas=3),
        "out": msgspec.structs.replace(OUT, replicas=3),
    }
    brokers: list[Broker] = []
    try:
        for name in "abc":
            join = address(brokers[0]) if brokers else ""
            brokers.append(Broker(with_streams(folder, name, join, "", "memory", True, **made)))
            await brokers[-1].start()
        await together(*brokers)
        await until(lambda: all(has_leaders(each) for each in brokers))
        yield brokers
    finally:
        for each in brokers:
            await each.stop()


def has_leaders(broker: Broker) -> bool:
    places = groups(broker).places
    return is_led(broker, 4) and bool(places.leader("out", 0))


async def wiped(brokers: list[Broker], number: int) -> None:
    """A node ends, and comes back with an empty disk."""
    broker = brokers[number]
    await broker.stop()
    shutil.rmtree(broker.config.broker.data_dir)
    joins = [address(each) for each in brokers if each is not broker]
    cluster = msgspec.structs.replace(broker.config.cluster, join=joins[:1])
    config = msgspec.structs.replace(broker.config, cluster=cluster)
    brokers[number] = Broker(config)
    await brokers[number].start()


@pytest.mark.parametrize("published", [0, 1])
async def test_a_disk_that_is_lost_takes_nothing_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: int
) -> None:
    """Its node dies when the step is accepted, before any of it is published, or behind some of it."""
    real, waits = Sinks.publish_rows, asyncio.Event()
    done: list[int] = []

    async def publish_rows(self: Sinks, query: str, batch: int, rows: SinkRows) -> None:
        if len(done) >= published:
            waits.set()
            await asyncio.Event().wait()
        done.append(batch)
        await real(self, query, batch, rows)

    monkeypatch.setattr(sinks, "STEP", 4)
    async with copied(tmp_path) as brokers:
        await publish(brokers[2], range(20))
        monkeypatch.setattr(Sinks, "publish_rows", publish_rows)
        async with group(brokers[0], 0.0) as member:
            working = asyncio.create_task(work(member, 20))
            await waits.wait()
            await wiped(brokers, 0)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        monkeypatch.setattr(Sinks, "publish_rows", real)
        # In this order: what a host keeps for another becomes its own.
        await until(lambda: not [*tmp_path.glob("*/copies/members.*"), *staged(tmp_path)])
        await until(lambda: len({end_of(each) for each in brokers}) == 1)
        before = len(await rows_of(brokers[1]))
        assert before > 4 * published
        async with group(brokers[1]) as member:
            await work(member, 20 - before)
            assert await member.read(0.0) is None
        assert await rows_of(brokers[1]) == [2 * each for each in range(20)]


def end_of(broker: Broker) -> int:
    """As far as a node knows that what was published is on most of them."""
    return streams_of(broker).catalog.streams["out"].partitions[0].end


async def rows_of(broker: Broker) -> list[int]:
    """What was published, of which each node has a copy."""
    return sorted([int(row) for row in await payloads_of(broker, "out")])

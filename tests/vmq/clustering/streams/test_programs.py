"""Programs that are members of groups, at several nodes, on which the partitions are, too."""

import asyncio
from pathlib import Path

import pytest

import vmq.streams
from tests.support.until import until
from tests.vmq.clustering.stream_nodes import nodes
from tests.vmq.clustering.streams.test_groups import STREAM, groups_of, publish, reaches
from tests.vmq.streamed import streams_of
from tests.vmq.streams.client.test_group import payloads
from vmq.broker import Broker
from vmq.streams.client.aio import AsyncStreamGroup


def group(broker: Broker) -> vmq.streams.group:
    (listener,) = streams_of(broker).listeners
    return vmq.streams.group("s", "g", server=listener.url, start="earliest")


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
    async with nodes(tmp_path, "a", "b", "c", s=STREAM) as brokers:
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
            rows = None
            await publish(brokers[2], range(200, 216))
            while rows is None:
                rows = await first.read()
            with pytest.raises(vmq.streams.GroupError, match="in a cluster"):
                await first.commit([("out/1", b"")])
        await until(lambda: not any(groups_of(each).coordinator.groups for each in brokers))
        # Its cursor outlives its members.
        async with group(brokers[2]) as third:
            program = Program(third)
            await until(lambda: len(program.found) >= 16)
            assert sorted(program.found) == list(range(200, 216))
            await program.stop()

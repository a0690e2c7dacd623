"""Reads a stream for a mapping: what comes of its rows is published in one step with the group's cursor.

A mapping is a member of a group of its own, as a program is that publishes with its commits. So each row is mapped
once, whatever ends in between; in a cluster the nodes share the partitions.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from vmq.config.mappings import MAPPED
from vmq.mqtt.special import GroupTopic
from vmq.streams.catalog import Catalog
from vmq.streams.client.aio import AsyncStreamGroup
from vmq.streams.client.errors import FencedError, GroupError
from vmq.streams.client.group import StreamGroup
from vmq.streams.log.errors import StreamError
from vmq.streams.logs import plain
from vmq.streams.serving.inside import InsideConnection
from vmq.streams.serving.programs import Programs

#: Rows that are mapped before others have a turn, and at most in one step.
_AT_ONCE: Final = 64
_ROWS: Final = 2000
#: Seconds until a mapping that cannot read tries again.
_AGAIN: Final = 1.0


class RowMapper(Protocol):
    """A mapping, as the streams know it."""

    name: str

    def refuses(self, streams: Mapping[str, Sequence[str]]) -> str:
        """Why it reads none of these streams, which have these filters; empty: it does."""

    async def map(self, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, bytes, int, bool]]:
        """What comes of some rows: topic, payload, QoS and RETAIN of messages.

        Raises:
            OSError: what has to be kept of them beside that cannot be.
        """

    def joined(self) -> None:
        """It reads."""

    def committed(self, messages: int) -> None:
        """So many are published, or will be."""

    def cannot(self, reason: str) -> None:
        """It cannot go on for now."""


class StreamFollower:
    """Reads streams for mappings.

    Args:
        catalog: the streams.
        programs: the groups.
    """

    def __init__(self, catalog: Catalog, programs: Programs) -> None:
        self.catalog = catalog
        self.programs = programs

    async def follow(self, topic: GroupTopic, mapper: RowMapper) -> None:
        """Has a mapping read a stream until that is cancelled."""
        while True:
            try:
                await self.read(topic, mapper)
            except (GroupError, StreamError, OSError) as error:
                mapper.cannot(str(error))
            await asyncio.sleep(_AGAIN)

    async def read(self, topic: GroupTopic, mapper: RowMapper) -> None:
        """Does so until something fails.

        Raises:
            StreamError: there is no such stream, or the mapping would feed itself.
            GroupError: the group, or a partition, cannot be had.
            OSError: the disk.
        """
        self.catalog.get(topic.stream)
        known = {name: each.options.filters for name, each in self.catalog.streams.items()}
        flaw = mapper.refuses(known)
        if flaw:
            raise StreamError(flaw)
        name = MAPPED + mapper.name
        asked = {
            "stream": topic.stream,
            "group": name,
            "filter": topic.filter,
            "start": topic.options.get("from", "latest"),
        }

        def join() -> StreamGroup:
            return StreamGroup(InsideConnection(self.programs, name), asked, rows=_ROWS)

        async with AsyncStreamGroup(join) as member:
            mapper.joined()
            async for rows in member:
                await self.publish(member, rows, mapper)

    async def publish(
        self, member: AsyncStreamGroup, rows: pa.RecordBatch, mapper: RowMapper
    ) -> None:
        """Publishes what comes of some rows, and moves the cursor."""
        messages: list[tuple[str, bytes, int, bool]] = []
        for start in range(0, rows.num_rows, _AT_ONCE):
            messages += await mapper.map(list(plain(rows.slice(start, _AT_ONCE))))
            await asyncio.sleep(0)
        try:
            await member.commit(messages)
        except FencedError:
            return  # whoever has the partition now maps these rows
        mapper.committed(len(messages))

"""A member of a consumer group that is a program: it is told what it has, reads that itself, and says how far it is."""

import asyncio
from collections.abc import Mapping
from typing import Final

from vmq.streams.groups.share import LEASE
from vmq.streams.replay import group as groups
from vmq.streams.replay.group import ConsumerGroup, GivenBack

#: From so many deliveries of a row on rows are handed over one by one, so that it is known which of them nobody takes.
ONE_BY_ONE: Final = groups.MAX_DELIVERIES // 2
#: Rows that a program may be handed at once.
MOST_ROWS: Final = 65_536


class ProgramPart:
    """A partition that a program has."""

    def __init__(self, start: int, generation: int, rows: int) -> None:
        self.done = start
        self.generation = generation
        #: Rows that may be handed over at once.
        self.rows = rows
        #: The offset of the first row that was handed over and is not committed; -1: none was.
        self.first = -1
        #: It was asked back, and the program knows.
        self.is_back = False


class ProgramMember:
    """A program that is a member; see `vmq.streams.replay.group.PartitionMember`.

    Args:
        name: by which it is known to the group.
        user: whose it is.
        group: the group.
    """

    def __init__(self, name: str, user: str | None, group: ConsumerGroup) -> None:
        self.name = name
        self.user = user
        self.group = group
        self.parts: dict[int, ProgramPart] = {}
        self.generations: dict[int, int] = {}
        self.leaving: dict[int, float] = {}
        #: When it was heard last.
        self.heard = group.clock()
        self.joined = self.heard
        self.quiet_since = self.heard
        self.is_stalled = False
        self.rows_moved = 0
        #: Where partitions end, as it says.
        self.seen: Mapping[int, int] = {}
        #: The batch that is being published with a commit, the last one that was, and the partitions that wait for it.
        self.batch = -1
        self.published = -1
        self.busy: set[int] = set()
        self.publishing: asyncio.Task[list[int]] | None = None
        #: It is to end once that is done.
        self.is_ending = False
        #: Why it is none any more; empty: it is one.
        self.error = ""

    @property
    def client_id(self) -> str:
        return f"flight:{self.user or ''}"

    # As its group knows it

    def give(self, partition: int, start: int, generation: int) -> None:
        deliveries = self.group.deliveries.get(partition, 0)
        rows = 1 if deliveries >= ONE_BY_ONE else MOST_ROWS
        self.generations[partition] = generation
        self.parts[partition] = ProgramPart(start, generation, rows)

    def take_away(self, partition: int, until: float) -> None:
        self.leaving[partition] = until

    def lose(self, partition: int) -> GivenBack:
        del self.generations[partition]
        self.leaving.pop(partition, None)
        part = self.parts.pop(partition)
        return GivenBack(part.done, part.first if part.first >= part.done else -1)

    def is_waiting(self, partition: int | None = None) -> bool:
        if partition is not None:
            part = self.parts[partition]
            return not part.is_back or part.first >= part.done
        return not self.busy and any(each.first >= each.done for each in self.parts.values())

    def may_give_back(self, partition: int) -> bool:
        return partition not in self.busy

    def positions(self) -> Mapping[int, int]:
        return {number: part.done for number, part in self.parts.items()}

    def ends(self) -> Mapping[int, int]:
        return self.seen

    def moved(self) -> int:
        return self.rows_moved

    def settle(self) -> None:
        self.rows_moved = 0

    def end(self, why: str) -> None:
        self.error = self.error or why

    # What it says

    def is_own(self, partition: int, generation: int) -> bool:
        """Whether it has a partition in this generation; else it is fenced."""
        return self.generations.get(partition) == generation

    def hand_over(self, has: Mapping[int, int]) -> None:
        """These are the first rows, by partition, that it has been handed and has not committed."""
        for number, part in self.parts.items():
            part.first = has.get(number, -1)

    def give_back(self, partition: int, generation: int) -> None:
        """Nothing more of a partition is handed over."""
        if partition in self.leaving and self.is_own(partition, generation):
            self.parts[partition].is_back = True

    def commit(self, partition: int, position: int) -> None:
        """It is done with what comes before an offset."""
        part = self.parts[partition]
        if position > part.done:
            self.rows_moved += position - part.done
            part.done = position
            part.rows = MOST_ROWS
            self.group.deliveries.pop(partition, None)

    def vanish(self) -> None:
        """It is not heard of any more: what it was handed last nobody knows, so it counts from where it was."""
        for part in self.parts.values():
            if part.rows > 1:
                part.first = max(part.first, part.done)

    def lease(self, now: float) -> float:
        """Seconds from now for which it may hand over rows of what it has."""
        until = now + LEASE
        if self.group.share is not None:
            until = min(until, self.group.share.lease_until)
        if self.is_waiting():
            # Others have what it has once it is stalled.
            until = min(until, self.quiet_since + groups.ACK_TIMEOUT)
        return 0.0 if self.is_stalled else max(0.0, until - now)

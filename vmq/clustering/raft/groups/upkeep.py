"""What a leader sees to now and then: segments that are full, retention, and compaction; and when it looks again.

A group that rests is looked at seldom: nothing becomes too much but by what is written, nor too old before its time. It
is looked at all the same, for clocks may be put forward.
"""

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from random import random
from typing import Any, Final

from vmq.streams.replica.partition import ReplicaPartition
from vmq.streams.replica.tidying import due
from vmq.streams.tidying.compaction import TOMBSTONES_STAY, CompactionNote
from vmq_cluster.raft.group import Group

#: Seconds between two ticks of groups that are awake.
TICK: Final = 0.05
#: Seconds between two rounds of looks at groups that rest: of thousands, one is always due.
ROUND: Final = 1.0
#: Seconds until a group is looked at again in which something happened; and at most.
LOOK: Final = 5.0
_REST: Final = 600.0


class LookTimes:
    """When groups are looked at next."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str]] = []
        self._at: dict[str, float] = {}

    def set(self, name: str, at: float) -> None:
        """A group is looked at then, or earlier if that is decided already."""
        known = self._at.get(name)
        if known is None or at < known:
            self._at[name] = at
            heappush(self._heap, (at, name))

    def pause(self, now: float, is_busy: bool) -> float:
        """Seconds for which the thread of the groups has nothing to do by itself."""
        if is_busy:
            return TICK
        return min(LOOK, max(ROUND, self._heap[0][0] - now)) if self._heap else LOOK

    def due(self, now: float) -> Iterator[str]:
        """Those that are to be looked at now."""
        while self._heap and self._heap[0][0] <= now:
            at, name = heappop(self._heap)
            if self._at.get(name) == at:
                del self._at[name]
                yield name


def rest(partition: ReplicaPartition, group: Group | None) -> float:
    """Seconds for which nothing is to be seen to, if nothing happens to the group."""
    options, kept = partition.options, partition.log
    if group is None or kept is None or options.compact or partition.archive is not None:
        return LOOK
    longest = _REST * (1 - random() / 4)  # not all at once
    if group.leading is None:
        return longest
    ages = [kept.full_at]
    if kept.old and options.retention_age_seconds is not None:
        ages.append(kept.old[0].time / 1e6 + options.retention_age_seconds)
    return min(longest, max(LOOK, min(ages) - partition.clock()))


def follow(partition: ReplicaPartition, group: Group) -> None:
    """The replica is to be compacted as far as is decided, and committed."""
    partition.leads = group.leading is not None
    if partition.options.compact:
        partition.decided = CompactionNote(*group.compaction)


def lead(partition: ReplicaPartition, group: Group, do: Callable[..., Any], now: float) -> None:
    """Decides for all replicas. `do`: lets the group do something."""
    kept = partition.log
    if kept is None:
        return
    if kept.is_full and kept.end == group.replica.commit:
        do(group, group.retire, (), now)  # begins a segment without rows
    first = partition.retained_from()
    if first > kept.first:
        do(group, group.keep_from, first)
        # Files go with that, and the next pass may be the event loop's.
        do(group, group.tick, now)
    if partition.options.compact:
        decided = CompactionNote(*group.replica.state.compaction)
        before = int((partition.clock() - TOMBSTONES_STAY) * 1_000_000)
        wanted = due(partition, decided, before)
        if wanted.end > decided.end and group.compaction == group.replica.state.compaction:
            do(group, group.compact, wanted.end, wanted.before, now)

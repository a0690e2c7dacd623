"""What a leader sees to now and then: segments that are full, retention, and compaction."""

from collections.abc import Callable
from typing import Any

from vmq.streams.replica.partition import ReplicaPartition
from vmq.streams.replica.tidying import due
from vmq.streams.tidying.compaction import TOMBSTONES_STAY, CompactionNote
from vmq_cluster.raft.group import Group


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
    if partition.options.compact:
        decided = CompactionNote(*group.replica.state.compaction)
        before = int((partition.clock() - TOMBSTONES_STAY) * 1_000_000)
        wanted = due(partition, decided, before)
        if wanted.end > decided.end and group.compaction == group.replica.state.compaction:
            do(group, group.compact, wanted.end, wanted.before, now)

"""The groups of this node, as their thread has them; and what an operator gives up of them.

That is copies that are lost, and what no copy has whole. Called in the thread.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vmq.streams.log.keys import Keys
from vmq.streams.replica.log import ReplicaLog
from vmq.streams.replica.partition import ReplicaPartition
from vmq_cluster.raft.group import Group
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import STATE, Batch
from vmq_cluster.raft.state import genesis


@dataclass(slots=True)
class Opened:
    """A group of this node."""

    partition: ReplicaPartition
    keys: Keys | None
    #: Whom its first members are; who is one begins its log with that.
    first: tuple[str, ...]
    group: Group | None = None
    #: The voters that it is to have, if this node leads it.
    wanted: tuple[str, ...] = ()


def begin(log: ReplicaLog, first: tuple[str, ...]) -> None:
    """A log that is empty begins with who the first members are. Raises `OSError`."""
    log.append([Batch(log.end, 1, 0, STATE, (), genesis(Members(first)))])
    log.sync()


def has_part(opened: Mapping[str, Opened], name: str) -> bool:
    """Whether this node has a replica of a group, and has not been told that it is no member any more."""
    found = opened.get(name)
    return found is not None and (found.group is None or not found.group.removed)


def give_away(group: Group, drained: Collection[str], do: Callable[..., Any], now: float) -> bool:
    """Has another replica lead, one of the `drained` only where no other can; whether it begins to."""
    progress = {} if group.leading is None else group.leading.progress
    able = [name for name in progress if name not in drained]
    able.sort(key=lambda name: progress[name].match, reverse=True)
    return any(do(group, group.transfer, name, now) for name in (*able, ""))


def leads_any(opened: Mapping[str, Opened]) -> bool:
    """Whether others are still to take over something."""
    leading = [each.group.leading for each in opened.values() if each.group is not None]
    return any(each is not None and each.transfer is not None for each in leading)


def recover(
    opened: Mapping[str, Opened],
    own: str,
    names: Sequence[str],
    system: Sequence[str],
    do: Callable[..., Any],
    failed: Mapping[str, str],
) -> dict[str, str]:
    """Has groups without a leader go on with this node's replica alone, those of no stream (`system`) if it counts.

    Returns why not, by group. `own`: this node's name in groups. `do`: lets a group do something. `failed`: what went
    wrong with groups.
    """
    wrong = {}
    for name in [*system, *names]:
        found = opened.get(name)
        group = None if found is None else found.group
        if found is None or group is None:
            wrong[name] = failed.get(name, "this node has no replica of it")
            continue
        if name in system and own not in group.replica.members.voters:
            continue
        why = do(group, group.recover, time.monotonic())
        if why != "":
            wrong[name] = why or failed[name]
    return wrong


def give_up(
    opened: Mapping[str, Opened],
    names: Sequence[str],
    do: Callable[..., Any],
    failed: Mapping[str, str],
) -> dict[str, str]:
    """Has groups give up what is damaged here and nobody has; those that are in need of it.

    Returns why they cannot, or not yet, by group; "": it is on its way.
    """
    found = {}
    for name in names:
        each = opened.get(name)
        if each is None or each.group is None or each.group.leading is None:
            continue
        if not each.group.replica.log.damage:
            continue
        why = do(each.group, each.group.give_up, time.monotonic())
        found[name] = failed[name] if why is False else why
    return found

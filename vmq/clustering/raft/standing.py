"""How this node's replicas stand: which of them count, which may have forgotten, who is behind. In the thread."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from vmq.clustering.raft.records import Lead, node_of
from vmq.clustering.raft.thread import GroupThread
from vmq_cluster.raft.group import Group

#: Looks until what is led is told again, in case it did not stand.
_AGAIN: Final = 30


@dataclass(frozen=True, slots=True)
class Standing:
    """One replica: its group's term, and, where it leads, how many offsets others lack, by node."""

    term: int
    behind: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class OwnReplicas:
    """All of them, by group."""

    #: Those that count, and know their leader: they can be read.
    current: frozenset[str] = frozenset()
    #: Those that may have forgotten, and count for nothing until they have caught up.
    abstaining: frozenset[str] = frozenset()
    standings: Mapping[str, Standing] = field(default_factory=dict)


class Observer:
    """Looks at the groups of a node, and remembers what it has told."""

    def __init__(self) -> None:
        self._told: dict[str, Lead] = {}
        self._looks = 0

    def look(
        self, thread: GroupThread, system: Collection[str]
    ) -> tuple[OwnReplicas, dict[str, Lead]]:
        """How this node's replicas stand; and what it leads, where that is news. `system`: groups of no stream."""
        self._looks += 1
        if self._looks % _AGAIN == 0:
            self._told.clear()
        current, abstaining = set(), set()
        standings: dict[str, Standing] = {}
        news: dict[str, Lead] = {}
        for name, opened in thread.opened.items():
            group = opened.group
            if group is None or name in system:
                continue
            replica = group.replica
            standings[name] = Standing(replica.term, _behind(group))
            if thread.name not in replica.members.voters:
                continue
            if replica.abstains:
                abstaining.add(name)
            elif replica.leader:
                current.add(name)
            lead = _lead(group, thread.name)
            if lead is not None and self._told.get(name) != lead:
                self._told[name] = news[name] = lead
        return OwnReplicas(frozenset(current), frozenset(abstaining), standings), news


def _lead(group: Group, own: str) -> Lead | None:
    """What this node leads, with whom; None as long as that is not committed."""
    replica = group.replica
    if group.leading is None or not group.leading.is_established:
        return None
    if replica.state.members_end > replica.commit:
        return None
    return Lead(replica.term, own, replica.members.voters)


def _behind(group: Group) -> dict[str, int]:
    if group.leading is None:
        return {}
    end = group.replica.log.end
    return {
        node_of(name): end - each.match
        for name, each in group.leading.progress.items()
        if each.match < end or not each.counts
    }

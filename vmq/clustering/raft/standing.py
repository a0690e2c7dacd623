"""How this node's replicas stand: which of them count, which may have forgotten, who is behind. In the thread."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from vmq.clustering.raft.groups.thread import GroupThread
from vmq.clustering.raft.records import Lead, node_of
from vmq_cluster.raft.group import Group

#: Looks until what is led is told again, in case it did not stand.
_AGAIN: Final = 30


@dataclass(frozen=True, slots=True)
class Standing:
    """One replica: its group's term, and, where it leads, how many offsets others lack, by node; None: not known."""

    term: int
    behind: Mapping[str, int | None]
    #: What it leads and is damaged here, as (first, end); and what was given up.
    damage: tuple[tuple[int, int], ...] = ()
    given_up: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class OwnReplicas:
    """All of them, by group."""

    #: Those that count, and know their leader: they can be read.
    current: frozenset[str] = frozenset()
    #: Those that may have forgotten, and count for nothing until they have caught up.
    abstaining: frozenset[str] = frozenset()
    standings: Mapping[str, Standing] = field(default_factory=dict)
    #: Offsets that may be lost, and the terms that said so; of groups of no stream, too.
    uncertain: Mapping[str, tuple[tuple[int, int, int], ...]] = field(default_factory=dict)


class Observer:
    """Looks at those groups of a node in which something happened, and remembers the others, and what it has told."""

    def __init__(self) -> None:
        self._told: dict[str, Lead] = {}
        self._looks = 0
        self._current: set[str] = set()
        self._abstaining: set[str] = set()
        self._standings: dict[str, Standing] = {}
        self._uncertain: dict[str, tuple[tuple[int, int, int], ...]] = {}
        self._found = OwnReplicas()

    def look(
        self, thread: GroupThread, system: Collection[str]
    ) -> tuple[OwnReplicas, dict[str, Lead]]:
        """How this node's replicas stand; and what it leads, where that is news. `system`: groups of no stream."""
        self._looks += 1
        news = dict(self._told) if self._looks % _AGAIN == 0 else {}
        is_other = False
        for name in thread.host.take_touched():
            opened = thread.opened.get(name)
            group = None if opened is None else opened.group
            before = self._standing_of(name)
            self._look_for_losses(name, group)
            lead = None if name in system else self._look_at(name, group, thread.name)
            is_other = is_other or self._standing_of(name) != before
            if name in system:
                continue
            if lead is None:
                self._told.pop(name, None)
                news.pop(name, None)
            elif self._told.get(name) != lead:
                self._told[name] = news[name] = lead
        if is_other:
            self._found = OwnReplicas(
                frozenset(self._current),
                frozenset(self._abstaining),
                dict(self._standings),
                dict(self._uncertain),
            )
        return self._found, news

    def _standing_of(self, name: str) -> tuple[object, ...]:
        """All that is known of one replica."""
        counts = name in self._current, name in self._abstaining
        return *counts, self._standings.get(name), self._uncertain.get(name)

    def _look_for_losses(self, name: str, group: Group | None) -> None:
        """They stand in the log: so a restart forgets none, and whoever gets a copy knows them."""
        found = () if group is None else group.replica.uncertain
        if found:
            self._uncertain[name] = found
        else:
            self._uncertain.pop(name, None)

    def _look_at(self, name: str, group: Group | None, own: str) -> Lead | None:
        """One group; returns how this node leads it, if it does."""
        self._current.discard(name)
        self._abstaining.discard(name)
        if group is None:
            self._standings.pop(name, None)
            return None
        replica = group.replica
        damage = () if group.leading is None else tuple(replica.log.damage)
        self._standings[name] = Standing(replica.term, _behind(group), damage, replica.given_up)
        if own not in replica.members.voters:
            return None
        if replica.abstains:
            self._abstaining.add(name)
        elif replica.leader:
            self._current.add(name)
        return _lead(group, own)


def _lead(group: Group, own: str) -> Lead | None:
    """What this node leads, with whom; None as long as that is not committed."""
    replica = group.replica
    if group.leading is None or not group.leading.is_established:
        return None
    if replica.state.members_end > replica.commit:
        return None
    return Lead(replica.term, own, replica.members.voters)


def _behind(group: Group) -> dict[str, int | None]:
    if group.leading is None:
        return {}
    end = group.replica.log.end
    return {
        node_of(name): end - each.match if each.match or not each.probing else None
        for name, each in group.leading.progress.items()
        if each.match < end or not each.counts
    }

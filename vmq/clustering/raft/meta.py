"""The meta group on one node, in the thread of the groups: its log, what is decided, and what its leader proposes."""

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from vmq.clustering.raft.decisions import Known, next_commands
from vmq.clustering.raft.groups.thread import GroupThread
from vmq.clustering.raft.system import SystemLog
from vmq_cluster.raft.group import Group
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.meta import Definitions, Placement, RefusedError, encode

#: Bytes of a segment; all of them stay.
_SEGMENT: Final = 128 << 20


class MetaDecisions(msgspec.Struct, frozen=True):
    """What is decided, up to an offset of the meta group's log; of groups what is news, unless all of it is told.

    Where this node does not lead nothing is told of groups.
    """

    at: int
    leads: bool
    hosts: tuple[str, ...]
    #: By name: id, partitions, replicas.
    streams: dict[str, tuple[str, int, int]]
    #: Also those that an operator wants elsewhere.
    groups: dict[str, Placement]
    is_whole: bool
    #: Streams that are no more since the last news: name, id, partitions.
    gone: list[tuple[str, str, int]]
    members: Members


class DecisionTeller:
    """Tells what is decided, each of it once: of thousands of groups those that have changed.

    Args:
        definitions: what is decided.
    """

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._told: tuple[int, bool, Members] | None = None
        self._streams: dict[str, tuple[str, int, int]] = {}

    def begin_anew(self, definitions: Definitions) -> None:
        """What was decided may not be any more: all of it is told again where this node leads."""
        self._definitions = definitions
        self._told = None

    def tell(
        self, applied: int, leads: bool, members: Members, moves: Collection[str]
    ) -> MetaDecisions | None:
        """What is news since this was asked last, if anything is: all, to a node that leads now.

        Args:
            applied: how far the group's log is applied.
            leads: whether this node leads the group.
            members: of the group.
            moves: groups that an operator wants elsewhere.
        """
        if self._told == (applied, leads, members):
            return None
        is_whole = leads and not (self._told is not None and self._told[1])
        self._told = (applied, leads, members)
        found = self._definitions
        streams = {
            name: (each.id, each.partitions, each.replicas) for name, each in found.streams.items()
        }
        gone = [
            (name, stream[0], stream[1])
            for name, stream in self._streams.items()
            if name not in streams or streams[name][0] != stream[0]
        ]
        self._streams = streams
        changed = found.take_changed()
        names = [*found.groups] if is_whole else {*changed, *moves} & found.groups.keys()
        groups = {name: found.groups[name] for name in names if leads}
        return MetaDecisions(applied, leads, found.hosts, streams, groups, is_whole, gone, members)


class MetaGroup(SystemLog):
    """The meta group of this node's cluster.

    Args:
        thread: the node's groups.
        folder: where its log lies.
        name: the group's.
        on_decided: called in the thread when more is decided, or this node leads the group now, or no more.
    """

    def __init__(
        self,
        thread: GroupThread,
        folder: Path,
        name: str,
        on_decided: Callable[[MetaDecisions], None],
    ) -> None:
        super().__init__(thread, folder, name, "meta", _SEGMENT)
        self._on_decided = on_decided
        self._definitions = Definitions()
        self._teller = DecisionTeller(self._definitions)
        #: Voters of groups that are not decided yet.
        self._news: dict[str, tuple[tuple[str, ...], int]] = {}
        self._is_proposing = False
        #: With what was decided by then, and known, there was nothing to propose.
        self._idle: tuple[int, Known] | None = None

    def _forget(self) -> None:
        self._idle = None
        self._definitions = Definitions()
        self._teller.begin_anew(self._definitions)

    def _apply(self, _offset: int, row: bytes) -> None:
        try:
            self._definitions.apply(row)
        except (RefusedError, msgspec.MsgspecError):
            pass  # all refuse it alike

    def look(self, known: Known | None = None) -> None:
        """What there is may have changed: its leader proposes what follows, and all tell what is decided."""
        if known is not None:
            self.known = known
            self._news.update(known.members)
        if (group := self._group) is None:
            return
        self._catch_up(group)
        leads = self._leads(group)
        if leads and self._applied >= group.replica.commit and not self._is_proposing:
            self._propose(group)
        if leads:
            self._aim(group)
        self._tell(leads, group.replica.members)

    def _propose(self, group: Group) -> None:
        idle = self._idle
        if idle is not None and idle[0] == self._applied and idle[1] is self.known:
            return
        groups = self._definitions.groups
        self._news = {
            group: (voters, term)
            for group, (voters, term) in self._news.items()
            if group in groups and voters != groups[group].voters and term >= groups[group].term
        }
        commands = next_commands(self._definitions, replace(self.known, members=self._news))
        if not commands:
            self._idle = (self._applied, self.known)
            return
        self._is_proposing = True
        self._propose_rows(group, [encode(each) for each in commands], self._on_answer)

    def _on_answer(self, _status: int) -> None:
        self._is_proposing = False
        self._thread.post(self.look)

    def _tell(self, leads: bool, members: Members) -> None:
        told = self._teller.tell(self._applied, leads, members, self.known.moves)
        if told is not None:
            self._on_decided(told)

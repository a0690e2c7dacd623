"""The meta group on one node, in the thread of the groups: its log, what is decided, and what its leader proposes."""

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec

from vmq.clustering.raft.decisions import Known, meta_voters, next_commands
from vmq.clustering.raft.groups.thread import GroupThread
from vmq.clustering.raft.produce import Take
from vmq.config.streams import StreamOptions
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.gathering import Gathering
from vmq.streams.log.keys import Keys
from vmq.streams.replica.partition import ReplicaPartition
from vmq_cluster.raft.group import Group
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import Mark
from vmq_cluster.raft.meta import Definitions, Placement, RefusedError, encode

#: Its log is on the disk itself: what it decides must outlive a power failure of all.
_OPTIONS: Final = StreamOptions(
    filters=["meta"], durability="fsync", key="topic", retention_age="never", segment_age="never"
)


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


class MetaGroup:
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
        self.name = name
        self.known = Known()
        self._thread = thread
        self._on_decided = on_decided
        self._partition = ReplicaPartition(folder, "meta", 0, _OPTIONS)
        self._reader = LogReader(self._partition, ["payload"])
        self._keys = Keys(_OPTIONS)
        self._definitions = Definitions()
        self._applied = 0
        #: The term of the last unclean election that is in the log.
        self._unclean = 0
        self._teller = DecisionTeller(self._definitions)
        #: Voters of groups that are not decided yet.
        self._news: dict[str, tuple[tuple[str, ...], int]] = {}
        self._is_proposing = False
        #: With what was decided by then, and known, there was nothing to propose.
        self._idle: tuple[int, Known] | None = None

    def open(self, first: tuple[str, ...]) -> None:
        """Opens its log; `first`: who began the group, if that is to be done."""
        self._thread.open(self.name, self._partition, self._keys, first)

    def close(self) -> None:
        """Lets go of it, for another one counts."""
        self._thread.close(self.name, erase=True)

    def _catch_up(self, group: Group) -> None:
        unclean = group.replica.state.last_unclean[1]
        if unclean != self._unclean:  # it took back, perhaps, what was decided here
            self._unclean, self._applied, self._idle = unclean, 0, None
            self._definitions = Definitions()
            self._teller.begin_anew(self._definitions)
        end = self._partition.end
        if end > self._applied:
            for chunk in self._reader.read(max(self._applied, self._partition.earliest), end):
                for row in chunk.rows.column(0).to_pylist():
                    self._apply(row)
            self._applied = end

    def _apply(self, row: bytes) -> None:
        try:
            self._definitions.apply(row)
        except (RefusedError, msgspec.MsgspecError):
            pass  # all refuse it alike

    def look(self, known: Known | None = None) -> None:
        """What there is may have changed: its leader proposes what follows, and all tell what is decided."""
        if known is not None:
            self.known = known
            self._news.update(known.members)
        opened = self._thread.opened.get(self.name)
        group = None if opened is None else opened.group
        if group is None:
            return
        self._catch_up(group)
        leading = group.leading
        leads = leading is not None and leading.is_established
        if leads and self._applied >= group.replica.commit and not self._is_proposing:
            self._propose()
        if leads and self.known.hosts:
            voters = meta_voters(group.replica.members.voters, self.known.hosts, self.known.labels)
            self._thread.aim({self.name: voters})
        self._tell(leads, group.replica.members)

    def _propose(self) -> None:
        if (
            self._idle is not None
            and self._idle[0] == self._applied
            and self._idle[1] is self.known
        ):
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
        opened = self._thread.opened[self.name]
        assert opened.group is not None
        store, boot = self._thread.name, f"{self._thread.host.boot:012}"
        first = opened.group.replica.state.producers.next.get((store, boot), 0)
        rows = Gathering()
        now = int(time.time() * 1_000_000)
        rows.add_run(b"meta", [encode(each) for each in commands], 0, "", now)
        mark = Mark(store, boot, first, len(commands))
        self._is_proposing = True
        self._thread.take(Take(self.name, mark, rows, 0, False, self._on_answer))

    def _on_answer(self, _status: int) -> None:
        self._is_proposing = False
        self._thread.post(self.look)

    def _tell(self, leads: bool, members: Members) -> None:
        told = self._teller.tell(self._applied, leads, members, self.known.moves)
        if told is not None:
            self._on_decided(told)

"""The log of consumer groups on one node, in the thread of the groups: how far they are, for whoever coordinates them.

What its rows mean, and who decides what is written, is told in `vmq.streams.groups.coordinator`. Who may vote is as in
the meta group. All places are written again before the log is long; what comes before goes then.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from vmq.clustering.raft.decisions import Known, meta_voters
from vmq.clustering.raft.groups.thread import GroupThread
from vmq.clustering.raft.produce import ELSEWHERE, Take
from vmq.config.streams import StreamOptions
from vmq.streams.groups.records import (
    BeginAll,
    EndAll,
    GroupKey,
    GroupPlace,
    GroupPlaces,
    decode_row,
)
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.gathering import Gathering
from vmq.streams.log.keys import Keys
from vmq.streams.replica.partition import ReplicaPartition
from vmq_cluster.raft.group import Group
from vmq_cluster.raft.messages import Mark

#: Acknowledgements are forgotten with it: it is on the disk itself.
_OPTIONS: Final = StreamOptions(
    filters=["groups"],
    durability="fsync",
    key="topic",
    retention_age="never",
    segment_age="never",
    segment_bytes=4 << 20,
)
#: Bytes of the log above which all places are written again.
LONG: Final = 16 << 20

#: Term in which this node leads the log, 0 if it does not; and what the log makes.
OnLeading = Callable[[int, dict[GroupKey, GroupPlace]], None]


class CursorLog:
    """The log of the groups of this node's cluster.

    Args:
        thread: the node's groups.
        folder: where it lies.
        name: of its group.
        on_leading: called in the thread when this node leads it now, or no more.
        on_long: called in the thread when all places are to be written again.
    """

    def __init__(
        self,
        thread: GroupThread,
        folder: Path,
        name: str,
        on_leading: OnLeading,
        on_long: Callable[[], None],
    ) -> None:
        self.name = name
        self.known = Known()
        self._thread = thread
        self._on_leading = on_leading
        self._on_long = on_long
        self._partition = ReplicaPartition(folder, "groups", 0, _OPTIONS)
        self._reader = LogReader(self._partition, ["payload", "offset"])
        self._keys = Keys(_OPTIONS)
        self._kept = GroupPlaces()
        self._applied = 0
        #: The term of the last unclean election that is in the log.
        self._unclean = 0
        #: Where all places are written again, and the last such place that has its end.
        self._begins = 0
        self._needed = 0
        self._term = 0

    def open(self, first: tuple[str, ...]) -> None:
        """Opens it; `first`: who began the group, if that is to be done."""
        self._thread.open(self.name, self._partition, self._keys, first)

    def close(self) -> None:
        """Lets go of it, for another one counts."""
        self._thread.close(self.name, erase=True)

    def look(self, known: Known | None = None) -> None:
        """What there is may have changed."""
        if known is not None:
            self.known = known
        opened = self._thread.opened.get(self.name)
        group = None if opened is None else opened.group
        if group is None:
            self._tell(0)
            return
        self._catch_up(group)
        leading = group.leading
        leads = leading is not None and leading.is_established
        if leads and self._applied >= group.replica.commit:
            self._tell(group.replica.term)
            if self.known.hosts:
                voters = meta_voters(
                    group.replica.members.voters, self.known.hosts, self.known.labels
                )
                self._thread.aim({self.name: voters})
            self._shorten(group)
        elif leading is None:
            self._tell(0)

    def _catch_up(self, group: Group) -> None:
        unclean = group.replica.state.last_unclean[1]
        if unclean != self._unclean:  # it took back, perhaps, what was applied here
            self._unclean = unclean
            self._kept = GroupPlaces()
            self._applied = self._begins = self._needed = 0
        end = self._partition.end
        if end <= self._applied:
            return
        for chunk in self._reader.read(max(self._applied, self._partition.earliest), end):
            payloads, offsets = (chunk.rows.column(each).to_pylist() for each in range(2))
            for offset, raw in zip(offsets, payloads, strict=True):
                self._apply(offset, raw)
        self._applied = end

    def _apply(self, offset: int, raw: bytes) -> None:
        try:
            row = decode_row(raw)
        except ValueError:
            return  # all pass over it alike
        if isinstance(row, BeginAll):
            self._begins = offset
        elif isinstance(row, EndAll):
            self._needed = self._begins
        self._kept.apply([row])

    def _tell(self, term: int) -> None:
        if term != self._term:
            self._term = term
            self._on_leading(term, dict(self._kept.places) if term else {})

    def _shorten(self, group: Group) -> None:
        """Lets go of segments that nobody needs, with the next entry; asks for all places anew if many are left."""
        kept = self._partition.log
        if kept is None:
            return
        first = max(
            (each.end for each in self._partition.sealed if each.end <= self._needed), default=0
        )
        if first > kept.first:
            group.keep_from(first)
        elif self._partition.size > LONG:
            self._on_long()

    def propose(self, term: int, rows: list[bytes], answer: Callable[[int], None]) -> None:
        """In the thread: has rows committed as one, in a term that it told (`vmq.clustering.raft.produce`)."""
        opened = self._thread.opened.get(self.name)
        if opened is None or opened.group is None or term != self._term:
            answer(ELSEWHERE)
            return
        store, boot = self._thread.name, f"{self._thread.host.boot:012}"
        first = opened.group.replica.state.producers.next.get((store, boot), 0)
        found = Gathering()
        found.add_run(b"groups", rows, 0, "", int(time.time() * 1_000_000))
        mark = Mark(store, boot, first, len(rows))
        self._thread.take(Take(self.name, mark, found, sum(map(len, rows)), False, answer))

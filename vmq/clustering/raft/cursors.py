"""The log of consumer groups on one node, in the thread of the groups: how far they are, for whoever coordinates them.

What its rows mean, and who decides what is written, is told in `vmq.streams.groups.coordinator`. Who may vote is as in
the meta group. All places are written again before the log is long; what comes before goes then.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from vmq.clustering.raft.decisions import Known
from vmq.clustering.raft.groups.thread import GroupThread
from vmq.clustering.raft.produce import ELSEWHERE
from vmq.clustering.raft.system import SystemLog
from vmq.streams.groups.records import (
    BeginAll,
    EndAll,
    GroupKey,
    GroupPlace,
    GroupPlaces,
    decode_row,
)
from vmq_cluster.raft.group import Group

#: Bytes of a segment: those go that nobody needs.
_SEGMENT: Final = 4 << 20
#: Bytes of the log above which all places are written again.
LONG: Final = 16 << 20

#: Term in which this node leads the log, 0 if it does not; and what the log makes.
OnLeading = Callable[[int, dict[GroupKey, GroupPlace]], None]


class CursorLog(SystemLog):
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
        super().__init__(thread, folder, name, "groups", _SEGMENT)
        self._on_leading = on_leading
        self._on_long = on_long
        self._kept = GroupPlaces()
        #: Where all places are written again, and the last such place that has its end.
        self._begins = 0
        self._needed = 0
        self._term = 0

    def look(self, known: Known | None = None) -> None:
        """What there is may have changed."""
        if known is not None:
            self.known = known
        if (group := self._group) is None:
            self._tell(0)
            return
        self._catch_up(group)
        if self._leads(group) and self._applied >= group.replica.commit:
            self._tell(group.replica.term)
            self._aim(group)
            self._shorten(group)
        elif group.leading is None:
            self._tell(0)

    def _forget(self) -> None:
        self._kept = GroupPlaces()
        self._begins = self._needed = 0

    def _apply(self, offset: int, row: bytes) -> None:
        try:
            found = decode_row(row)
        except ValueError:
            return  # all pass over it alike
        if isinstance(found, BeginAll):
            self._begins = offset
        elif isinstance(found, EndAll):
            self._needed = self._begins
        self._kept.apply([found])

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
        group = self._group
        if group is None or term != self._term:
            answer(ELSEWHERE)
        else:
            self._propose_rows(group, rows, answer)

"""The log of a group of no stream on one node, in the thread of the groups: what is decided in it, row by row.

It is on the disk itself: what it says must outlive a power failure of all.
"""

import time
from collections.abc import Callable
from pathlib import Path

from vmq.clustering.raft.decisions import Known, meta_voters
from vmq.clustering.raft.groups.thread import GroupThread
from vmq.clustering.raft.produce import Take
from vmq.config.streams import StreamOptions
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.gathering import Gathering
from vmq.streams.log.keys import Keys
from vmq.streams.replica.partition import ReplicaPartition
from vmq_cluster.raft.group import Group
from vmq_cluster.raft.messages import Mark


class SystemLog:
    """What the meta group and the consumer groups have in common.

    Args:
        thread: the node's groups.
        folder: where it lies.
        name: of its group.
        topic: of its rows.
        segment_bytes: how large its segments become.
    """

    def __init__(
        self, thread: GroupThread, folder: Path, name: str, topic: str, segment_bytes: int
    ) -> None:
        self.name = name
        self.known = Known()
        self._thread = thread
        self._topic = topic.encode()
        options = StreamOptions(
            filters=[topic],
            durability="fsync",
            key="topic",
            retention_age="never",
            segment_age="never",
            segment_bytes=segment_bytes,
        )
        self._keys = Keys(options)
        self._partition = ReplicaPartition(folder, topic, 0, options)
        self._reader = LogReader(self._partition, ["payload", "offset"])
        self._applied = 0
        #: The term of the last unclean election that is in the log.
        self._unclean = 0

    def open(self, first: tuple[str, ...]) -> None:
        """Opens it; `first`: who began the group, if that is to be done."""
        self._thread.open(self.name, self._partition, self._keys, first)

    def close(self) -> None:
        """Lets go of it, for another one counts."""
        self._thread.close(self.name, erase=True)

    @property
    def _group(self) -> Group | None:
        opened = self._thread.opened.get(self.name)
        return None if opened is None else opened.group

    def _forget(self) -> None:
        """What was applied may be taken back: all of the log is applied again."""

    def _apply(self, offset: int, row: bytes) -> None:
        """The next row. One that means nothing all nodes pass over alike."""

    def _catch_up(self, group: Group) -> None:
        """Applies what is committed."""
        unclean = group.replica.state.last_unclean[1]
        if unclean != self._unclean:
            self._unclean, self._applied = unclean, 0
            self._forget()
        end = self._partition.end
        if end > self._applied:
            for chunk in self._reader.read(max(self._applied, self._partition.earliest), end):
                rows, offsets = (chunk.rows.column(each).to_pylist() for each in range(2))
                for offset, row in zip(offsets, rows, strict=True):
                    self._apply(offset, row)
            self._applied = end

    @staticmethod
    def _leads(group: Group) -> bool:
        """Whether this node leads it, and its term has begun."""
        return group.leading is not None and group.leading.is_established

    def _aim(self, group: Group) -> None:
        """Who leads sees to who votes: as many as there are to be, each a host of its own."""
        if self.known.hosts:
            voters = meta_voters(group.replica.members.voters, self.known.hosts, self.known.labels)
            self._thread.aim({self.name: voters})

    def _propose_rows(self, group: Group, rows: list[bytes], answer: Callable[[int], None]) -> None:
        """Has rows committed as one; told what became of them (`vmq.clustering.raft.produce`)."""
        store, boot = self._thread.name, f"{self._thread.host.boot:012}"
        first = group.replica.state.producers.next.get((store, boot), 0)
        found = Gathering()
        found.add_run(self._topic, rows, 0, "", int(time.time() * 1_000_000))
        mark = Mark(store, boot, first, len(rows))
        self._thread.take(Take(self.name, mark, found, sum(map(len, rows)), False, answer))

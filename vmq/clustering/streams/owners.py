"""Who owns which partition, as one node sees it.

A partition has the owner that its record names, as long as that is a member. Else the members that keep streams agree
on one by rendezvous hashing, and that one writes the record. Whoever had rows of a partition before there was a record
writes it first. One that takes over from a node that is no member any more, and whose rows are not here, begins with an
offset that none of those could have reached: a reader that comes from there is told that they are gone, and does not
take new messages for ones that it has seen. The record follows once that is on the disk: who is killed before does it
again. So does a node that has lost its disk.
"""

from collections.abc import Callable, Set
from typing import TYPE_CHECKING

from vmq.clustering.streams.metadata import chosen
from vmq.clustering.streams.records import StreamRecords

if TYPE_CHECKING:
    from vmq.streams.catalog import Catalog, Stream


class Owners:
    """The owners of all partitions.

    Args:
        name: this node's.
        records: the cluster's.
        begin_at: has a partition without rows begin with an offset.
        born: when this node's store became a node's, in milliseconds; 0: nobody knows.
    """

    def __init__(
        self,
        name: str,
        records: StreamRecords,
        begin_at: Callable[["Stream", int, int], None],
        born: int = 0,
    ) -> None:
        self._born = born
        self._name = name
        self._records = records
        self._begin_at = begin_at
        self._members: Set[str] = {name}
        self._keepers: Set[str] = {name}
        #: By stream, None: this node; and since when. They are replaced, never changed: Flight looks in its threads.
        self._owners: dict[str, list[str | None]] = {}
        self._since: dict[str, list[int]] = {}

    def owner(self, stream: str, partition: int) -> str | None:
        """The node that owns a partition; None: this one."""
        owners = self._owners.get(stream)
        return owners[partition] if owners is not None and partition < len(owners) else None

    def since(self, stream: str, partition: int) -> int:
        """Since when, in milliseconds; 0 where there is no record of it."""
        since = self._since.get(stream)
        return since[partition] if since is not None and partition < len(since) else 0

    def owns_all(self, stream: str) -> bool:
        """Whether every partition of a stream is this node's."""
        return not any(self._owners.get(stream, ()))

    def count(self, stream: str) -> int:
        """Of how many partitions of a stream the owners are known."""
        return len(self._owners.get(stream, ()))

    def has_record(self, stream: str, partition: int) -> bool:
        """Whether the owner is settled: it is a member, and the others can know."""
        record = self._records.owner(stream, partition)
        return record is not None and record.node in self._members

    def wanted(self, stream: str, partition: int) -> str:
        """Who is to own a partition that has no rows."""
        return chosen(stream, partition, self._keepers)

    def look(self, catalog: "Catalog", members: Set[str], keepers: Set[str]) -> None:
        """Records, members, or those of them that keep streams may have changed."""
        self._members, self._keepers = members, keepers
        owners: dict[str, list[str | None]] = {}
        since: dict[str, list[int]] = {}
        for stream in catalog.streams.values():
            if stream.is_replicated:
                continue  # groups have them (`vmq.clustering.raft`)
            found = [self._claim(stream, each.number) for each in stream.partitions]
            owners[stream.name] = [None if node == self._name else node for node, _ in found]
            since[stream.name] = [each for _, each in found]
        self._owners, self._since = owners, since

    def _claim(self, stream: "Stream", number: int) -> tuple[str, int]:
        """The owner, and since when; this node writes the record where that is to be."""
        records = self._records
        record = records.owner(stream.name, number)
        if record is not None and record.node in self._members:
            if (
                record.node == self._name
                and record.since < self._born
                and is_unused(stream, number)
            ):
                self._begin_at(stream, number, records.now() * 1000)
            return record.node, record.since
        if record is None and has_rows(stream, number):
            records.own(stream.name, number, self._name, since=0)
            return self._name, 0
        wanted = chosen(stream.name, number, self._keepers)
        if wanted == self._name and self._counts(was_owned=record is not None):
            if record is None or self._is_behind(stream, number, record.since):
                records.own(stream.name, number, wanted)
        return wanted, 0

    def _is_behind(self, stream: "Stream", number: int, since: int) -> bool:
        """Whether a partition is here, or begins with an offset that its last owner, since then, has not reached.

        Else it is to begin with one.
        """
        partition, least = stream.partitions[number], (since + 1) * 1000
        is_here = partition.kept != partition.end or partition.damage is not None
        if not is_here and partition.end < least:
            self._begin_at(stream, number, max(self._records.now() * 1000, least))
            return False
        return True

    def _counts(self, *, was_owned: bool) -> bool:
        """Whether a record of this node is true for all.

        What it says while it is alone would count when it joins others; if it is what is left of a cluster, it is all.
        """
        if len(self._members) > 1:
            return True
        machine = self._records.node.machine
        return was_owned and machine.membership.belongs and not machine.contacts


def has_rows(stream: "Stream", number: int) -> bool:
    """Whether there are rows of a partition here, as far as is known; of a damaged one there may be."""
    partition = stream.partitions[number]
    is_empty = partition.kept == partition.end and partition.damage is None
    return not is_empty and not partition.is_copy


def is_unused(stream: "Stream", number: int) -> bool:
    """Whether a partition never had a row, as far as is known."""
    partition = stream.partitions[number]
    return partition.end == 0 and partition.damage is None

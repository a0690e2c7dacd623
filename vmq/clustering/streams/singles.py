"""Partitions of which one node has the only copy, as whoever makes them replicas asks for them."""

from collections.abc import Callable

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.streams import PartitionRows
from vmq.clustering.streams.records import StreamRecords


class SingleCopies:
    """Their owners, and what is on its way there (`vmq.clustering.raft.converting.SinglePartitions`).

    Args:
        records: of streams.
        outboxes: to the other nodes.
    """

    def __init__(self, records: StreamRecords, outboxes: Outboxes) -> None:
        self._records = records
        self._outboxes = outboxes

    def owner(self, stream: str, number: int) -> str:
        record = self._records.owner(stream, number)
        return "" if record is None else record.node

    def passed_on(self, stream: str, number: int, done: Callable[[bool], None]) -> bool:
        from vmq.clustering.streams.rows import EMPTY, pack  # these need what only streams need

        owner = self.owner(stream, number)
        if owner in ("", self._records.node.name) or not self._outboxes.has_any(owner):
            return False
        self._outboxes.send(owner, PartitionRows(stream, number, -1, pack(EMPTY)), done)
        return True

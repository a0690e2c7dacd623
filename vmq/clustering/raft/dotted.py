"""Rows of QoS 2 messages whose publishers' sessions know their dots, on their way to the leader of a group.

The session has the dot of a row, on disks of its owner and followers, before the row is handed in. Whoever has the
client when its node dies hands the row in again under the same dot, and a leader takes it once
(`vmq_cluster.raft.dots`). So these rows need no numbers without gaps, and those of other messages do not wait for what
sessions have to write first. One batch is under way at a time, which keeps their order.
"""

from typing import Final

from vmq.clustering.raft.producer import Producer
from vmq.core.output import Output
from vmq.streams.log.gathering import flags_of
from vmq_cluster.raft.dots import DOTTED, Dot

#: Bytes that a row counts for beside its topic and payload: its dot is among them.
ROW: Final = 150


class DottedRow:
    """One message for one partition. `time` is in microseconds since 1970."""

    def __init__(
        self, topic: bytes, payload: bytes, qos: int, retain: bool, client_id: str, time: int
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.client_id = client_id
        self.time = time
        self.size: int = len(payload) + len(topic) + ROW


class DottedProducer(Producer):
    """One partition's."""

    window = 1
    prefix = DOTTED
    #: The last number that was given to a row here.
    last = 0

    def reserve(self) -> Dot:
        """A dot for a row that is to come, here or at another node."""
        self.last += 1
        return self._road.store, self._boot, self.last

    def add_row(self, dot: Dot, row: DottedRow, publisher: Output | None) -> int:
        """Takes a row; returns the number by which `safe` has it."""
        rows = self.gather()
        rows.dots.append(dot)
        rows.topics.append(row.topic)
        rows.payloads.append(row.payload)
        rows.flags.append(flags_of(row.qos, row.retain))
        rows.times.append(row.time)
        rows.clients.append(row.client_id)
        return self.added(row.size, publisher)

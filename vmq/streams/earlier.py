"""What streams have already of a batch whose publishing was cut off by the end of the broker.

The commits of streams and of the store are two. A broker that dies between them finds messages in its
streams that the store does not know to be published, and would append them again. But the messages
of a batch lie in each partition in the batch's order, behind the end that it had when the batch was
decided, so one walk along both tells which are there. A message counts as there only if its very topic and
payload are: whatever happened to a stream in between, none is left out that is not in it.

That is for the partitions of this node. What goes to other nodes of a cluster is in the store's own commit.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow.compute as pc

from vmq.streams.catalog import Stream
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.errors import StreamError
from vmq.streams.log.partition import Partition
from vmq.streams.places import PartitionPlaces
from vmq.streams.staging.state import Marks

_COLUMNS: Final = ("topic", "payload", "client_id")

_Row = tuple[bytes, bytes]


def marks_of(streams: Mapping[str, Stream], places: PartitionPlaces | None) -> Marks:
    """Where each partition of this node ends.

    What is behind the end of another node's would not be of the batch alone, should it come here.
    """
    return {
        name: {
            partition.number: partition.end
            for partition in stream.partitions
            if places is None or places.owner(name, partition.number) is None
        }
        for name, stream in streams.items()
    }


class Earlier:
    """The rows of one client behind some marks, in the order of each partition, each to be met once."""

    def __init__(self, marks: Marks, client_id: str) -> None:
        self.marks = marks
        self.client_id = client_id
        self.walks: dict[Partition, _Walk] = {}

    def meet(self, partition: Partition, topic: bytes, payload: bytes) -> bool:
        """Whether the next row of a partition is this message; the one behind it is the next then."""
        walk = self.walks.get(partition)
        if walk is None:
            mark = self.marks.get(partition.stream, {}).get(partition.number)
            rows = iter(()) if mark is None else rows_behind(partition, mark, self.client_id)
            self.walks[partition] = walk = _Walk(rows)
        return walk.meet((topic, payload))


class _Walk:
    """The rows of one partition that nothing has met."""

    def __init__(self, rows: Iterator[_Row]) -> None:
        self.rows = rows
        self.waiting: deque[_Row] = deque()

    def meet(self, wanted: _Row) -> bool:
        if not self.waiting:
            self.waiting.extend(row for row in (next(self.rows, None),) if row is not None)
        if not self.waiting or self.waiting[0] != wanted:
            return False
        self.waiting.popleft()
        return True


def rows_behind(partition: Partition, mark: int, client_id: str) -> Iterator[_Row]:
    """Topic and payload of what a client has from an offset on, up to the end when this begins."""
    start = max(mark, partition.kept)
    if start > partition.end:
        return  # the stream was made anew
    try:
        for chunk in LogReader(partition, _COLUMNS).read(start):
            rows = chunk.rows.filter(pc.equal(chunk.rows.column("client_id"), client_id))
            topics = rows.column("topic").to_pylist()
            for topic, payload in zip(topics, rows.column("payload").to_pylist(), strict=True):
                yield topic.encode(), payload
    except StreamError:
        return  # deleted meanwhile, or damaged: what cannot be read is not known to be there

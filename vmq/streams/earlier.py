"""What streams have already of a batch whose publishing was cut off by the end of the broker.

The commits of streams and of the store are two. A broker that dies between them finds messages in its
streams that the store does not know to be published, and would append them again. But the messages
of a batch lie in each partition in the batch's order, behind the end that it had when the batch was
decided, so one walk along both tells which are there. A message counts as there only if its very topic and
payload are: whatever happened to a stream in between, none is left out that is not in it.

That is for the partitions of this node. What goes to other nodes of a cluster is in the store's own commit; but of a
batch of a node whose store is lost nothing else tells: its rows are looked for in all partitions, by their time.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from vmq.streams.catalog import Stream
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.errors import PassingError, StreamError
from vmq.streams.log.partition import Partition
from vmq.streams.logs import LogsAnywhere
from vmq.streams.places import PageQuery, PartitionPlaces
from vmq.streams.staging.state import Marks

_COLUMNS: Final = ("topic", "payload", "client_id")
#: Rows and bytes that are read at once; seconds that other nodes have to answer.
_PAGE_ROWS: Final = 16_384
_PAGE_BYTES: Final = 4 << 20
_PATIENCE: Final = 5.0

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

    def __init__(self, marks: Marks, client_id: str, *, is_everywhere: bool = False) -> None:
        self.marks = marks
        self.client_id = client_id
        self.is_everywhere = is_everywhere
        self.walks: dict[tuple[str, int], _Walk] = {}

    def meet(self, partition: Partition, topic: bytes, payload: bytes) -> bool:
        """Whether the next row of a partition is this message; the one behind it is the next then."""
        key = partition.stream, partition.number
        walk = self.walks.get(key)
        if walk is None:
            mark = self.marks.get(partition.stream, {}).get(partition.number)
            rows = iter(()) if mark is None else rows_behind(partition, mark, self.client_id)
            self.walks[key] = walk = _Walk(rows)
        return walk.meet((topic, payload))

    def fetch(self, streams: Sequence[tuple[str, LogsAnywhere]], time: int) -> None:
        """Looks in all partitions of some streams, from a time on (microseconds), instead of behind marks.

        What the client published before is older by the same clock: a batch is staged when the one before is published.

        Raises:
            StreamError: one cannot be read, or does not answer.
        """
        for name, logs in streams:
            numbers = range(logs.count())
            starts = logs.at_time(numbers, time, _PATIENCE)
            spans = logs.spans(numbers, _PATIENCE)
            for number in numbers:
                if number not in starts or number not in spans:
                    raise PassingError(f"partition {number} of stream {name!r} does not answer")
                span = range(starts[number], spans[number].end)
                rows = list(rows_in(logs, number, span, self.client_id, time))
                self.walks[name, number] = _Walk(iter(rows))


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


def rows_in(
    logs: LogsAnywhere, number: int, span: range, client_id: str, time: int
) -> Iterator[_Row]:
    """Topic and payload of what a client has between two offsets from a time on, wherever the partition is.

    Raises:
        StreamError: it cannot be read.
    """
    at = span.start
    while at < span.stop:
        wanted = PageQuery(at, span.stop, _PAGE_ROWS, _PAGE_BYTES)
        rows, at = logs.rows(number, wanted, ("timestamp", *_COLUMNS))
        is_late = pc.greater_equal(rows.column("timestamp").cast(pa.int64()), time)
        yield from _of_client(rows.filter(is_late), client_id)


def _of_client(rows: pa.RecordBatch, client_id: str) -> Iterator[_Row]:
    rows = rows.filter(pc.equal(rows.column("client_id"), client_id))
    topics = rows.column("topic").to_pylist()
    for topic, payload in zip(topics, rows.column("payload").to_pylist(), strict=True):
        yield topic.encode(), payload


def rows_behind(partition: Partition, mark: int, client_id: str) -> Iterator[_Row]:
    """Topic and payload of what a client has from an offset on, up to the end when this begins."""
    start = max(mark, partition.kept)
    if start > partition.end:
        return  # the stream was made anew
    try:
        for chunk in LogReader(partition, _COLUMNS).read(start):
            yield from _of_client(chunk.rows, client_id)
    except StreamError:
        return  # deleted meanwhile, or damaged: what cannot be read is not known to be there

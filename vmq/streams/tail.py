"""The messages of a stream one by one, in the order of time: from the end or anywhere, and those that follow.

Within a partition the order is that of the offsets. Between partitions whichever next message is older goes
first. What is in memory is bounded, however much there is: of each partition a page of messages.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge, nlargest
from itertools import chain
from typing import Any, Final

import pyarrow as pa

from vmq.streams.cursor import Log, Reader, offset_at
from vmq.streams.errors import OutOfRangeError, UnknownPartitionError
from vmq.streams.message import Message, TailQuery

#: A page has at most this many messages, and about this many bytes; all partitions share them.
_PAGE_ROWS: Final = 512
_ALL_ROWS: Final = 16_384
_LEAST_ROWS: Final = 64
_ALL_BYTES: Final = 32 << 20
#: Messages among which the last ones are looked for at first, and at most, at a time.
_FIRST_LOOK: Final = 4096
_WIDEST_LOOK: Final = 262_144

_COLUMNS: Final = (
    "timestamp",
    "offset",
    "topic",
    "qos",
    "retain",
    "client_id",
    "key",
    "headers",
    "payload",
)


class Tail:
    """Reads some partitions of a stream from where a query says, and knows how far.

    Args:
        logs: all partitions of the stream, in the order of their numbers.
        query: what is wanted of them.

    Raises:
        StreamError: there is no such partition or offset, or the filter is none.
        DamagedError: a segment is not what was written.
    """

    def __init__(self, logs: Sequence[Log], query: TailQuery) -> None:
        if query.partition is not None:
            if query.partition >= len(logs):
                raise UnknownPartitionError(query.stream, query.partition, len(logs))
            logs = [logs[query.partition]]
        self.query = query
        self.logs = logs
        self.rows = max(_LEAST_ROWS, min(_PAGE_ROWS, _ALL_ROWS // len(logs)))
        self.bytes = _ALL_BYTES // len(logs)
        self.readers = [Reader(log, _COLUMNS, query.filter) for log in logs]
        self.left = query.limit
        #: Where the next call of `messages` begins, of each of `logs`.
        self.next = starts(logs, query)

    def messages(self) -> Iterator[Message]:
        """The messages up to the present ends; once all are taken, call it again to go on from there.

        Raises:
            DamagedError: a segment is not what was written.
            StreamError: the stream was deleted.
        """
        ends = [log.end for log in self.logs]
        found = merge(
            *(self._of(number, end) for number, end in enumerate(ends)), key=lambda each: each[0]
        )
        for _, _, message in found:
            if self.done:
                return
            if self.left is not None:
                self.left -= 1
            yield message
        self.next = ends

    @property
    def done(self) -> bool:
        """As many messages as were wanted have come."""
        return self.left == 0

    def behind(self) -> list[tuple[Log, int]]:
        """Each log, and how far it is read."""
        return list(zip(self.logs, self.next, strict=True))

    def _of(self, number: int, end: int) -> Iterator[tuple[int, int, Message]]:
        """The messages of one log, each behind its time and the log's place among `logs`."""
        start = self.next[number]
        while start < end:
            try:
                page, start = self._page(self.readers[number], start, end)
            except OutOfRangeError as error:
                if start >= error.earliest:
                    raise
                start = error.earliest  # the retention was faster
                continue
            for message in page:
                yield message.timestamp, number, message

    def _page(self, reader: Reader, start: int, end: int) -> tuple[list[Message], int]:
        """Some messages from an offset on, and where to go on."""
        page: list[Message] = []
        size = 0
        for chunk in reader.read(start, end, self.rows):
            for row in _plain(chunk.rows):
                page.append(self._message(reader.partition.number, row))
                size += len(page[-1].payload)
                if size > self.bytes:
                    return page, page[-1].offset + 1
            if page:
                return page, chunk.next
        return page, end

    def _message(self, partition: int, row: dict[str, Any]) -> Message:
        payload: bytes = row.pop("payload")
        most = self.query.payload_bytes
        return Message(
            partition=partition,
            payload=payload[:most] if most else payload,
            size=len(payload),
            **row,
        )


def starts(logs: Sequence[Log], query: TailQuery) -> list[int]:
    """The offset of each log at which to begin.

    Raises:
        OutOfRangeError: a log has no such offset.
    """
    if query.start == "earliest":
        return [log.earliest for log in logs]
    if query.start == "latest":
        return [log.end for log in logs]
    if query.time is not None:
        return [offset_at(log, query.time) for log in logs]
    if query.offset is None:
        return before_the_end(logs, query.last, query.filter)
    for log in logs:
        if not log.earliest <= query.offset <= log.end:
            raise OutOfRangeError(log.stream, log.number, query.offset, log.earliest, log.end)
    return [query.offset] * len(logs)


def before_the_end(logs: Sequence[Log], count: int, topic_filter: str | None) -> list[int]:
    """The offset of each log at which its part of the last `count` messages of all begins."""
    latest: list[tuple[int, int, int]] = []
    ends = [log.end for log in logs]
    for number, (log, end) in enumerate(zip(logs, ends, strict=True)):
        found: list[tuple[int, int, int]] = []
        time = 1 << 62
        for when, offset in last_of(log, end, count, topic_filter):
            # Clocks may go back. The time of what comes later counts: it is in if this is.
            time = min(time, when)
            found.append((time, offset, number))
        latest = nlargest(count, chain(latest, found))
    begin = list(ends)
    for _, offset, number in latest:  # the earliest of each comes last
        begin[number] = offset
    return begin


def last_of(log: Log, end: int, count: int, topic_filter: str | None) -> Iterator[tuple[int, int]]:
    """Time and offset of the last `count` messages before an offset, the last one first."""
    reader = Reader(log, ("timestamp", "offset"), topic_filter)
    look = count if topic_filter is None else max(count, _FIRST_LOOK)
    while count and end > log.earliest:
        begin = max(log.earliest, end - look)
        try:
            batches = [chunk.rows for chunk in reader.read(begin, end)]
        except OutOfRangeError:
            return  # the retention was faster
        for batch in reversed(batches):
            for row in reversed(list(_plain(batch.slice(max(0, batch.num_rows - count))))):
                yield row["timestamp"], row["offset"]
                count -= 1
        end = begin
        look = min(2 * look, max(look, _WIDEST_LOOK))


def _plain(rows: pa.RecordBatch) -> Iterable[dict[str, Any]]:
    """Rows whose timestamps come first, in microseconds."""
    plain = rows.set_column(0, "timestamp", rows.column(0).cast(pa.int64()))
    return plain.to_pylist()  # type: ignore[no-any-return]

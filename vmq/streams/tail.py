"""The messages of a stream one by one, in the order of time: from the end or anywhere, and those that follow.

Within a partition the order is that of the offsets. Between partitions whichever next message is older goes
first. What is in memory is bounded, however much there is: of each partition a page of messages. A partition whose
owner does not answer is left out meanwhile, and `away` has it; it goes on where it was, behind the others' messages.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from heapq import merge, nlargest
from itertools import chain
from typing import Final

from vmq.mqtt.topics import overlaps
from vmq.streams.log.columns import Projection
from vmq.streams.log.errors import AwayError, OutOfRangeError, StreamError
from vmq.streams.log.message import StreamMessage, TailQuery
from vmq.streams.logs import Logs, OffsetSpan, checked
from vmq.streams.places import PageQuery

#: A page has at most this many messages, and about this many bytes; all partitions share them.
_PAGE_ROWS: Final = 512
_ALL_ROWS: Final = 16_384
_LEAST_ROWS: Final = 64
_ALL_BYTES: Final = 32 << 20
#: Seconds that owners have to answer at first, and while one does not.
_PATIENCE: Final = 3.0
_SHORT: Final = 0.2


class Tail:
    """Reads some partitions of a stream from where a query says, and knows how far.

    Args:
        logs: all partitions of the stream.
        query: what is wanted of them.
        filters: those of the stream; none: any topic may be in it.

    Raises:
        StreamError: there is no such partition or offset, the filter is none, or no topic of the stream can match it.
        DamagedError: a segment is not what was written.
    """

    def __init__(self, logs: Logs, query: TailQuery, filters: Sequence[str] = ()) -> None:
        Projection(None, query.filter)  # refuses what is no filter
        if query.filter and filters and not keep_some(filters, query.filter):
            raise StreamError(why_none(query.stream, filters, query.filter))
        self.query = query
        self.logs = logs
        self.numbers = checked(logs, query.stream, query.partition)
        self.rows = max(_LEAST_ROWS, min(_PAGE_ROWS, _ALL_ROWS // len(self.numbers)))
        self.bytes = _ALL_BYTES // len(self.numbers)
        self.left = query.limit
        #: Since when (monotonic) there is no answer for partitions.
        self.away: dict[int, float] = {}
        #: Where those begin, in time, that did not answer when this began.
        self.began = time.time_ns() // 1000 if query.time is None else query.time
        #: Where the next call of `messages` begins, of each; None: it has not answered yet.
        self.next: dict[int, int | None] = dict.fromkeys(self.numbers)
        begin = starts(logs, self._known(_PATIENCE), query)
        self.next |= {number: begin[number] for number in self.numbers if number in begin}

    def messages(self) -> Iterator[StreamMessage]:
        """The messages up to the present ends; once all are taken, call it again to go on from there.

        Raises:
            DamagedError: a segment is not what was written.
            StreamError: the stream was deleted.
        """
        if self.query.partition is None:
            for number in range(len(self.numbers), self.logs.count()):  # the stream has grown
                self.numbers.append(number)
                self.next[number] = 0
        found = self._known(_SHORT if self.away else _PATIENCE)
        self._begin_late(found)
        read = merge(
            *(self._of(number, span.end) for number, span in found.items()),
            key=lambda each: each[0],
        )
        for _, _, message in read:
            if self.done:
                return
            if self.left is not None:
                self.left -= 1
            yield message

    @property
    def done(self) -> bool:
        """As many messages as were wanted have come."""
        return self.left == 0

    def wait(self, seconds: float) -> bool:
        """Waits until there may be more messages; False if there are none in time."""
        grown = self.query.partition is None and self.logs.count() > len(self.numbers)
        return grown or self.logs.wait(self.next, seconds)

    def missing(self, seconds: float = 0.0) -> str:
        """Which partitions have not answered for so long, and whose they are; empty if all have."""
        since = time.monotonic() - seconds
        by_node: dict[str, list[int]] = {}
        for number in sorted(self.away):
            if self.away[number] <= since:
                by_node.setdefault(self.logs.owner(number), []).append(number)
        name = self.query.stream
        return "; ".join(
            f"partition {', '.join(map(str, numbers))} of stream {name!r} is on node {node!r}, "
            "which does not answer"
            for node, numbers in by_node.items()
        )

    def _known(self, patience: float) -> Mapping[int, OffsetSpan]:
        """What the wanted partitions hold; notes which of them do not answer."""
        found = self.logs.spans(self.numbers, patience)
        for number in self.numbers:
            if number in found:
                self.away.pop(number, None)
            else:
                self.away.setdefault(number, time.monotonic())
        return found

    def _begin_late(self, found: Mapping[int, OffsetSpan]) -> None:
        """Those that had not answered before begin with what came since."""
        late = [number for number in found if self.next[number] is None]
        if late:
            asked = self.logs.at_time(late, self.began, _PATIENCE)
            self.next |= {number: asked[number] for number in late if number in asked}

    def _of(self, number: int, end: int) -> Iterator[tuple[int, int, StreamMessage]]:
        """The messages of one partition, each behind its time and its number."""
        start = self.next[number]
        while start is not None and start < end:
            wanted = PageQuery(
                start, end, self.rows, self.bytes, self.query.filter, self.query.payload_bytes
            )
            try:
                page = self.logs.page(number, wanted)
            except AwayError:
                self.away.setdefault(number, time.monotonic())
                break
            for message in page.messages:
                yield message.timestamp, number, message
            if page.next <= start:
                break  # it ends before what it was said to hold
            start = page.next
        self.next[number] = start


def starts(logs: Logs, found: Mapping[int, OffsetSpan], query: TailQuery) -> Mapping[int, int]:
    """The offset at which to begin, of each partition that answers; `found`: what they hold.

    Raises:
        OutOfRangeError: a partition has no such offset.
    """
    if query.start == "earliest":
        return dict.fromkeys(range(logs.count()), 0) | {
            number: span.earliest for number, span in found.items()
        }
    if query.start == "latest":
        return {number: span.end for number, span in found.items()}
    if query.time is not None:
        return logs.at_time(found, query.time, _PATIENCE)
    if query.offset is None:
        return before_the_end(logs, found, query.last, query.filter)
    for number, span in found.items():
        if not span.earliest <= query.offset <= span.end:
            raise OutOfRangeError(query.stream, number, query.offset, span.earliest, span.end)
    return dict.fromkeys(range(logs.count()), query.offset)


def before_the_end(
    logs: Logs, found: Mapping[int, OffsetSpan], count: int, topic_filter: str | None
) -> dict[int, int]:
    """The offset of each partition at which its part of the last `count` messages of all begins."""
    latest: list[tuple[int, int, int]] = []
    begin: dict[int, int] = {}
    for number, span in found.items():
        last: list[tuple[int, int, int]] = []
        newest = 1 << 62
        try:
            for when, offset in logs.last(number, span, count, topic_filter):
                # Clocks may go back. The time of what comes later counts: it is in if this is.
                newest = min(newest, when)
                last.append((newest, offset, number))
        except AwayError:
            continue
        begin[number] = span.end
        latest = nlargest(count, chain(latest, last))
    # The earliest of each comes last.
    return begin | {number: offset for _, offset, number in latest}


def keep_some(filters: Sequence[str], topics: str) -> bool:
    """Whether a message of a stream with these filters may be of these topics."""
    return any(overlaps(kept, topics) for kept in filters)


def why_none(stream: str, filters: Sequence[str], topics: str) -> str:
    """Why a reader of these topics would wait for ever."""
    kept = ", ".join(filters)
    return f"stream {stream!r} keeps no topic of {topics[:200]}; it keeps: {kept[:500]}"

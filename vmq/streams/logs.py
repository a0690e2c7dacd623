"""The partitions of one stream, for those who read messages one by one: of this process, or wherever they are.

Who reads asks for pages; between two of them a partition may go to another node of the cluster, with its offsets.
"""

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from vmq.streams.catalog import Stream
from vmq.streams.extents import LOOK
from vmq.streams.far import Located, locate
from vmq.streams.log.columns import ramp
from vmq.streams.log.cursor import Chunk, LogReader, PartitionLog
from vmq.streams.log.errors import (
    AwayError,
    DamagedError,
    OutOfRangeError,
    StreamError,
    UnknownPartitionError,
)
from vmq.streams.log.message import StreamMessage
from vmq.streams.log.schema import projected
from vmq.streams.places import Page, PageQuery, PartitionPlaces
from vmq.streams.times import offset_at

T = TypeVar("T")

#: Messages among which the last ones are looked for at first, and at most, at a time.
_FIRST_LOOK: Final = 4096
_WIDEST_LOOK: Final = 262_144
#: What a page of another node holds at most, and how many messages are looked through for it.
_FAR_ROWS: Final = 4096
_FAR_BYTES: Final = 1 << 20
_FAR_LOOK: Final = 65_536
#: Seconds that others have to say whether there is news: one that is silent holds up nobody for long.
_SHORT: Final = 0.2
#: Owners of a partition, one after the other, before it is given up.
_TRIES: Final = 10

COLUMNS: Final = (
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


class OffsetSpan(NamedTuple):
    """The offsets of a partition: from `earliest` up to `end`."""

    earliest: int
    end: int


class RowPage(NamedTuple):
    """Rows of one partition in order, perhaps none; the next page begins at offset `next`."""

    rows: pa.RecordBatch
    next: int


class Logs(Protocol):
    """All partitions of a stream. Calls may block."""

    def count(self) -> int:
        """How many there are."""

    def owner(self, number: int) -> str:
        """The node that has one; empty: this one."""

    def spans(self, numbers: Collection[int], patience: float) -> Mapping[int, OffsetSpan]:
        """What some of them hold; without those whose owners do not answer in so many seconds."""

    def at_time(self, numbers: Collection[int], time: int, patience: float) -> Mapping[int, int]:
        """The first offset of some of them that is not older than a time (microseconds); likewise."""

    def last(
        self, number: int, span: OffsetSpan, count: int, topics: str | None
    ) -> "Iterator[Moment]":
        """When and where the last `count` messages of one are, the last one first.

        Raises:
            AwayError: its owner does not answer.
        """

    def page(self, number: int, wanted: PageQuery) -> Page:
        """Some messages of one. Where they begin too early, those are gone: it goes on behind them.

        Raises:
            AwayError: its owner does not answer.
            StreamError: it cannot be read.
        """

    def wait(self, after: Mapping[int, int | None], seconds: float) -> bool:
        """Waits until one ends behind an offset (None: answers at all); False if none does in time."""


class RowLogs(Logs, Protocol):
    """All partitions of a stream, of which rows can be had as Arrow has them."""

    def rows(self, number: int, wanted: PageQuery, columns: Sequence[str]) -> RowPage:
        """Some columns of `COLUMNS` of a page; see `page`."""

    def locate(self, number: int, start: int, until: int) -> Located | None:
        """Where the rows of one lie from an offset on, up to another; None: in no files of this node.

        Raises:
            StreamError: the partition has no such offset, or it cannot be read.
        """


#: Time in microseconds and offset.
Moment = tuple[int, int]


class LogsHere:
    """Those that this process has."""

    def __init__(self, logs: Sequence[PartitionLog]) -> None:
        self._logs = logs
        #: By topic filter, partition and columns.
        self._readers: dict[tuple[str | None, int, tuple[str, ...]], LogReader] = {}

    def count(self) -> int:
        return len(self._logs)

    def owner(self, _number: int) -> str:
        return ""

    def span(self, number: int) -> OffsetSpan:
        """What one of them holds."""
        log = self._logs[number]
        return OffsetSpan(log.earliest, log.end)

    def spans(self, numbers: Collection[int], _patience: float) -> dict[int, OffsetSpan]:
        return {number: self.span(number) for number in numbers}

    def time_of(self, number: int, time: int) -> int:
        """The first offset of one that is not older than a time."""
        return offset_at(self._logs[number], time)

    def at_time(self, numbers: Collection[int], time: int, _patience: float) -> dict[int, int]:
        return {number: self.time_of(number, time) for number in numbers}

    def last(
        self, number: int, span: OffsetSpan, count: int, topics: str | None
    ) -> Iterator[Moment]:
        return last_of(self._logs[number], span.end, count, topics)

    def page(self, number: int, wanted: PageQuery) -> Page:
        return page_of(self._reader(number, wanted.filter, COLUMNS), wanted)

    def rows(self, number: int, wanted: PageQuery, columns: Sequence[str]) -> RowPage:
        """Some columns of a page."""
        return rows_of(self._reader(number, wanted.filter, columns), wanted)

    def locate(self, number: int, start: int, until: int) -> Located:
        return locate(self._logs[number], start, until)

    def _reader(self, number: int, topics: str | None, columns: Sequence[str]) -> LogReader:
        key = topics, number, tuple(columns)
        reader = self._readers.get(key)
        if reader is None:
            self._readers[key] = reader = LogReader(self._logs[number], columns, topics)
        return reader

    def wait(self, _after: Mapping[int, int | None], _seconds: float) -> bool:
        return False  # nobody writes to them


class LogsAnywhere:
    """Those of a stream of a broker.

    Args:
        stream: the stream.
        places: where partitions are that other nodes own; None: without a cluster there are none.
    """

    def __init__(self, stream: Stream, places: PartitionPlaces | None) -> None:
        self._stream = stream
        self._places = places
        self._here = LogsHere(stream.partitions)

    def count(self) -> int:
        return self._here.count()

    def owner(self, number: int) -> str:
        places = self._places
        return (None if places is None else places.owner(self._stream.name, number)) or ""

    def spans(self, numbers: Collection[int], patience: float) -> dict[int, OffsetSpan]:
        found, elsewhere = self._ours(numbers, self._here.span)
        if elsewhere and self._places is not None:
            asked = self._places.extents(self._stream.name, patience, elsewhere)
            found |= {
                number: OffsetSpan(asked[number].earliest, asked[number].end)
                for number in elsewhere & asked.keys()
            }
        return found

    def at_time(self, numbers: Collection[int], time: int, patience: float) -> dict[int, int]:
        found, elsewhere = self._ours(numbers, lambda number: self._here.time_of(number, time))
        if elsewhere and self._places is not None:
            asked = self._places.at_time(self._stream.name, time, patience, elsewhere)
            found |= {number: asked[number] for number in elsewhere & asked.keys()}
        return found

    def _ours(
        self, numbers: Collection[int], find: Callable[[int], T]
    ) -> tuple[dict[int, T], set[int]]:
        """What is found of those partitions that this node owns, and which are others'."""
        found: dict[int, T] = {}
        elsewhere: set[int] = set()
        for number in numbers:
            if not self.owner(number):
                found[number] = find(number)
            # Not before: what another node owns is deleted here.
            if self.owner(number):
                found.pop(number, None)
                elsewhere.add(number)
        return found, elsewhere

    def last(
        self, number: int, span: OffsetSpan, count: int, topics: str | None
    ) -> Iterator[Moment]:
        if not self.owner(number):
            found = list(self._here.last(number, span, count, topics))
            if not self.owner(number):
                return iter(found)
        return self._last_elsewhere(number, span, count, topics)

    def _last_elsewhere(
        self, number: int, span: OffsetSpan, count: int, topics: str | None
    ) -> Iterator[Moment]:
        end = span.end
        for look in looks(count, topics):
            if not count or end <= span.earliest:
                return
            begin = at = max(span.earliest, end - look)
            found: list[Moment] = []
            while at < end:
                # A payload is of no interest, but 0 would be all of it.
                page = self.page(number, PageQuery(at, end, _FAR_ROWS, _FAR_BYTES, topics, 1))
                found += [(each.timestamp, each.offset) for each in page.messages]
                at = page.next
            found = found[-count:]
            yield from reversed(found)
            count -= len(found)
            end = begin

    def page(self, number: int, wanted: PageQuery) -> Page:
        return self._at_owner(
            number, wanted, lambda: self._here.page(number, wanted), lambda page: page
        )

    def rows(self, number: int, wanted: PageQuery, columns: Sequence[str]) -> RowPage:
        """The rows of a page as Arrow has them: some columns of `COLUMNS`.

        Raises:
            AwayError: its owner does not answer.
            StreamError: it cannot be read.
        """
        return self._at_owner(
            number,
            wanted,
            lambda: self._here.rows(number, wanted, columns),
            lambda page: as_rows(page, columns),
        )

    def locate(self, number: int, start: int, until: int) -> Located | None:
        return None if self.owner(number) else self._here.locate(number, start, until)

    def _at_owner(
        self,
        number: int,
        wanted: PageQuery,
        here: Callable[[], T],
        there: Callable[[Page], T],
    ) -> T:
        """What is read where a partition is: here, or made of a page from there."""
        owner = ""
        for _ in range(_TRIES):
            owner = self.owner(number)
            if owner and self._places is not None:
                page = self._places.page(self._stream.name, number, within_reach(wanted))
                if page is not None:
                    return there(page)
                if self.owner(number) == owner:
                    break
                continue
            try:
                found = here()
            except StreamError:
                if not self.owner(number):
                    raise
                continue  # what another node owns is deleted here
            if not self.owner(number):
                return found
        raise AwayError(self._stream.name, number, owner)

    def wait(self, after: Mapping[int, int | None], seconds: float) -> bool:
        theirs = {number for number in after if self.owner(number)}
        ours = [
            (self._stream.partitions[number], offset)
            for number, offset in after.items()
            if number not in theirs and offset is not None
        ]
        until = time.monotonic() + seconds
        while True:
            if theirs and self._have_passed(after, theirs, min(seconds, _SHORT)):
                return True
            left = until - time.monotonic()
            if left <= 0 or self._stream.wait(ours, min(left, LOOK) if theirs else left):
                return left > 0

    def _have_passed(
        self, after: Mapping[int, int | None], numbers: set[int], patience: float
    ) -> bool:
        assert self._places is not None
        found = self._places.extents(self._stream.name, patience, numbers)
        for number in numbers & found.keys():
            offset = after[number]
            if offset is None or found[number].end > offset:
                return True
        return False


def within_reach(wanted: PageQuery) -> PageQuery:
    """As much of a page as another node is asked for at a time."""
    return wanted._replace(
        end=min(wanted.end, wanted.start + _FAR_LOOK),
        rows=min(wanted.rows, _FAR_ROWS),
        size=min(wanted.size, _FAR_BYTES),
    )


def page_of(reader: LogReader, wanted: PageQuery) -> Page:
    """Some messages of a partition of this process; see `Logs.page`.

    Raises:
        StreamError: they cannot be read.
    """
    try:
        return _page(reader, wanted)
    except OutOfRangeError as error:
        if wanted.start >= error.earliest:
            raise
        return Page([], error.earliest)  # the retention was faster


def rows_of(reader: LogReader, wanted: PageQuery) -> RowPage:
    """Some rows of a partition of this process, whose columns have the offset among them.

    At most about `wanted.rows` of them, and twice `wanted.size` bytes, of what is read up to `wanted.end`.

    Raises:
        OutOfRangeError: where they begin is not there.
        StreamError: they cannot be read.
    """
    found: list[pa.RecordBatch] = []
    count = size = 0
    following = end = min(wanted.end, reader.partition.end)
    for chunk in _in_front_of_damage(reader.read(wanted.start, end, most=wanted.size)):
        rows, following = chunk
        room = wanted.size - size
        if rows.num_rows > 1 and rows.nbytes > 2 * room:
            # What is kept is copied: a slice holds all of what it is cut from.
            most = max(1, rows.num_rows * room // rows.nbytes)
            found.append(rows.take(ramp(most)))
            following = found[-1].column("offset")[-1].as_py() + 1
            break
        found.append(rows)
        count += rows.num_rows
        size += rows.nbytes
        if count >= wanted.rows or size >= wanted.size:
            break
    return RowPage(found[0] if len(found) == 1 else pa.concat_batches(found), following)


def _in_front_of_damage(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """What can be read is a page: damage behind it is for whoever reads on."""
    is_first = True
    try:
        for chunk in chunks:
            yield chunk
            is_first = False
    except DamagedError:
        if is_first:
            raise


def as_rows(page: Page, columns: Sequence[str]) -> RowPage:
    """A page of messages as rows."""
    schema = projected(columns)
    rows = [{name: getattr(each, name) for name in columns} for each in page.messages]
    return RowPage(pa.RecordBatch.from_pylist(rows, schema=schema), page.next)


def _page(reader: LogReader, wanted: PageQuery) -> Page:
    page: list[StreamMessage] = []
    size = 0
    end = min(wanted.end, reader.partition.end)
    for chunk in reader.read(wanted.start, end, wanted.rows):
        for row in plain(chunk.rows):
            page.append(_message(reader.partition.number, row, wanted.payload_bytes))
            size += len(page[-1].payload)
            if size > wanted.size:
                return Page(page, page[-1].offset + 1)
        if page:
            return Page(page, chunk.next)
    return Page(page, end)


def _message(partition: int, row: dict[str, Any], most: int) -> StreamMessage:
    payload: bytes = row.pop("payload")
    return StreamMessage(
        partition=partition,
        payload=payload[:most] if most else payload,
        size=len(payload),
        **row,
    )


def last_of(log: PartitionLog, end: int, count: int, topic_filter: str | None) -> Iterator[Moment]:
    """Time and offset of the last `count` messages before an offset, the last one first."""
    reader = LogReader(log, ("timestamp", "offset"), topic_filter)
    for look in looks(count, topic_filter):
        if not count or end <= log.earliest:
            return
        begin = max(log.earliest, end - look)
        try:
            batches = [chunk.rows for chunk in reader.read(begin, end)]
        except OutOfRangeError:
            return  # the retention was faster
        for batch in reversed(batches):
            for row in reversed(list(plain(batch.slice(max(0, batch.num_rows - count))))):
                yield row["timestamp"], row["offset"]
                count -= 1
        end = begin


def looks(count: int, topic_filter: str | None) -> Iterator[int]:
    """Among how many messages the last `count` are looked for, each time further back."""
    look = count if topic_filter is None else max(count, _FIRST_LOOK)
    while True:
        yield look
        look = min(2 * look, max(look, _WIDEST_LOOK))


def plain(rows: pa.RecordBatch) -> Iterable[dict[str, Any]]:
    """Rows whose timestamps come first, in microseconds."""
    changed = rows.set_column(0, "timestamp", rows.column(0).cast(pa.int64()))
    return changed.to_pylist()  # type: ignore[no-any-return]


def checked(logs: Logs, stream: str, partition: int | None) -> list[int]:
    """The numbers of the partitions that are wanted: one, or all.

    Raises:
        UnknownPartitionError: there is no such partition.
    """
    count = logs.count()
    if partition is None:
        return list(range(count))
    if partition >= count:
        raise UnknownPartitionError(stream, partition, count)
    return [partition]

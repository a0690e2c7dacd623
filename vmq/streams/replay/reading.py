"""The rows of a stream in the order of time, in pieces that MQTT can carry: read in threads, never in the event loop.

Within a partition the order is that of the offsets. Between partitions the older rows come first, as far as they lie
apart by more than `SLACK`. A partition that cannot be read holds the others back for as long; then they go on without
it, and it goes on where it was once it can be read.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from vmq.streams.log.archive import in_a_hurry
from vmq.streams.log.errors import OutOfRangeError, StreamError
from vmq.streams.log.message import TailQuery
from vmq.streams.logs import OffsetSpan, RowLogs, RowPage
from vmq.streams.places import PageQuery
from vmq.streams.replay.packets import PacketPage, Packets, PacketSource
from vmq.streams.tail import starts

log = logging.getLogger("vmq.streams")

#: Microseconds by which rows of different partitions may come in another order than that of their times, and seconds
#: that one of them may hold the others back.
SLACK: Final = 5_000_000
#: Bytes that a replay reads ahead, and those of the pages of its partitions: a batch is unpacked anew for each page
#: that it is cut into. Rows of a page, and rows that are looked through for it: at first, and at most, where few are
#: wanted. The more at a time, the more it brings that they lie by topic beside a segment (`log.ordered`).
AHEAD: Final = 1 << 20
PAGES: Final = 4 << 20
_LEAST_AHEAD: Final = 256 << 10
_PAGE_ROWS: Final = 16_384
_LOOK: Final = 65_536
_WIDEST_LOOK: Final = 1 << 19
#: Few are wanted if it is not one in so many.
_FEW: Final = 32
#: Seconds that other nodes have to answer at first, and later.
_PATIENCE: Final = 3.0
_SHORT: Final = 0.2
#: Seconds until what could not be read is tried again.
AGAIN: Final = 0.5

TRUE: Final = pa.scalar(value=True)

COLUMNS: Final = ("topic", "payload", "retain", "timestamp", "offset")
ALL_COLUMNS: Final = (*COLUMNS, "qos", "client_id")


class Slab(NamedTuple):
    """Consecutive rows that are wanted of a partition, perhaps none; what follows them begins at offset `next`."""

    partition: int
    rows: pa.RecordBatch | Packets
    next: int


class Part:
    """One partition on its way."""

    def __init__(self, number: int, start: int | None) -> None:
        self.number = number
        #: Where the next page begins; None: nobody knows yet where this one begins at all.
        self.start = start
        #: Rows that are looked through for the next page.
        self.look = _LOOK
        #: The page whose rows are handed on, how many of them are, and their times.
        self.page: RowPage | PacketPage | None = None
        self.at = 0
        self.times: pa.Int64Array | None = None
        #: Since when (monotonic) it cannot be read; 0: it can.
        self.away = 0.0
        self.is_told = False


class ReplayReader:
    """Reads a stream for one client. One thread at a time calls it.

    Args:
        logs: the partitions.
        stream: the stream's name.
        topics: the filter of topics.
        where: which rows of a partition are wanted, beside that; None: all.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        logs: RowLogs,
        stream: str,
        topics: str,
        where: Callable[[int, pa.RecordBatch], pa.BooleanArray] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.logs = logs
        self.stream = stream
        self.topics = topics
        self.where = where
        self.clock = clock
        self.columns = COLUMNS if where is None else ALL_COLUMNS
        #: Has pages made elsewhere, as far as it can.
        self.source: PacketSource | None = None
        self.parts: list[Part] = []
        #: It reads all partitions, those too that the stream gets meanwhile.
        self.grows = True
        #: Where those begin, in time, that did not answer when this began.
        self.began = 0
        #: Where partitions ended when they were looked at last.
        self.seen: dict[int, int] = {}
        #: Rows that retention was quicker to delete.
        self.lost = 0
        #: Whose it is, for the log, behind a space.
        self.who = ""

    def begin(self, start: str | int, known: Mapping[int, int] | None = None) -> dict[int, int]:
        """Finds where each partition begins: where `known` says, else at `start`. Returns what it found.

        `start`: `earliest`, `latest`, or microseconds since 1970.

        Raises:
            StreamError: it cannot be read.
        """
        self.began = start if isinstance(start, int) else time.time_ns() // 1000
        numbers = range(self.logs.count())
        if known is None:
            spans = self.logs.spans(numbers, _PATIENCE)
            with in_a_hurry():
                found = starts(self.logs, spans, query_of(self.stream, start))
            begin: dict[int, int | None] = {number: found.get(number) for number in numbers}
        else:
            # What a stream had grown by meanwhile is read from its beginning.
            begin = {number: known.get(number, 0) for number in numbers}
        self.parts = [Part(number, offset) for number, offset in begin.items()]
        return {number: offset for number, offset in begin.items() if offset is not None}

    def set_part(self, number: int, start: int | None) -> None:
        """Reads a partition from an offset on; None: not any more. For a reader that has only those."""
        self.grows = False
        self.parts = [each for each in self.parts if each.number != number]
        if start is not None:
            self.parts.append(Part(number, start))

    def ends(self) -> dict[int, int]:
        """Where the next page of each partition begins."""
        return {each.number: each.start for each in self.parts if each.start is not None}

    def read(self, room: int = AHEAD) -> tuple[list[Slab], bool]:
        """What comes next, of about so many bytes; and whether more is there already, or had to be left out.

        Raises:
            StreamError: the expression cannot be evaluated.
        """
        for number in range(len(self.parts), self.logs.count()) if self.grows else ():
            self.parts.append(Part(number, 0))
        spans = self._spans()
        found: list[Slab] = []
        size = 0
        while size < room:
            if not self._fill(spans, found):
                return found, True
            part = min(
                (each for each in self.parts if each.page is not None),
                key=lambda each: (first_time(each), each.number),
                default=None,
            )
            if part is None:
                return found, False
            slab = self._take(part)
            size += slab.rows.nbytes
            found.append(slab)
        return found, True

    def away(self) -> set[int]:
        """The partitions that cannot be read."""
        return {each.number for each in self.parts if each.away}

    def _spans(self) -> Mapping[int, OffsetSpan]:
        """What partitions hold, of those that answer."""
        numbers = [each.number for each in self.parts]
        try:
            found = self.logs.spans(numbers, _SHORT if self.away() else _PATIENCE)
            late = [each for each in self.parts if each.start is None and each.number in found]
            if late:
                asked = self.logs.at_time([each.number for each in late], self.began, _PATIENCE)
                for each in late:
                    each.start = asked.get(each.number)
        except StreamError as error:
            for each in self.parts:
                self._miss(each, str(error))
            return {}
        self.seen = {number: span.end for number, span in found.items()}
        return found

    def _fill(self, spans: Mapping[int, OffsetSpan], found: list[Slab]) -> bool:
        """Has a page of each partition that has one; False if others wait for one, or much was looked through."""
        waits = False
        for part in self.parts:
            if part.page is not None:
                continue
            span = spans.get(part.number)
            if span is None or part.start is None:
                self._miss(
                    part, f"partition {part.number} of stream {self.stream!r} does not answer"
                )
            else:
                self._fit(part, span)
                if part.start >= span.end:
                    part.away = 0.0
                    continue
                page = self._page(part, span.end)
                if page is not None:
                    part.away = 0.0
                    part.is_told = False
                    if not page.rows.num_rows:
                        found.append(Slab(part.number, page.rows, page.next))
                        return False
                    part.page, part.at = page, 0
                    part.times = times_of(page.rows)
                    continue
            waits = waits or self.clock() - part.away < SLACK / 1_000_000
        return not waits

    def _fit(self, part: Part, span: OffsetSpan) -> None:
        """Has it begin with an offset that is there."""
        assert part.start is not None
        start = part.start
        if span.earliest <= start <= span.end:
            return
        part.start = span.earliest
        if start < span.earliest:
            self.lost += span.earliest - start
            what = "retention has deleted what comes before"
        else:
            what = "the stream is another than it was"
        text = "replay of stream=%s partition=%d%s goes on at offset=%d instead of %d: %s"
        log.warning(text, self.stream, part.number, self.who, part.start, start, what)

    def _page(self, part: Part, end: int) -> RowPage | PacketPage | None:
        """The next page; None if it cannot be read now."""
        assert part.start is not None
        start = part.start
        size = min(AHEAD, max(_LEAST_AHEAD, PAGES // len(self.parts)))
        wanted = PageQuery(start, min(end, start + part.look), _PAGE_ROWS, size, self.topics)
        try:
            with in_a_hurry():
                packets = self._packets(part.number, wanted)
                page = packets or self.logs.rows(part.number, wanted, self.columns)
        except OutOfRangeError as error:
            self._fit(part, OffsetSpan(error.earliest, error.latest))
            return RowPage(no_rows(self.columns), part.start)
        except (StreamError, OSError) as error:
            self._miss(part, str(error))
            return None
        part.start = page.next
        is_sparse = page.rows.num_rows * _FEW < page.next - start
        part.look = min(2 * part.look, _WIDEST_LOOK) if is_sparse else _LOOK
        if isinstance(page, RowPage) and self.where is not None and page.rows.num_rows:
            page = RowPage(page.rows.filter(self.where(part.number, page.rows)), page.next)
        return page

    def _packets(self, number: int, wanted: PageQuery) -> PacketPage | None:
        if self.source is None or self.where is not None:
            return None
        return self.source.page(self.logs, number, wanted)

    def _miss(self, part: Part, why: str) -> None:
        """A partition cannot be read now."""
        now = self.clock()
        part.away = part.away or now
        if not part.is_told and now - part.away >= SLACK / 1_000_000:
            part.is_told = True
            text = "replay of stream=%s%s goes on without partition=%d until it can be read: %s"
            log.warning(text, self.stream, self.who, part.number, why)

    def _take(self, part: Part) -> Slab:
        """Those rows of a partition that come before all others."""
        page, times = part.page, part.times
        assert page is not None
        assert times is not None
        others = [
            first_time(each) for each in self.parts if each.page is not None and each is not part
        ]
        count = page.rows.num_rows
        end = count
        if others:
            # Of plain numbers pyarrow finds out the type each time, and looks for libraries meanwhile.
            latest = min(others) + SLACK
            rest = times.slice(part.at)
            if pc.max(rest).as_py() > latest:
                later = pc.greater(rest, pa.scalar(latest, pa.int64()))
                end = part.at + max(1, pc.index(later, TRUE).as_py())
        rows = page.rows.slice(part.at, end - part.at)
        part.at = end
        if end < count:
            return Slab(part.number, rows, last_of(rows) + 1)
        part.page = part.times = None
        return Slab(part.number, rows, page.next)


def first_time(part: Part) -> int:
    """When the next row of a partition was taken, in microseconds."""
    assert part.times is not None
    when: int = part.times[part.at].as_py()
    return when


def times_of(rows: pa.RecordBatch | Packets) -> pa.Int64Array:
    """When rows were taken, in microseconds."""
    return rows.times if isinstance(rows, Packets) else rows.column("timestamp").view(pa.int64())


def last_of(rows: pa.RecordBatch | Packets) -> int:
    """The offset of the last one."""
    if isinstance(rows, Packets):
        return int(rows.frames.offsets[rows.num_rows - 1])
    return int(rows.column("offset")[-1].as_py())


def no_rows(columns: Collection[str]) -> pa.RecordBatch:
    """A page without rows."""
    return pa.RecordBatch.from_pylist([], schema=pa.schema([(name, pa.null()) for name in columns]))


def query_of(stream: str, start: str | int) -> TailQuery:
    """Where to begin, as `vmq.streams.tail.starts` is asked."""
    if isinstance(start, int):
        return TailQuery(stream=stream, time=start)
    return TailQuery(stream=stream, start="earliest" if start == "earliest" else "latest")

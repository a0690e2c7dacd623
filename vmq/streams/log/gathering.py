"""The messages of one partition that wait for the next commit, column by column.

Appending is on the path of every message: a few list appends, nothing else. Arrow sees the columns
as a whole, in the writer's thread.
"""

import logging
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from vmq.streams.log.keys import Keys
from vmq.streams.log.schema import HEADERS, STORED

log = logging.getLogger("vmq.streams")

Headers = list[tuple[str, str]]

#: What Arrow, or what makes its columns, raises at rows that are none of a stream.
REFUSALS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError, AttributeError)

_RETAIN: Final = 4
_QOS: Final = pa.scalar(3, pa.uint8())
_RETAIN_FLAG: Final = pa.scalar(_RETAIN, pa.uint8())
_TIME: Final = pa.timestamp("us", tz="UTC")


class Gathering:
    """Columns that grow. `headers` is kept for the rows that have any, `receipts` likewise, in order.

    `dots` is of each row or of none: a log with copies takes it once by that (`vmq_cluster.raft.dots`).
    """

    __slots__ = ("clients", "dots", "flags", "headers", "payloads", "receipts", "times", "topics")

    def __init__(self) -> None:
        self.topics: list[bytes] = []
        self.payloads: list[bytes] = []
        self.flags = bytearray()
        self.times = array("q")
        self.clients: list[str] = []
        self.headers: dict[int, Headers] = {}
        self.receipts: list[tuple[int, str]] = []
        self.dots: list[tuple[str, str, int]] = []

    def add_run(
        self, topic: bytes, payloads: list[bytes], flags: int, client_id: str, time: int
    ) -> None:
        """Many messages that differ in their payloads only."""
        count = len(payloads)
        self.topics += [topic] * count
        self.payloads += payloads
        self.flags += bytes((flags,)) * count
        self.times.extend([time] * count)
        self.clients += [client_id] * count

    @classmethod
    def of(cls, rows: pa.RecordBatch) -> "Gathering":
        """The messages of some rows; their keys are found anew."""
        made = cls()
        made.topics = [each.encode() for each in rows.column("topic").to_pylist()]
        made.payloads = rows.column("payload").to_pylist()
        for qos, retain in zip(
            rows.column("qos").to_pylist(), rows.column("retain").to_pylist(), strict=True
        ):
            made.flags.append(flags_of(qos, retain))
        made.times.extend(rows.column("timestamp").cast(pa.int64()).to_pylist())
        made.clients = rows.column("client_id").to_pylist()
        for number, pairs in enumerate(rows.column("headers").to_pylist()):
            if pairs:
                made.headers[number] = [(each["key"], each["value"]) for each in pairs]
        return made

    def extend(self, other: "Gathering", skip: int = 0) -> None:
        """The rows of another one, from one on; they have no receipts, and no dots."""
        begin = len(self.topics) - skip
        self.topics += other.topics[skip:]
        self.payloads += other.payloads[skip:]
        self.flags += other.flags[skip:]
        self.times.extend(other.times[skip:])
        self.clients += other.clients[skip:]
        for number, headers in other.headers.items():
            if number >= skip:
                self.headers[begin + number] = headers

    def parts(self, most_rows: int, most_bytes: int) -> Iterator["Gathering"]:
        """The rows again, so many at a time or of so many bytes of payload; a larger one is alone."""
        begin = size = 0
        for number, payload in enumerate(self.payloads):
            if number > begin and (number - begin == most_rows or size + len(payload) > most_bytes):
                yield self.chosen(range(begin, number))
                begin, size = number, 0
            size += len(payload)
        yield self if not begin else self.chosen(range(begin, len(self.payloads)))

    def newest(self) -> int:
        """The highest timestamp; there must be a row."""
        return max(self.times)

    def rows(self, keys: Keys) -> tuple[pa.RecordBatch, int]:
        """The rows as Arrow has them, and how many had to be left out.

        Topics and ids are UTF-8 by the time they come here. Should a plugin have put in something
        else, that row is left out, not the commit.
        """
        try:
            return self._rows(keys), 0
        except REFUSALS as error:
            good = [number for number in range(len(self.topics)) if self._is_good(number)]
            left_out = len(self.topics) - len(good)
            if not left_out:
                raise
            log.error("left %d messages out of a stream: %s", left_out, error)
            return self.chosen(good)._rows(keys), left_out

    def _rows(self, keys: Keys) -> pa.RecordBatch:
        count = len(self.topics)
        topics = pa.array(self.topics, pa.string())
        clients = pa.array(self.clients, pa.string())
        flags = from_buffer(pa.uint8(), self.flags, count)
        return pa.RecordBatch.from_arrays(
            [
                topics,
                pa.array(self.payloads, pa.binary()),
                pc.bit_wise_and(flags, _QOS).cast(pa.int32()),
                pc.greater_equal(flags, _RETAIN_FLAG),
                from_buffer(_TIME, self.times, count),
                clients,
                keys.column(topics, clients),
                self._header_column(count),
            ],
            schema=STORED,
        )

    def _header_column(self, count: int) -> pa.ListArray:
        if not self.headers:
            offsets = pa.Array.from_buffers(pa.int32(), count + 1, [None, zeros(4 * count + 4)])
            return pa.ListArray.from_arrays(offsets, pa.array([], HEADERS.value_type), type=HEADERS)
        none: Headers = []
        pairs = [
            [{"key": key, "value": value} for key, value in self.headers.get(number, none)]
            for number in range(count)
        ]
        return pa.array(pairs, HEADERS)

    def _is_good(self, number: int) -> bool:
        def fits(make: Callable[[], object]) -> bool:
            try:
                make()
            except REFUSALS:
                return False
            return True

        return (
            fits(lambda: pa.array([self.topics[number]], pa.binary()).cast(pa.string()))
            and fits(lambda: pa.array([self.clients[number]], pa.string()))
            and fits(lambda: pa.array([self.payloads[number]], pa.binary()))
            and fits(lambda: self.chosen([number])._header_column(1))
        )

    def chosen(self, numbers: Iterable[int]) -> "Gathering":
        """A gathering of some of the rows, without receipts and dots."""
        chosen = Gathering()
        for place, number in enumerate(numbers):
            chosen.topics.append(self.topics[number])
            chosen.payloads.append(self.payloads[number])
            chosen.flags.append(self.flags[number])
            chosen.times.append(self.times[number])
            chosen.clients.append(self.clients[number])
            if number in self.headers:
                chosen.headers[place] = self.headers[number]
        return chosen


def flags_of(qos: int, retain: bool) -> int:
    """How QoS and RETAIN ride in one byte."""
    return qos | _RETAIN if retain else qos


def from_buffer(kind: pa.DataType, data: Any, count: int) -> pa.Array:
    """A column without nulls over the bytes of something that changes no more."""
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(data)])


_ZEROS = pa.py_buffer(bytes(1 << 16))


def zeros(size: int) -> pa.Buffer:
    """A buffer of that many zeros."""
    return _ZEROS.slice(0, size) if size <= _ZEROS.size else pa.py_buffer(bytes(size))

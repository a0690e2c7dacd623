"""Jobs as columns of numbers: what a page has of them in memory, and an index of a segment on disk."""

from array import array
from binascii import a2b_base64, b2a_base64
from itertools import compress
from typing import Any, Final

from vmq.jobs.queue import Job, JobLane

#: Bytes of an id, and where its random part begins and ends.
ID: Final = 40
_TOKEN: Final = 11
_TOKEN_END: Final = 35
_TO_BASE64: Final = bytes.maketrans(b"-_", b"+/")
_FROM_BASE64: Final = bytes.maketrans(b"+/", b"-_")
#: The columns of a page.
SERIAL: Final = 0
CREATED: Final = 1
SEGMENT: Final = 2
OFFSET: Final = 3
SIZE: Final = 4
TTL: Final = 5
RETRY: Final = 6
DELAY: Final = 7
#: Beside the first of numbers that rise by one.
_RISES: Final = -(1 << 62)


class JobColumns:
    """Jobs of one lane in the order of adding, a column of numbers for each of their attributes."""

    def __init__(self) -> None:
        #: Of these, while a log is read; and when the time of the first of them ends.
        self.lane: JobLane | None = None
        self.due: float = float("inf")
        self.ids = bytearray()
        self.serials = array("q")
        self.created = array("q")
        self.segments = array("q")
        self.offsets = array("q")
        self.sizes = array("q")
        self.ttls = array("q")
        self.retries = array("q")
        self.delays = array("q")

    def add(
        self,
        job_id: bytes,
        serial: int,
        created: int,
        segment: int,
        offset: int,
        size: int,
        ttl: int,
        retry: int,
        delay: int,
    ) -> None:
        """One more."""
        self.ids += job_id
        self.serials.append(serial)
        self.created.append(created)
        self.segments.append(segment)
        self.offsets.append(offset)
        self.sizes.append(size)
        self.ttls.append(ttl)
        self.retries.append(retry)
        self.delays.append(delay)

    def add_alike(
        self,
        ids: bytes,
        serial: int,
        created: "array[int]",
        segment: int,
        offset: int,
        head: tuple[Any, ...],
    ) -> None:
        """Many more whose headers are alike and whose numbers rise by one, as their bodies' places do by their size."""
        count = len(created)
        retry, ttl, delay, size = head[3:7]
        self.ids += ids
        self.created.extend(created)
        self.serials.extend(range(serial, serial + count))
        if size:
            self.offsets.extend(range(offset, offset + size * count, size))
        else:
            self.offsets.extend(array("q", [offset]) * count)
        self.segments.extend(array("q", [segment]) * count)
        self.sizes.extend(array("q", [size]) * count)
        self.ttls.extend(array("q", [ttl]) * count)
        self.retries.extend(array("q", [retry]) * count)
        self.delays.extend(array("q", [delay]) * count)

    def add_some(self, ids: bytes, columns: "list[array[int]]", wanted: bytes) -> None:
        """More, out of the columns of a page: those where `wanted` is not zero."""
        count = len(wanted)
        self.ids += b"".join(compress(split_ids(ids), wanted))
        self.serials.extend(compress(whole(columns[SERIAL], count), wanted))
        self.created.extend(compress(whole(columns[CREATED], count), wanted))
        self.segments.extend(compress(whole(columns[SEGMENT], count), wanted))
        self.offsets.extend(compress(whole(columns[OFFSET], count), wanted))
        self.sizes.extend(compress(whole(columns[SIZE], count), wanted))
        self.ttls.extend(compress(whole(columns[TTL], count), wanted))
        self.retries.extend(compress(whole(columns[RETRY], count), wanted))
        self.delays.extend(compress(whole(columns[DELAY], count), wanted))

    def add_job(self, job: Job) -> None:
        """One more, that is in memory."""
        self.add(
            job.id,
            job.serial,
            job.created,
            job.segment,
            job.offset,
            job.size,
            job.ttl,
            job.retry,
            job.delay,
        )

    def columns(self) -> "list[array[int]]":
        """As a page has them, `SERIAL` to `DELAY`."""
        return [
            narrow(self.serials),
            narrow(self.created),
            narrow(self.segments),
            narrow(self.offsets),
            narrow(self.sizes),
            narrow(self.ttls),
            narrow(self.retries),
            narrow(self.delays),
        ]


def narrow(numbers: "array[int]") -> "array[int]":
    """A column as short as may be: numbers that are all the same are one, those that rise by one are the first, and
    those without a higher half are the lower one.
    """
    first = numbers[0]
    count = len(numbers)
    if numbers == array("q", [first]) * count:
        return array("q", [first])
    if numbers[-1] - first == count - 1 and numbers == array("q", range(first, first + count)):
        return array("q", [first, _RISES])
    halves = array("I", numbers.tobytes())
    return numbers if any(halves[1::2]) else halves[::2]


def is_rising(numbers: "array[int]") -> bool:
    """Whether a column has the first of numbers that rise by one."""
    return len(numbers) == 2 and numbers[1] == _RISES


def whole(numbers: "array[int]", count: int) -> "array[int]":
    """A column with all its numbers."""
    if len(numbers) == 1:
        return array("q", numbers) * count
    if is_rising(numbers):
        return array("q", range(numbers[0], numbers[0] + count))
    return numbers


def at_place(numbers: "array[int]", place: int) -> int:
    """A number of a column."""
    count = len(numbers)
    if count == 1:
        return numbers[0]
    if count == 2 and is_rising(numbers):
        return numbers[0] + place
    return numbers[place]


def short_ids(joined: bytes) -> bytes:
    """Ids that differ in their random part only are that, without base64; others are as they are."""
    size = len(joined) // ID
    head, tail = joined[:_TOKEN], joined[_TOKEN_END:ID]
    tokens = bytearray((_TOKEN_END - _TOKEN) * size)
    for place in range(ID):
        column = joined[place::ID]
        if _TOKEN <= place < _TOKEN_END:
            tokens[place - _TOKEN :: _TOKEN_END - _TOKEN] = column
        elif column.count(joined[place]) != size:
            return joined
    try:
        return head + tail + a2b_base64(tokens.translate(_TO_BASE64), strict_mode=True)
    except ValueError:
        return joined


def short_id(job_id: bytes) -> bytes:
    """What `short_ids` have of one; of an id that they cannot have the whole."""
    try:
        token = a2b_base64(job_id[_TOKEN:_TOKEN_END].translate(_TO_BASE64), strict_mode=True)
    except ValueError:
        return job_id
    return token or job_id


def split_ids(joined: bytes) -> list[bytes]:
    """Ids that stand one behind the other."""
    return [joined[at : at + ID] for at in range(0, len(joined), ID)]


def long_ids(short: bytes, size: int) -> bytes:
    """All ids, one behind the other."""
    if len(short) == size * ID:
        return short
    head, tail = short[:_TOKEN], short[_TOKEN : _TOKEN + ID - _TOKEN_END]
    tokens = b2a_base64(short[len(head) + len(tail) :], newline=False).translate(_FROM_BASE64)
    width = _TOKEN_END - _TOKEN
    return b"".join([head + tokens[at : at + width] + tail for at in range(0, size * width, width)])

"""Jobs as columns of numbers: what a page has of them in memory, and an index of a segment on disk."""

from array import array
from binascii import a2b_base64, b2a_base64
from itertools import compress
from typing import Any, Final
from zlib import compress as compress_bytes
from zlib import decompress

from mypy_extensions import i64

from vmq.jobs.queue import Job, JobLane

#: Bytes of an id, and where its random part begins and ends.
ID: Final = 40
_TOKEN: Final = 11
_TOKEN_END: Final = 35
#: Bytes of that without base64.
_SHORT: Final = 18
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
#: Seconds by which the time of a job ends later than follows from when it was added: clocks of two nodes differ.
LATER: Final = 8
DELIVERIES: Final = 9
NACKS: Final = 10
REPEATS: Final = 11
#: Which nodes may have it: the number of that in `JobPager.shares`.
SHARE: Final = 12
#: Beside the first of numbers that rise by one.
_RISES: Final = -(1 << 62)


class JobColumns:
    """Jobs of one lane in the order of adding, a column of numbers for each of their attributes."""

    def __init__(self) -> None:
        #: Of these, while a log is read; and when the time of the first of them ends.
        self.lane: JobLane | None = None
        #: They are copies of what other nodes may serve.
        self.is_away = False
        #: They are gone, and their keys are left.
        self.is_gone = False
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
        self.laters = array("q")
        self.shares = array("q")
        #: Empty: all are 0, as those of jobs that a log has as new.
        self.deliveries = array("q")
        self.nacks = array("q")
        self.repeats = array("q")
        #: The keys of those that have one, by their places.
        self.keys: dict[int, bytes] = {}
        #: Those that are vouched for: a bit for each place.
        self.vouched: int = 0

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
        later: int,
        share: int,
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
        self.laters.append(later)
        self.shares.append(share)

    def add_alike(
        self,
        ids: bytes,
        serial: int,
        created: "array[int]",
        segment: int,
        offset: int,
        head: tuple[Any, ...],
        later: int,
        share: int,
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
        self.laters.extend(array("q", [later]) * count)
        self.shares.extend(array("q", [share]) * count)

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
        self.laters.extend(compress(whole(columns[LATER], count), wanted))
        self.shares.extend(compress(whole(columns[SHARE], count), wanted))

    def add_job(self, job: Job, later: int, share: int) -> None:
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
            later,
            share,
        )
        if job.key:
            self.keys[len(self.deliveries)] = job.key
        if job.is_vouched:
            self.vouched |= 1 << len(self.deliveries)
        self.deliveries.append(job.deliveries)
        self.nacks.append(job.nacks)
        self.repeats.append(job.repeats)

    def columns(self) -> "list[array[int]]":
        """As a page has them, `SERIAL` to `SHARE`."""
        return [
            narrow(self.serials),
            narrow(self.created),
            narrow(self.segments),
            narrow(self.offsets),
            narrow(self.sizes),
            narrow(self.ttls),
            narrow(self.retries),
            narrow(self.delays),
            narrow(self.laters),
            narrow(self.deliveries),
            narrow(self.nacks),
            narrow(self.repeats),
            narrow(self.shares),
        ]


def narrow(numbers: "array[int]") -> "array[int]":
    """A column as short as may be: numbers that are all the same are one, those that rise by one are the first, and
    those without a higher half are the lower one.
    """
    if not numbers:
        return array("q", [0])
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


def place_of(joined: bytes, count: int, job_id: bytes) -> int:
    """The place of an id among so many, which are short ones or not; -1: it is not one of them."""
    width: i64 = ID
    start: i64 = 0
    wanted = job_id
    if len(joined) != count * ID:
        width = _SHORT
        start = ID - _TOKEN_END + _TOKEN
        if job_id[:_TOKEN] + job_id[_TOKEN_END:] != joined[:start]:
            return -1
        wanted = short_id(job_id)
    at: i64 = joined.find(wanted, start)
    while at >= 0 and (at - start) % width:
        at = joined.find(wanted, at + 1)
    return int(at if at < 0 else (at - start) // width)


def long_ids(short: bytes, size: int) -> bytes:
    """All ids, one behind the other."""
    if len(short) == size * ID:
        return short
    head, tail = short[:_TOKEN], short[_TOKEN : _TOKEN + ID - _TOKEN_END]
    tokens = b2a_base64(short[len(head) + len(tail) :], newline=False).translate(_FROM_BASE64)
    width = _TOKEN_END - _TOKEN
    return b"".join([head + tokens[at : at + width] + tail for at in range(0, size * width, width)])


def long_id(short: bytes, size: int, place: int) -> bytes:
    """The id at a place."""
    if len(short) == size * ID:
        return short[place * ID : place * ID + ID]
    start = ID - _TOKEN_END + _TOKEN
    token = short[start + place * _SHORT : start + place * _SHORT + _SHORT]
    middle = b2a_base64(token, newline=False).translate(_FROM_BASE64)
    return short[:_TOKEN] + middle + short[_TOKEN:start]


def join_keys(keys: dict[int, bytes], count: int) -> bytes:
    """The keys of so many jobs: their sizes, then they."""
    all_keys = [keys.get(place, b"") for place in range(count)]
    sizes = array("H", [len(each) for each in all_keys])
    return sizes.tobytes() + b"".join(all_keys)


def pack_keys(data: bytes) -> bytes:
    """Keys as `join_keys` puts them, in few bytes: most are alike."""
    return compress_bytes(data, 1)


def unpack_keys(packed: bytes) -> bytes:
    """What was packed."""
    return decompress(packed)


def split_keys(data: bytes, count: int) -> list[bytes]:
    """All of them, empty where there is none."""
    at: i64 = 2 * count
    found: list[bytes] = []
    for size in array("H", data[:at]):
        found.append(data[at : at + size])
        at += size
    return found

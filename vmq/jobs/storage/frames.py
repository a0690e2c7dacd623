"""Frames: what one pass of the broker did to jobs, as it lies on disk.

    magic, CRC-32C of the events, CRC-32C of the bodies, length of the events, of the bodies, number of events
    an event each: the job's number on this node * 16 + what happened (`vmq.jobs.record`)
    what the events need besides, in their order: a job's header, when and why it died, who has it
    the bodies, in the order of their jobs

Events and headers are read at a start, bodies when they are delivered. All numbers are little-endian.
"""

from array import array
from struct import Struct
from typing import Any, Final

from crc32c import crc32c
from mypy_extensions import i64

from vmq.jobs.queue import QUEUED, WAITING, Job, JobQueue

MAGIC: Final = 0x4A4F4231  # "JOB1"
#: magic, CRC of events, CRC of bodies, bytes of events, bytes of bodies, events
HEAD: Final[Any] = Struct("<6I")
HEAD_SIZE: Final = 24
#: id, when it was added and when its time ends (ns since 1970), retry, TTL, delay, bytes of the body, deliveries,
#: nacks, repeats; bytes of queue, key and reason; priority, flags
JOB: Final[Any] = Struct("<40sqqiIIIHHHHHHBB")
JOB_SIZE: Final = 86
#: Of a job that is alike to the one before it in its frame: id, when it was added.
ALIKE: Final[Any] = Struct("<40sq")
ALIKE_SIZE: Final = 48
#: When its time ends, now that it died or came back to life (ns since 1970); nacks, repeats, bytes of the reason.
DEATH: Final[Any] = Struct("<qHHH")
DEATH_SIZE: Final = 14
#: On how many hosts a job is to be; how many nodes may have it, whose numbers follow.
SHARE: Final[Any] = Struct("<HH")
SHARE_SIZE: Final = 4
#: Bytes of a line of its history, which follows.
NOTE: Final[Any] = Struct("<H")
NOTE_SIZE: Final = 2

#: Flags of a job's header.
IS_QUEUED: Final = 1
IS_DELAYED: Final = 2
_MOST: Final = 0xFFFF
_ID_HEAD: Final = 11
_SECOND: Final = 1_000_000_000
#: Nanoseconds by which the end of a job's time may differ from what follows from when it was added.
CLOSE: Final = 1_000_000


class AlikeJobs:
    """What the last job has that was written whole: most of those that are added after it have the same."""

    def __init__(self) -> None:
        #: None: the next one is written whole.
        self.queue: JobQueue | None = None
        self.retry: i64 = 0
        self.ttl: i64 = 0
        self.delay: i64 = 0
        self.size: i64 = 0
        self.priority: i64 = 0
        self.flags: i64 = 0
        self.later: i64 = 0
        #: How ids of jobs that other nodes may have begin: those of one node are known by less than 40 bytes.
        self.id_head = b""
        #: Which nodes may have the last one of which that was written right behind it; and on how many hosts it is.
        self.nodes: list[int] | None = None
        self.wanted: i64 = 0

    def begin(self, job: Job, expires: int) -> None:
        """A job is written whole; `expires` in nanoseconds since 1970."""
        self.queue = job.queue if is_new(job) else None
        self.later = later(job.created, job.delay, job.ttl, expires)
        self.id_head = job.id[:_ID_HEAD]
        self.retry = job.retry
        self.ttl = job.ttl
        self.delay = job.delay
        self.size = job.size
        self.priority = job.priority
        self.flags = flags_of(job)

    def has(self, job: Job, expires: int) -> bool:
        """Whether a job is as the last one that was written whole; `expires` in nanoseconds since 1970."""
        return (
            job.queue is self.queue
            and job.size == self.size
            and job.retry == self.retry
            and job.ttl == self.ttl
            and job.delay == self.delay
            and job.priority == self.priority
            and flags_of(job) == self.flags
            and is_new(job)
            and job.id[:_ID_HEAD] == self.id_head
            and is_close(job.created, job.delay, job.ttl, expires, self.later)
        )

    def has_shared(self, job: Job) -> bool:
        """Whether the same nodes may have a job as the last one of which that was written."""
        copies = job.copies
        assert copies is not None
        return copies.wanted == self.wanted and copies.nodes == self.nodes

    def share(self, job: Job) -> None:
        """Which nodes may have a job is written right behind it."""
        copies = job.copies
        assert copies is not None
        self.wanted = copies.wanted
        self.nodes = list(copies.nodes)

    def end(self) -> None:
        """The next job is of another frame."""
        self.queue = None
        self.nodes = None


def ends(created: int, delay: int, ttl: int) -> int:
    """When the time of a job ends that was added then, both in nanoseconds since 1970."""
    return created + (delay + ttl) * _SECOND


def later(created: int, delay: int, ttl: int, expires: int) -> int:
    """Seconds by which the time of a job ends later than that: clocks of two nodes differ."""
    return round((expires - ends(created, delay, ttl)) / _SECOND)


def is_close(created: int, delay: int, ttl: int, expires: int, after: int) -> bool:
    """Whether it ends so many seconds later."""
    return abs(expires - ends(created, delay, ttl) - after * _SECOND) <= CLOSE


def is_new(job: Job) -> bool:
    """Whether nothing happened to a job yet, and it has no key."""
    return not (job.deliveries or job.nacks or job.repeats or job.key or job.reason)


def flags_of(job: Job) -> int:
    """The flags of a job's header. One that waits for its copies, or for its key, is queued after a start: nobody asks
    again then, and that it was queued meanwhile is written nowhere.
    """
    if job.is_delayed:
        return IS_DELAYED
    return IS_QUEUED if job.state == QUEUED or job.state == WAITING else 0


def job_header(job: Job, expires: int) -> bytes:
    """All of a job but its body; `expires` in nanoseconds since 1970."""
    name = job.queue.name
    reason = job.reason.encode()
    head: bytes = JOB.pack(
        job.id,
        job.created,
        expires,
        job.retry,
        job.ttl,
        job.delay,
        job.size,
        min(job.deliveries, _MOST),
        min(job.nacks, _MOST),
        min(job.repeats, _MOST),
        len(name),
        len(job.key),
        len(reason),
        job.priority,
        flags_of(job),
    )
    if job.key or reason:
        return head + name + job.key + reason
    return head + name


def death(job: Job, expires: int) -> bytes:
    """That a job died, and why, or came back to life; `expires` in nanoseconds since 1970."""
    reason = job.reason.encode()
    nacks, repeats = min(job.nacks, _MOST), min(job.repeats, _MOST)
    head: bytes = DEATH.pack(expires, nacks, repeats, len(reason))
    return head + reason


def note(line: str) -> bytes:
    """A line of a job's history."""
    text = line.encode()
    head: bytes = NOTE.pack(len(text))
    return head + text


def share(job: Job) -> bytes:
    """Which nodes may have a job."""
    copies = job.copies
    assert copies is not None
    head: bytes = SHARE.pack(copies.wanted, len(copies.nodes))
    return head + array("Q", copies.nodes).tobytes()


def nodes_of(shared: bytes) -> tuple[int, list[int]]:
    """On how many hosts a job is to be, and which nodes may have it, of what `share` made of it."""
    nodes = array("Q", shared[SHARE_SIZE:])
    return SHARE.unpack_from(shared)[0], nodes.tolist()


def frame(events: list[int], details: list[bytes], bodies: list[bytes]) -> list[bytes]:
    """A frame, in pieces to be written one after the other."""
    told = array("Q", events).tobytes() + b"".join(details)
    body = b"".join(bodies)
    head: bytes = HEAD.pack(MAGIC, crc32c(told), crc32c(body), len(told), len(body), len(events))
    return [head, told, body]

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

from vmq.jobs.queue import QUEUED, Job

MAGIC: Final = 0x4A4F4231  # "JOB1"
#: magic, CRC of events, CRC of bodies, bytes of events, bytes of bodies, events
HEAD: Final[Any] = Struct("<6I")
HEAD_SIZE: Final = 24
#: id, when it was added and when its time ends (ns since 1970), retry, TTL, delay, bytes of the body, deliveries,
#: nacks, repeats; bytes of queue, key and reason; priority, flags
JOB: Final[Any] = Struct("<40sqqiIIIHHHHHHBB")
JOB_SIZE: Final = 86
#: When its time ends, now that it died or came back to life (ns since 1970); nacks, repeats, bytes of the reason.
DEATH: Final[Any] = Struct("<qHHH")
DEATH_SIZE: Final = 14
#: On how many hosts a job is to be; how many nodes may have it, whose numbers follow.
SHARE: Final[Any] = Struct("<HH")
SHARE_SIZE: Final = 4

#: Flags of a job's header.
IS_QUEUED: Final = 1
IS_DELAYED: Final = 2
_MOST: Final = 0xFFFF


def job_header(job: Job, expires: int) -> bytes:
    """All of a job but its body; `expires` in nanoseconds since 1970."""
    name = job.queue.name
    reason = job.reason.encode()
    flags = (IS_QUEUED if job.state == QUEUED else 0) | (IS_DELAYED if job.is_delayed else 0)
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
        flags,
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


def share(job: Job) -> bytes:
    """Which nodes may have a job."""
    copies = job.copies
    assert copies is not None
    head: bytes = SHARE.pack(copies.wanted, len(copies.nodes))
    return head + array("Q", copies.nodes).tobytes()


def frame(events: list[int], details: list[bytes], bodies: list[bytes]) -> list[bytes]:
    """A frame, in pieces to be written one after the other."""
    told = array("Q", events).tobytes() + b"".join(details)
    body = b"".join(bodies)
    head: bytes = HEAD.pack(MAGIC, crc32c(told), crc32c(body), len(told), len(body), len(events))
    return [head, told, body]

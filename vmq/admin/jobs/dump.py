"""Jobs out of a broker and into another one, with all that happened to them; ids are kept."""

import base64
import binascii
import re
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from vmq.admin.errors import AdminError, RefusedError, refused
from vmq.admin.jobs.queues import full_name, opened, split_name

if TYPE_CHECKING:
    from vmq.jobs.queue import Job
    from vmq.jobs.service import JobService
    from vmq.ports import BrokerView

#: What one answer has at most.
MOST_JOBS: Final = 1000
_MOST_BYTES: Final = 4 << 20
#: How a byte that is no UTF-8 is shown.
_SHOWN: Final = re.compile(rb"\\x([89a-f][0-9a-f])")
_LEAST: Final = -(1 << 62)
_MOST: Final = 1 << 62


class DumpedJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job, whole."""

    id: Annotated[str, Meta(min_length=40, max_length=40)]
    queue: Annotated[str, Meta(description="Its name; bytes that are no UTF-8 as \\xNN")]
    mountpoint: str = ""
    body: Annotated[str, Meta(description="In base64")]
    created: Annotated[
        int, Meta(ge=0, le=_MOST, description="Nanoseconds since 1970; no two are the same")
    ]
    expires: Annotated[
        int, Meta(ge=_LEAST, le=_MOST, description="Nanoseconds since 1970: its time to live ends")
    ]
    due: Annotated[
        int, Meta(ge=0, le=_MOST, description="Nanoseconds since 1970; 0 = it is not delayed")
    ] = 0
    ttl: Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
    delay: Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)] = 0
    retry: Annotated[
        int, Meta(ge=-1, le=0xFFFF_FFFF >> 1, description="-1 = as the queue's options say")
    ] = -1
    priority: Annotated[int, Meta(ge=0, le=9)] = 0
    deliveries: Annotated[int, Meta(ge=0, le=65_535)] = 0
    nacks: Annotated[int, Meta(ge=0, le=65_535)] = 0
    repeats: Annotated[int, Meta(ge=0, le=65_535)] = 0
    key: Annotated[str, Meta(max_length=2048, description="In base64")] = ""
    reason: Annotated[str, Meta(max_length=1000, description="Why it is a dead letter")] = ""
    history: Annotated[list[str], Meta(max_length=20)] = []


class JobDump(Struct, frozen=True):
    """Some jobs in the order of adding."""

    jobs: list[DumpedJob]
    after: Annotated[int, Meta(description="Give this and node to get the next ones")]
    node: Annotated[
        str, Meta(description="Another node that has the next ones; both empty = there are no more")
    ] = ""


class JobsLoaded(Struct, frozen=True):
    """What became of jobs."""

    loaded: int
    known: Annotated[int, Meta(description="They are here already")]
    lapsed: Annotated[
        int,
        Meta(description="Their time to live is over, or they are delivered at most once and were"),
    ]


def dump(broker: "BrokerView", after: int) -> JobDump:
    """The jobs that were added later than this, some of them."""
    service = broker.jobs.service
    if service is None:
        return JobDump([], 0)
    from vmq.jobs.queue import ACKED

    found: list[DumpedJob] = []
    size = passed = 0
    created = after
    jobs = service.machine.jobs_after(after, MOST_JOBS)
    for job in jobs:
        if found and size + int(job.size) > _MOST_BYTES:
            break
        created = int(job.created)
        if job.state == ACKED or _is_of_another(service, job):
            passed += 1
            continue
        size += int(job.size)
        found.append(_dumped(service, job))
    has_more = len(found) + passed < len(jobs) or len(jobs) == MOST_JOBS
    return JobDump(found, created if has_more else 0)


def _is_of_another(service: "JobService", job: "Job") -> bool:
    """Whether another node dumps a job: the one that serves it.

    After a restart of all nodes none serves a delayed one until it is due: of those that have it the first in reach
    dumps it, too. Whoever loads it twice has it once.
    """
    copies, nodes = job.copies, service.nodes
    if copies is None or not copies.is_away or nodes is None:
        return False
    peers = nodes.replicas.peers
    me = peers.me.number
    first = next((each for each in copies.nodes if each == me or each in peers.up), me)
    return not job.is_delayed or first != me


def _dumped(service: "JobService", job: "Job") -> DumpedJob:
    machine = service.machine
    try:
        body = service.journal.body(job) if job.body is None else job.body
    except OSError as error:
        raise RefusedError(f"job {job.id.decode()} cannot be read: {error}") from None
    mountpoint, queue = split_name(job.queue.name)
    key = b"" if job.key[:1] == b"\0" else job.key
    return DumpedJob(
        id=job.id.decode("latin-1"),
        queue=queue,
        mountpoint=mountpoint,
        body=base64.b64encode(body).decode(),
        created=int(job.created),
        expires=machine.wall + int(job.expires * 1e9),
        due=machine.wall + int(job.due * 1e9) if job.is_delayed else 0,
        ttl=int(job.ttl),
        delay=int(job.delay),
        retry=int(job.retry),
        priority=int(job.priority),
        deliveries=min(65_535, int(job.deliveries)),
        nacks=min(65_535, int(job.nacks)),
        repeats=min(65_535, int(job.repeats)),
        key=base64.b64encode(key).decode(),
        reason=job.reason,
        history=list(job.history or ()),
    )


async def load(broker: "BrokerView", jobs: list[DumpedJob]) -> JobsLoaded:
    """Takes jobs that another broker, or this one, had; those that are here already stay as they are.

    A job that a worker had is queued, unless it is delivered at most once.

    Raises:
        AdminError: one is wrong; none of them is loaded, then.
        RefusedError: there is no memory, or the disk fails.
    """
    from vmq.jobs.queues import JobRefusedError

    service = opened(broker)
    now = service.core.clock()
    try:
        made = [_job(broker, service, each, now) for each in jobs]
    except JobRefusedError as refusal:
        raise refused(refusal) from None
    loaded = known = lapsed = 0
    for told, job in zip(jobs, made, strict=True):
        has_gone = not job.retry and told.deliveries and not told.due and not job.queue.is_dead
        if job.expires <= now or has_gone:
            lapsed += 1
            continue
        due = (told.due - service.machine.wall) / 1e9 if told.due else 0.0
        try:
            is_new = service.machine.bring(job, due, now)
        except JobRefusedError as refusal:
            raise refused(refusal) from None
        loaded += is_new
        known += not is_new
    try:
        await service.safe()
    except OSError as error:
        raise RefusedError(f"jobs cannot be written to disk: {error}") from None
    return JobsLoaded(loaded, known, lapsed)


def _job(broker: "BrokerView", service: "JobService", told: DumpedJob, now: float) -> "Job":
    from vmq.jobs.ids import is_job_id
    from vmq.jobs.queue import Job

    job_id = told.id.encode("utf-8", "surrogateescape")
    if not is_job_id(job_id):
        raise AdminError(f"id: {told.id!r} is none")
    try:
        body = base64.b64decode(told.body, validate=True)
        key = base64.b64decode(told.key, validate=True)
    except (binascii.Error, ValueError):
        raise AdminError(f"{told.id}: body and key are base64") from None
    raw = _SHOWN.sub(lambda found: bytes.fromhex(found[1].decode()), told.queue.encode())
    name = full_name(broker, raw.decode("utf-8", "surrogateescape"), told.mountpoint)
    machine = service.machine
    job = Job(job_id, service.queue_with_room(name, now), body)
    job.created = told.created
    job.expires = (told.expires - machine.wall) / 1e9
    job.ttl, job.delay, job.retry = told.ttl, told.delay, told.retry
    job.priority = told.priority
    job.deliveries, job.nacks, job.repeats = told.deliveries, told.nacks, told.repeats
    job.key = key
    job.reason = told.reason
    job.history = list(told.history) or None
    return job

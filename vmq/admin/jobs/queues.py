"""The jobs of a running broker, for the operator: looking, adding and taking by hand, pausing, dead letters."""

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from vmq.admin.errors import AdminError, NotFoundError, RefusedError, refused
from vmq.admin.jobs.rows import (
    JobAdded,
    JobQueueDetails,
    JobQueueRow,
    JobRow,
    JobsChanged,
    QueuePaused,
)
from vmq.admin.jobs.schedules import iso_nanoseconds
from vmq.admin.listing import Listing, Selection
from vmq.admin.payloads import show_payload
from vmq.admin.trees import registry_of

if TYPE_CHECKING:
    from vmq.jobs.machine import JobMachine
    from vmq.jobs.options import AddOptions
    from vmq.jobs.queue import Job, JobQueue
    from vmq.jobs.service import JobService
    from vmq.ports import BrokerView

DEAD: Final = b"!dead"
#: Queued jobs that one step of a purge deletes.
_STEP: Final = 1000
_MOST_TAKEN: Final = 1000


def _service(broker: "BrokerView") -> "JobService":
    service = broker.jobs.service
    if service is None:
        raise NotFoundError("there are no jobs: nobody has added or taken any")
    return service


def opened(broker: "BrokerView") -> "JobService":
    """The jobs, made if there were none yet.

    Raises:
        RefusedError: several processes are the broker.
    """
    from vmq.runtime.errors import StartError

    try:
        return broker.jobs.open()
    except StartError as error:
        raise RefusedError(str(error)) from None


def full_name(broker: "BrokerView", queue: str, mountpoint: str) -> bytes:
    """A queue as the machine names it.

    Raises:
        AdminError: it is no name.
        NotFoundError: there is no such mountpoint.
    """
    name = queue.encode("utf-8", "surrogateescape")
    if not 0 < len(name) <= 512 or b"\0" in name:
        raise AdminError("the name of a queue has 1 to 512 bytes, none of them NUL")
    registry_of(broker, mountpoint)
    return mountpoint.encode() + b"\0" + name if mountpoint else name


def split_name(name: bytes) -> tuple[str, str]:
    """Mountpoint and queue."""
    mountpoint, _, queue = name.rpartition(b"\0")
    return mountpoint.decode(), queue.decode("utf-8", "backslashreplace")


def _find_jobs(broker: "BrokerView", queue: str, mountpoint: str) -> "JobQueue | None":
    """A queue; None: it is that of the dead letters of one that has none."""
    queues = _service(broker).machine.queues
    found = queues.get(full_name(broker, queue, mountpoint))
    if found is None:
        living = queue.removesuffix(DEAD.decode())
        if living in ("", queue) or full_name(broker, living, mountpoint) not in queues:
            raise NotFoundError(f"there is no queue of jobs {living or queue!r}")
    return found


def _find_queue(broker: "BrokerView", queue: str, mountpoint: str) -> "JobQueue":
    found = _find_jobs(broker, queue, mountpoint)
    if found is None:
        living = queue.removesuffix(DEAD.decode())
        raise NotFoundError(f"the queue {living!r} has no dead letters")
    return found


def find_job(broker: "BrokerView", job_id: str, *, is_undone: bool = False) -> "Job":
    """A job by its id, or one of which more is left than that it is done.

    Raises:
        NotFoundError: there is none of this id.
    """
    from vmq.jobs.queue import ACKED

    found = _service(broker).machine.find(job_id.encode("utf-8", "surrogateescape"))
    if found is None or (is_undone and found.state == ACKED):
        raise NotFoundError(f"there is no job {job_id!r}: it was done, or never here")
    return found


# Looking


async def list_queues(broker: "BrokerView", selection: Selection) -> Listing[JobQueueRow]:
    """All queues; dead letters count with theirs."""
    service = broker.jobs.service
    rows = iter(()) if service is None else _queue_rows(service, await _counted(service))
    return Listing(JobQueueRow, rows, selection)


def _queue_rows(
    service: "JobService", counted: "dict[JobQueue, int] | None"
) -> Iterator[JobQueueRow]:
    queues = service.machine.queues
    for name in list(queues):
        queue = queues.get(name)
        # Dead letters whose queue is gone have it shown for them.
        if queue is not None and (not queue.is_dead or name.removesuffix(DEAD) not in queues):
            yield JobQueueRow(**_figures(service, name.removesuffix(DEAD), counted))


async def _counted(service: "JobService") -> "dict[JobQueue, int] | None":
    """The jobs of each queue, those that several nodes have at one of them; None: no other node has any."""
    if service.nodes is None or not service.nodes.replicas.peers.members:
        return None
    peers = service.nodes.replicas.peers
    found: dict[JobQueue, int] = {}
    for _ in service.machine.pager.counting(found, peers.me.number, peers.up):
        await asyncio.sleep(0)
    return found


def _figures(
    service: "JobService", name: bytes, counted: "dict[JobQueue, int] | None"
) -> dict[str, Any]:
    from vmq.jobs.queues import workers_at

    machine = service.machine
    mountpoint, shown = split_name(name)
    queue = machine.queues.get(name)
    dead = machine.queues.get(name + DEAD)
    found: dict[str, Any] = {
        "queue": shown,
        "mountpoint": mountpoint,
        "dead": 0 if dead is None else int(dead.depth),
    }
    if queue is None:
        empty = dict.fromkeys(("depth", "jobs", "workers", "came", "went"), 0)
        return {**found, **empty, "paused": "none", "oldest": 0.0}
    return {
        **found,
        "depth": int(queue.depth),
        "jobs": int(queue.jobs - queue.done) if counted is None else counted.get(queue, 0),
        "workers": workers_at(queue),
        "paused": _paused(queue),
        "oldest": round(_age(machine, queue.first(), service.core.clock()), 3),
        "came": int(queue.came),
        "went": int(queue.went),
    }


def _paused(queue: "JobQueue") -> str:
    if queue.paused_in:
        return "all" if queue.paused_out else "in"
    return "out" if queue.paused_out else "none"


def _age(machine: "JobMachine", job: "Job | None", now: float) -> float:
    return 0.0 if job is None else max(0.0, now - int(job.created - machine.wall) / 1e9)


async def show_queue(broker: "BrokerView", name: str, mountpoint: str) -> JobQueueDetails:
    """One queue with its options.

    Raises:
        NotFoundError: there is none of this name.
    """
    service = _service(broker)
    queue = _find_queue(broker, name, mountpoint)
    rules = queue.rules
    return JobQueueDetails(
        **_figures(service, queue.name, await _counted(service)),
        retry=list(rules.retry),
        ttl=rules.ttl,
        priority=rules.priority,
        maxlen=rules.maxlen,
        max_deliveries=rules.max_deliveries,
        dead_ttl=rules.dead_ttl,
        dead_maxlen=rules.dead_maxlen,
        key_window=rules.key_window,
        max_run=rules.max_run,
        refuse_after=rules.refuse_after,
        persistence=("off", "os", "fsync")[rules.persistence],
        replicate=rules.replicate,
        when_split="reach" if rules.may_have_fewer else "wait",
        groups=[each.decode() for each in rules.groups],
    )


def peek(
    broker: "BrokerView",
    queue: str,
    mountpoint: str,
    selection: Selection,
    payload_bytes: int,
    everything: bool,
) -> Listing[JobRow]:
    """The jobs that are queued, as they would go, or all jobs of a queue; consumes nothing.

    Raises:
        NotFoundError: there is no such queue.
    """
    service = _service(broker)
    found = _find_jobs(broker, queue, mountpoint)
    if found is None:
        return Listing(JobRow, iter(()), selection)
    rows = _all_rows(service, found, payload_bytes)
    if not everything:
        most = int(found.depth)
        if selection.limit and not selection.where and not selection.sort:
            most = selection.offset + selection.limit + 1
        rows = (row_of(service, job, payload_bytes) for job in found.oldest(most))
    return Listing(JobRow, rows, selection)


def _all_rows(
    service: "JobService", queue: "JobQueue", payload_bytes: int
) -> Iterator[JobRow | None]:
    created = 0
    while jobs := service.machine.jobs_after(created, _STEP):
        created = int(jobs[-1].created)
        for job in jobs:
            yield row_of(service, job, payload_bytes) if job.queue is queue else None


def row_of(service: "JobService", job: "Job", payload_bytes: int) -> JobRow:
    """A job, for people."""
    from vmq.jobs.mqtt.delayed import content_of
    from vmq.jobs.queue import ACKED, QUEUED

    machine, now = service.machine, service.core.clock()
    mountpoint, queue = split_name(job.queue.name)
    topic, body = content_of(queue, _body(service, job))
    shown = show_payload(body, payload_bytes)
    state = "queued" if job.state == QUEUED else "delayed" if job.is_delayed else "active"
    if job.copies is not None and job.state != QUEUED:
        is_away = job.copies.is_away and not job.is_delayed  # nobody asks before it is due
        state = "done" if job.state == ACKED else "elsewhere" if is_away else state
    is_queued = job.state == QUEUED
    return JobRow(
        id=job.id.decode("latin-1"),
        queue=queue,
        mountpoint=mountpoint,
        state="dead" if job.queue.is_dead and is_queued else state,
        priority=int(job.priority),
        age=round(_age(machine, job, now), 3),
        created=iso_nanoseconds(int(job.created)),
        next=None if is_queued else round(max(0.0, job.due - now), 3),
        ttl=round(max(0.0, job.expires - now), 3),
        retry=machine.retry_of(job),
        deliveries=int(job.deliveries),
        nacks=int(job.nacks),
        repeats=int(job.repeats),
        key="" if job.key[:1] == b"\0" else job.key.decode("utf-8", "backslashreplace"),
        reason=job.reason,
        history=list(job.history or ()),
        size=int(job.size),
        topic=topic,
        body=shown.text,
        encoding=shown.encoding,
        truncated=shown.truncated,
    )


def _body(service: "JobService", job: "Job") -> bytes:
    try:
        return service.journal.body(job) if job.body is None else job.body
    except OSError as error:
        raise RefusedError(f"job {job.id.decode()} cannot be read: {error}") from None


# Changing


async def add(
    broker: "BrokerView", queue: str, mountpoint: str, body: bytes, options: "AddOptions"
) -> JobAdded:
    """Adds a job; returns when it is as safe as the queue's rules say.

    Raises:
        AdminError: it is wrong, or refused.
    """
    from vmq.jobs.options import check_queue
    from vmq.jobs.queues import JobRefusedError
    from vmq.jobs.stock import NO_HOSTS

    name = full_name(broker, queue, mountpoint)
    service = opened(broker)
    now = service.core.clock()
    if len(body) > service.config.limits.max_job_size:
        raise AdminError(f"{len(body)} bytes are above limits.max_job_size")
    try:
        check_queue(name.rpartition(b"\0")[2])
        options.check()
        job = service.machine.add(
            service.queue_with_room(name, now),
            body,
            now,
            options.ttl,
            options.retry,
            options.delay,
            options.priority,
            options.maxlen,
            options.key,
            options.replicate,
        )
    except JobRefusedError as refusal:
        raise refused(refusal) from None
    try:
        is_there = await service.safe_with_copies()
    except OSError as error:
        raise RefusedError(f"jobs cannot be written to disk: {error}") from None
    if not is_there:
        raise RefusedError(NO_HOSTS)
    return JobAdded((job.twin or job.id).decode())


async def take(
    broker: "BrokerView", queue: str, mountpoint: str, count: int, ack: bool
) -> list[JobRow]:
    """Takes jobs as a worker does: they are given again after their RETRY, unless they are acknowledged.

    Raises:
        NotFoundError: there is no such queue.
        RefusedError: its jobs go to its groups.
    """
    from vmq.jobs.queues import JobRefusedError

    service = _service(broker)
    found = _find_queue(broker, queue, mountpoint)
    now = service.core.clock()
    try:
        service.machine.check_taken(found.name)
    except JobRefusedError as refusal:
        raise refused(refusal) from None
    rows: list[JobRow] = []
    for _ in range(min(count, _MOST_TAKEN)):
        job = service.machine.take(found, now)
        if job is None:
            break
        try:
            rows.append(row_of(service, job, 0))
        except RefusedError:
            if not rows:
                raise
            break  # those before it are told; it is given again after its RETRY
        if ack:
            service.machine.acknowledge(job.id)
    await _safe(service)
    return rows


async def pause(broker: "BrokerView", queue: str, mountpoint: str, what: str) -> QueuePaused:
    """Has a queue take no jobs ("in"), give none ("out"), neither ("all"), or both again ("none").

    Raises:
        NotFoundError: there is no such mountpoint.
    """
    service = opened(broker)
    now = service.core.clock()
    found = service.machine.queue(full_name(broker, queue, mountpoint), now)
    service.machine.pause(found, what in {"in", "all"}, what in {"out", "all"}, now, True)
    await _safe(service)
    return QueuePaused(queue, _paused(found))


async def retry(broker: "BrokerView", queue: str, job_id: str, mountpoint: str) -> JobsChanged:
    """Sends a dead letter back to its queue, or all of a queue; a delayed job, or one that a worker has, goes at once.

    Raises:
        AdminError: neither queue nor id is given, or both are.
        NotFoundError: there is no such job or queue.
        RefusedError: the queue of dead letters is no more, and cannot be made.
    """
    if bool(queue) == bool(job_id):
        raise AdminError("one of queue and id is needed")
    from vmq.jobs.queues import JobRefusedError

    service = _service(broker)
    now = service.core.clock()
    done = 0
    try:
        if job_id:
            done = int(service.machine.enqueue(find_job(broker, job_id, is_undone=True), now))
        else:
            dead = _find_jobs(broker, queue.removesuffix("!dead") + "!dead", mountpoint)
            while dead is not None and (jobs := dead.oldest(_STEP)):
                done += sum(service.machine.enqueue(job, now) for job in jobs)
                await _safe(service)
    except JobRefusedError as refusal:
        raise refused(refusal) from None
    await _safe(service)
    return JobsChanged(done)


async def delete(broker: "BrokerView", job_id: str) -> JobsChanged:
    """Deletes one job, wherever it is.

    Raises:
        NotFoundError: there is no such job.
    """
    service = _service(broker)
    service.machine.delete(find_job(broker, job_id, is_undone=True))
    await _safe(service)
    return JobsChanged(1)


async def purge(broker: "BrokerView", queue: str, mountpoint: str) -> JobsChanged:
    """Deletes what is queued; delayed jobs, and those that workers have, stay.

    Raises:
        NotFoundError: there is no such queue.
    """
    service = _service(broker)
    found = _find_queue(broker, queue, mountpoint)
    left = done = int(found.depth)
    while left > 0 and (jobs := found.oldest(min(left, _STEP))):
        for job in jobs:
            service.machine.delete(job)
        left -= len(jobs)
        await _safe(service)
    return JobsChanged(done - left)


async def _safe(service: "JobService") -> None:
    try:
        await service.safe()
    except OSError as error:
        raise RefusedError(f"jobs cannot be written to disk: {error}") from None

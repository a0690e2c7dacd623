"""Where a job is, and what has to happen before a worker gets it, or why none does any more."""

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from vmq.admin.jobs.queues import find_job, opened, row_of, split_name
from vmq.admin.jobs.rows import JobRow
from vmq.admin.steps import NOTE, OK, STOP, Step, remedy_of

if TYPE_CHECKING:
    from vmq.jobs.queue import Job
    from vmq.jobs.service import JobService
    from vmq.ports import BrokerView


class JobExplained(Struct, frozen=True, kw_only=True):
    """A job, and why it is where it is."""

    id: str
    queue: str
    mountpoint: str
    given: Annotated[bool, Meta(description="Whether a worker has it, or will as soon as one asks")]
    verdict: str
    remedy: Annotated[str, Meta(description="What would change it, if that is known")]
    steps: list[Step]


def explain(broker: "BrokerView", job_id: str) -> JobExplained:
    """Explains one job.

    Raises:
        NotFoundError: there is none of this id.
    """
    job = find_job(broker, job_id)
    service = opened(broker)
    row = row_of(service, job, 1)
    steps = list(_steps(service, job, row))
    last = steps[-1]
    mountpoint, queue = split_name(job.queue.name)
    return JobExplained(
        id=row.id,
        queue=queue,
        mountpoint=mountpoint,
        given=last.verdict == OK,
        verdict=last.reason,
        remedy=remedy_of(steps),
        steps=steps,
    )


def _steps(service: "JobService", job: "Job", row: JobRow) -> Iterator[Step]:
    yield Step("added", OK, f"{row.age:.0f} s ago, with {row.ttl:.0f} s left to live")
    if row.key:
        yield Step("key", NOTE, f"no second job with the key {row.key!r} is added in its window")
    for each in row.history:
        when, _, what = each.partition(" ")
        yield Step("failure", NOTE, f"{what}, {when}")
    queue = job.queue
    if row.state == "dead":
        remedy = f"vmq jobs retry {row.id}"
        yield Step("dead", STOP, f"it is a dead letter: {row.reason}", remedy=remedy)
    elif row.state == "delayed":
        yield Step(
            "delayed", STOP, f"it is due in {row.next:.0f} s", remedy=f"vmq jobs retry {row.id}"
        )
    elif row.state == "elsewhere":
        look = (
            ""
            if row.next is None
            else f"; unless it says so again this one asks in {row.next:.0f} s"
        )
        yield Step("elsewhere", OK, f"another node serves it{look}")
    elif row.state == "done":
        yield Step("done", STOP, "it is done; it goes once all nodes that had it know")
    elif row.state == "active":
        yield _resting(job, row) if job.is_aside else _held(service, job, row)
    elif queue.paused_out:
        yield Step("paused", STOP, "its queue gives no jobs: it is paused", remedy=_resume(row))
    else:
        before = queue.oldest(1000).index(job) if queue.depth <= 1000 else -1
        place = "among many" if before < 0 else f"behind {before} others"
        waits = 0 if queue.waiters is None else len(queue.waiters)
        yield Step("queued", OK, f"it is queued, {place}; {waits} workers wait for jobs")


def _resting(job: "Job", row: JobRow) -> Step:
    """No worker has it: it was set aside, given up or lost, or came back while its queue takes nothing in."""
    text = "no worker has it: it was set aside"
    if job.queue.paused_in:
        text += ", and its queue takes no jobs: it is paused"
        return Step("aside", STOP, text, remedy=_resume(row))
    then = "its time to live ends" if job.due >= job.expires else "it is queued"
    text += f", and {then} in {row.next:.0f} s"
    return Step("aside", STOP, text, remedy=f"vmq jobs retry {row.id}")


def _resume(row: JobRow) -> str:
    words = ["vmq", "jobs", "resume", row.queue]
    return shlex.join(words + (["--mountpoint", row.mountpoint] if row.mountpoint else []))


def _held(service: "JobService", job: "Job", row: JobRow) -> Step:
    """Who has it, or is thought to."""
    holder = service.machine.holders.get(job.id)
    client = getattr(getattr(holder, "client", None), "client_id", "")
    who = f"the MQTT client {client}" if client else "a worker"
    count = f"given out {row.deliveries} times" if row.deliveries != 1 else "given out once"
    if not row.retry:
        return Step("active", OK, f"{who} has it, and nobody else ever will (RETRY 0); {count}")
    limit = job.queue.rules.max_deliveries
    end = f", {limit} at most" if limit else ""
    text = f"{who} has it; it is given again in {row.next:.0f} s unless it is acknowledged"
    return Step("active", OK, f"{text} ({count}{end})")

"""The jobs of all nodes of a cluster as one: each is asked for what it has, and what they say is put together.

What only nodes have that cannot be reached is not shown. Who asks hears which of those that can be did not answer.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct

from vmq.admin.errors import AdminError, NotFoundError, UnavailableError
from vmq.admin.jobs import dump as dumping
from vmq.admin.jobs import queues, why
from vmq.admin.jobs.dump import JobDump
from vmq.admin.jobs.rows import JobQueueDetails, JobQueueRow, JobRow, JobsChanged, QueuePaused
from vmq.admin.jobs.why import JobExplained
from vmq.admin.listing import Listing, Selection
from vmq.admin.steps import NOTE, Step

if TYPE_CHECKING:
    from vmq.ports import BrokerView

log = logging.getLogger("vmq.jobs")

Answered = TypeVar("Answered", bound=Struct)
Figures = TypeVar("Figures", JobQueueRow, JobQueueDetails)

#: Rows that another node tells at most.
MOST_ROWS: Final = 10_000
#: Of one job, the node that serves it knows most; then who knows that it is done; then that it is delayed.
_RANKS: Final = {"queued": 0, "dead": 0, "active": 0, "done": 1, "delayed": 2, "elsewhere": 3}
_SUMS: Final = ("depth", "jobs", "dead", "workers", "came", "went")


class JobRows(Struct, frozen=True):
    """A listing of jobs of another node."""

    rows: list[JobRow]


class JobQueueRows(Struct, frozen=True):
    """A listing of queues of another node."""

    rows: list[JobQueueRow]


class NamedQueue(Struct, frozen=True):
    """A queue on all nodes."""

    queue: str
    mountpoint: str
    local: bool = False


# Asking


def others(broker: "BrokerView", local: bool) -> list[str]:
    """The other nodes that are to be asked."""
    clustering = broker.clustering
    if local or clustering is None or not clustering.is_running:
        return []
    return sorted(clustering.job_links.up())


async def _answers(
    broker: "BrokerView",
    nodes: Iterable[str],
    operation: str,
    told: dict[str, Any],
    kind: type[Answered],
) -> tuple[dict[str, Answered], dict[str, AdminError]]:
    """What nodes answer of which each has something, and why others did not."""
    clustering = broker.clustering
    assert clustering is not None
    parameters = msgspec.json.encode(told | {"local": True})
    questions = clustering.job_links.questions
    names = list(nodes)
    answers = await asyncio.gather(*(questions.ask(name, operation, parameters) for name in names))
    found: dict[str, Answered] = {}
    failed: dict[str, AdminError] = {}
    for name, answer in zip(names, answers, strict=True):
        if answer is None:
            failed[name] = UnavailableError(f"node {name} does not answer")
        elif answer.status == 200:
            try:
                found[name] = msgspec.json.decode(answer.body, type=kind)
            except msgspec.ValidationError as error:
                failed[name] = UnavailableError(f"node {name} answers as another version: {error}")
        elif answer.status != NotFoundError.status:
            failed[name] = AdminError(f"node {name}: {answer.body.decode('utf-8', 'replace')}")
            failed[name].status = answer.status
    return found, failed


async def _ask(
    broker: "BrokerView",
    nodes: Iterable[str],
    operation: str,
    told: dict[str, Any],
    kind: type[Answered],
    missing: list[str],
) -> dict[str, Answered]:
    """What nodes answer of which each has something; the names of those that fail join the `missing`."""
    found, failed = await _answers(broker, nodes, operation, told, kind)
    for error in failed.values():
        log.warning("%s: %s", operation, error)
    missing += failed
    return found


async def _change(
    broker: "BrokerView",
    nodes: Iterable[str],
    operation: str,
    told: dict[str, Any],
    kind: type[Answered],
) -> dict[str, Answered]:
    """What nodes answer that are told to change something.

    Raises:
        AdminError: one refuses, or does not answer.
    """
    found, failed = await _answers(broker, nodes, operation, told, kind)
    for error in failed.values():
        raise error
    return found


def _told(wanted: Struct) -> dict[str, Any]:
    """The parameters of an operation, for another node."""
    told: dict[str, Any] = msgspec.to_builtins(wanted)
    return told


# Queues


async def list_queues(
    broker: "BrokerView", selection: Selection, local: bool
) -> Listing[JobQueueRow]:
    """All queues, each with the sums of all nodes."""
    nodes = others(broker, local)
    if not nodes:
        return await queues.list_queues(broker, selection)
    own = await (await queues.list_queues(broker, Selection(limit=0))).rows()
    most = {"sort": "-depth", "limit": MOST_ROWS}
    missing: list[str] = []
    answers = await _ask(broker, nodes, "list_job_queues", most, JobQueueRows, missing)
    missing += _cut(answers)
    found: dict[tuple[str, str], JobQueueRow] = {}
    for row in [*own, *(row for each in answers.values() for row in each.rows)]:
        name = row.mountpoint, row.queue
        found[name] = _added(found[name], row) if name in found else row
    return Listing(JobQueueRow, found.values(), selection, missing=missing)


def _cut(answers: dict[str, JobQueueRows] | dict[str, JobRows]) -> list[str]:
    """The nodes that may have more rows than they told."""
    return [
        f"{name} (beyond {MOST_ROWS:,} rows)"
        for name, each in answers.items()
        if len(each.rows) == MOST_ROWS
    ]


def _added(one: Figures, other: Figures) -> Figures:
    sums = {name: getattr(one, name) + getattr(other, name) for name in _SUMS}
    paused = {one.paused, other.paused} - {"none"}
    word = "none" if not paused else paused.pop() if len(paused) == 1 else "all"
    return msgspec.structs.replace(one, **sums, paused=word, oldest=max(one.oldest, other.oldest))


async def show_queue(broker: "BrokerView", wanted: Any) -> JobQueueDetails:
    """One queue with its options, and the sums of all nodes.

    Raises:
        NotFoundError: no node has one of this name.
    """
    found: list[JobQueueDetails] = []
    absent: NotFoundError | None = None
    try:
        found.append(await queues.show_queue(broker, wanted.queue, wanted.mountpoint))
    except NotFoundError as error:
        absent = error
    nodes = others(broker, wanted.local)
    missing: list[str] = []
    if nodes:
        told = _told(wanted)
        answers = await _ask(broker, nodes, "show_job_queue", told, JobQueueDetails, missing)
        found.extend(answers.values())
    if not found:
        raise _absent(absent, missing)
    total = found[0]
    for each in found[1:]:
        total = _added(total, each)
    return msgspec.structs.replace(total, missing=missing)


def _absent(absent: NotFoundError | None, missing: list[str]) -> AdminError:
    """That no node has something, or none of those that answer."""
    assert absent is not None
    if not missing:
        return absent
    return UnavailableError(f"{absent}; and these nodes do not say: {', '.join(missing)}")


async def peek(broker: "BrokerView", wanted: Any) -> Listing[JobRow]:
    """The jobs of a queue on all nodes, each once, as they would go if they were all on one.

    Raises:
        NotFoundError: no node has such a queue.
    """
    arguments = wanted.queue, wanted.mountpoint
    rest = wanted.payload_bytes, wanted.everything
    nodes = others(broker, wanted.local)
    if not nodes:
        return queues.peek(broker, *arguments, wanted, *rest)
    most = wanted.offset + wanted.limit + 1 if wanted.limit else MOST_ROWS
    changes: dict[str, Any] = {"offset": 0, "limit": most}
    if wanted.everything:  # a copy may look otherwise than the job does where it is served
        changes |= {"where": "", "sort": "", "limit": MOST_ROWS}
    missing: list[str] = []
    told = _told(wanted) | changes
    answers = await _ask(broker, nodes, "peek_jobs", told, JobRows, missing)
    try:
        own = queues.peek(broker, *arguments, Selection(limit=changes["limit"]), *rest)
        answers[broker.config.cluster.node_name] = JobRows(await own.rows())
    except NotFoundError as absent:
        if not answers:
            raise _absent(absent, missing) from None
    if wanted.where or wanted.sort or not 0 < wanted.limit < MOST_ROWS - wanted.offset:
        missing += _cut(answers)
    best: dict[str, JobRow] = {}
    for row in (row for each in answers.values() for row in each.rows):
        known = best.get(row.id)
        if known is None or _RANKS[row.state] < _RANKS[known.state]:
            best[row.id] = row
    found = list(best.values())
    found.sort(key=lambda row: (0 if wanted.everything else -row.priority, row.created))
    return Listing(JobRow, found, wanted, missing=missing)


async def purge(broker: "BrokerView", wanted: Any) -> JobsChanged:
    """Deletes what is queued on all nodes.

    Raises:
        NotFoundError: no node has such a queue.
    """
    done, absent = 0, None
    try:
        done += (await queues.purge(broker, wanted.queue, wanted.mountpoint)).jobs
    except NotFoundError as error:
        absent = error
    return await _changed(broker, "purge_job_queue", wanted, done, absent)


async def _changed(
    broker: "BrokerView", operation: str, wanted: Any, done: int, absent: NotFoundError | None
) -> JobsChanged:
    """What was done here, and what the others do.

    Raises:
        NotFoundError: no node has what it is about.
    """
    nodes = others(broker, wanted.local)
    if nodes:
        try:
            answers = await _change(broker, nodes, operation, _told(wanted), JobsChanged)
        except AdminError as error:
            error.args = (f"{error}; the others did as they were told",)
            raise
        done += sum(each.jobs for each in answers.values())
        absent = None if answers else absent
    if absent is not None:
        raise absent
    return JobsChanged(done)


async def take(broker: "BrokerView", wanted: Any) -> Listing[JobRow]:
    """Takes jobs here, then what is left to take on others, where they are served.

    Raises:
        NotFoundError: no node has such a queue.
        UnavailableError: nor has one that answers.
    """
    rows: list[JobRow] = []
    absent: NotFoundError | None = None
    try:
        rows = await queues.take(broker, wanted.queue, wanted.mountpoint, wanted.count, wanted.ack)
    except NotFoundError as error:
        absent = error
    missing: list[str] = []
    for node in others(broker, wanted.local):
        left = wanted.count - len(rows)
        if left > 0:  # what was taken is told, whoever fails then: it may be acknowledged
            told = _told(wanted) | {"count": left}
            answers = await _ask(broker, [node], "take_jobs", told, JobRows, missing)
            rows += [row for each in answers.values() for row in each.rows]
            absent = None if answers else absent
    if absent is not None:
        raise _absent(absent, missing)
    return Listing(JobRow, rows, missing=missing)


async def pause(broker: "BrokerView", queue: str, mountpoint: str, what: str) -> QueuePaused:
    """Pauses a queue, or ends that, on this node and on all that can be reached.

    Raises:
        NotFoundError: there is no such mountpoint; or, to end that, no node has such a queue.
    """
    if what == "none":
        await show_queue(broker, NamedQueue(queue, mountpoint))
    paused = await queues.pause(broker, queue, mountpoint, what)
    service = queues.opened(broker)
    found = service.machine.queues.get(queues.full_name(broker, queue, mountpoint))
    if found is not None:
        service.machine.sharing.paused(found)
        service.commit.end_soon()
    return paused


# Jobs


async def _find(broker: "BrokerView", wanted: Any) -> tuple[str, JobRow]:
    """A job as the node has it that knows most of it, and that node; "" is this one.

    Raises:
        NotFoundError: no node has it.
    """
    return (await _find_all(broker, wanted, until_served=True))[0]


async def _find_all(
    broker: "BrokerView", wanted: Any, *, until_served: bool
) -> list[tuple[str, JobRow]]:
    """A job as each node has it, and those, who knows most first; `until_served`: others only if this one does not.

    Raises:
        NotFoundError: no node has it.
    """
    found: list[tuple[int, str, JobRow]] = []
    absent: NotFoundError | None = None
    payload_bytes = getattr(wanted, "payload_bytes", 1)
    try:
        job = queues.find_job(broker, wanted.id)
        row = queues.row_of(queues.opened(broker), job, payload_bytes)
        found.append((_RANKS[row.state], "", row))
    except NotFoundError as error:
        absent = error
    nodes = others(broker, wanted.local)
    missing: list[str] = []
    if nodes and not (until_served and found and found[0][0] == 0):
        about = {"id": wanted.id, "payload_bytes": payload_bytes}
        answers = await _ask(broker, nodes, "show_job", about, JobRow, missing)
        found += [(_RANKS[row.state], name, row) for name, row in answers.items()]
    if not found:
        raise _absent(absent, missing)
    return [(node, row) for _, node, row in sorted(found, key=lambda each: each[:2])]


async def show_job(broker: "BrokerView", wanted: Any) -> JobRow:
    """One job, as the node has it that serves it, with the failures that each node saw.

    Raises:
        NotFoundError: no node has it.
    """
    rows = [row for _, row in await _find_all(broker, wanted, until_served=False)]
    seen: Counter[str] = Counter()
    for row in rows:
        seen |= Counter(row.history)
    history = sorted(seen.elements(), key=lambda line: line.split(" ", 1)[0])
    return msgspec.structs.replace(rows[0], history=history)


async def explain(broker: "BrokerView", wanted: Any) -> JobExplained:
    """Explains one job, as the node does that serves it.

    Raises:
        NotFoundError: no node has it.
    """
    node, _ = await _find(broker, wanted)
    if node:
        answers = await _ask(broker, [node], "why_job", _told(wanted), JobExplained, [])
        if node in answers:
            first = Step("node", NOTE, f"node {node} serves it")
            told = answers[node]
            return msgspec.structs.replace(told, steps=[first, *told.steps])
    return why.explain(broker, wanted.id)


async def delete(broker: "BrokerView", wanted: Any) -> JobsChanged:
    """Deletes one job, wherever it is: all nodes that have it hear of that.

    Raises:
        NotFoundError: no node has it.
    """
    node, _ = await _find(broker, wanted)
    if not node:
        return await queues.delete(broker, wanted.id)
    answers = await _change(broker, [node], "delete_job", _told(wanted), JobsChanged)
    return JobsChanged(sum(each.jobs for each in answers.values()))


async def retry(broker: "BrokerView", wanted: Any) -> JobsChanged:
    """Queues a job where it is served, or the dead letters of a queue on all nodes.

    Raises:
        AdminError: neither queue nor id is given, or both are.
        NotFoundError: no node has such a job or queue.
    """
    arguments = wanted.queue, wanted.id, wanted.mountpoint
    if wanted.id and not wanted.queue:
        node, _ = await _find(broker, wanted)
        if not node:
            return await queues.retry(broker, *arguments)
        answers = await _change(broker, [node], "retry_jobs", _told(wanted), JobsChanged)
        return JobsChanged(sum(each.jobs for each in answers.values()))
    done, absent = 0, None
    try:
        done += (await queues.retry(broker, *arguments)).jobs
    except NotFoundError as error:
        absent = error
    return await _changed(broker, "retry_jobs", wanted, done, absent)


async def dump(broker: "BrokerView", wanted: Any) -> JobDump:
    """Some jobs that one node serves; when it has told all, the next node is named.

    Raises:
        NotFoundError: the node that is asked for cannot be reached.
    """
    nodes = ["", *others(broker, wanted.local)]
    if wanted.node not in nodes:
        raise NotFoundError(f"node {wanted.node!r} cannot be reached")
    if not wanted.node:
        found = dumping.dump(broker, wanted.after)
    else:
        told = _told(wanted) | {"node": ""}
        answers = await _change(broker, [wanted.node], "dump_jobs", told, JobDump)
        found = answers.get(wanted.node, JobDump([], 0))
    if found.after:
        return msgspec.structs.replace(found, node=wanted.node)
    rest = nodes[nodes.index(wanted.node) + 1 :]
    return msgspec.structs.replace(found, node=rest[0] if rest else "")

"""The operations of the API on jobs and mappings; see `vmq.http.operations`."""

import base64
import binascii
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from vmq.admin.errors import AdminError
from vmq.admin.jobs import dump, everywhere, mappings, queues, rows, schedules, why
from vmq.admin.listing import LARGEST, Listing, Selection
from vmq.admin.payloads import PayloadBytes
from vmq.admin.trees import Mountpoint
from vmq.http.operation import Context, List, Operation

QueueName = Annotated[str, Meta(min_length=1, max_length=512, description="The queue of jobs")]
JobId = Annotated[str, Meta(min_length=1, description="The job")]
_Seconds = Annotated[int, Meta(ge=0, le=0x7FFF_FFFF)]
#: The largest MAXLEN, over RESP and MQTT alike.
LONGEST: Final = 0xFFFF_FFFF


Local = Annotated[
    bool, Meta(description="Only what the asked node has, not the rest of its cluster")
]


class ListQueues(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queues of jobs."""

    local: Local = False


class OneQueue(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which queue of jobs."""

    queue: QueueName
    mountpoint: Mountpoint = ""


class QueueOf(OneQueue, forbid_unknown_fields=True, kw_only=True):
    """Which queue of jobs, and where."""

    local: Local = False


class PeekJobs(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queue of jobs to look into, and how far."""

    queue: QueueName
    mountpoint: Mountpoint = ""
    everything: Annotated[
        bool, Meta(description="All of its jobs, also delayed ones and those that workers have")
    ] = False
    payload_bytes: PayloadBytes = 64
    local: Local = False


class OneJob(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which job."""

    id: JobId
    local: Local = False


class ShowJob(OneJob, forbid_unknown_fields=True, kw_only=True):
    """Which job to show."""

    payload_bytes: PayloadBytes = 0


class AddJob(OneQueue, forbid_unknown_fields=True, kw_only=True):
    """The job to add."""

    body: Annotated[str, Meta(description="What is to be done")]
    encoding: Annotated[Literal["text", "base64"], Meta(description="How body is written")] = "text"
    delay: Annotated[_Seconds, Meta(description="Seconds until it is due")] = 0
    retry: (
        Annotated[int, Meta(ge=0, le=0x7FFF_FFFF, description="Seconds until it is given again")]
        | None
    ) = None
    ttl: Annotated[int, Meta(ge=1, le=0x7FFF_FFFF, description="Seconds that it lives")] | None = (
        None
    )
    priority: Annotated[int, Meta(ge=0, le=9, description="9 goes first")] | None = None
    maxlen: (
        Annotated[int, Meta(ge=1, le=LONGEST, description="Refused if so many are queued")] | None
    ) = None
    replicate: (
        Annotated[int, Meta(ge=1, le=65_535, description="Hosts that have it before the answer")]
        | None
    ) = None
    key: Annotated[
        str, Meta(max_length=512, description="Keeps a second job with it out for a while")
    ] = ""


class TakeJobs(QueueOf, forbid_unknown_fields=True, kw_only=True):
    """What to take."""

    count: Annotated[int, Meta(ge=1, le=1000)] = 1
    ack: Annotated[bool, Meta(description="Acknowledge them at once")] = False


class PauseQueue(OneQueue, forbid_unknown_fields=True, kw_only=True):
    """What to pause."""

    what: Annotated[
        Literal["in", "out", "all"], Meta(description="Adding, giving to workers, or both")
    ] = "all"


class RetryJobs(Struct, forbid_unknown_fields=True, kw_only=True):
    """One job, or all dead letters of a queue."""

    queue: Annotated[str, Meta(max_length=512)] = ""
    id: str = ""
    mountpoint: Mountpoint = ""
    local: Local = False


class DumpJobs(Struct, forbid_unknown_fields=True, kw_only=True):
    """Where to begin."""

    after: Annotated[
        int,
        Meta(ge=0, le=LARGEST, description="As the answer before says; 0 = at the first job"),
    ] = 0
    node: Annotated[
        str, Meta(max_length=512, description="As the answer before says; empty = the asked node")
    ] = ""
    local: Local = False


class LoadJobs(Struct, forbid_unknown_fields=True, kw_only=True):
    """Jobs as a dump has them."""

    jobs: Annotated[list[dump.DumpedJob], Meta(max_length=dump.MOST_JOBS)]


def _add(context: Context, wanted: AddJob) -> Any:
    from vmq.jobs.options import AddOptions

    options = AddOptions(wanted.queue.encode())
    options.delay = wanted.delay
    options.key = wanted.key.encode()
    for name in ("retry", "ttl", "priority", "maxlen", "replicate"):
        value = getattr(wanted, name)
        if value is not None:
            setattr(options, name, value)
    try:
        body = wanted.body.encode()
        if wanted.encoding == "base64":
            body = base64.b64decode(wanted.body, validate=True)
    except (binascii.Error, ValueError):
        raise AdminError("body: it is not in the encoding that is named") from None
    if wanted.key.startswith("\0"):
        raise AdminError("key: it may not begin with NUL")
    return queues.add(context.broker, wanted.queue, wanted.mountpoint, body, options)


MappingName = Annotated[str, Meta(min_length=1, max_length=100, description="The mapping")]


class OneMapping(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which mapping."""

    name: MappingName


class TryMapping(OneMapping, forbid_unknown_fields=True, kw_only=True):
    """Which mapping is tried with which message."""

    topic: Annotated[
        str,
        Meta(
            max_length=65_535, description="Of the message; empty: where the mapping has one topic"
        ),
    ] = ""
    payload: Annotated[str, Meta(description="The payload: text, or base64")] = ""
    is_base64: Annotated[bool, Meta(description="It is base64")] = False
    qos: Annotated[int, Meta(ge=0, le=2)] = 1
    client_id: Annotated[str, Meta(max_length=1024, description="The publisher")] = ""


def _payload_of(wanted: TryMapping) -> bytes:
    from base64 import b64decode
    from binascii import Error

    from vmq.admin.errors import AdminError

    if not wanted.is_base64:
        return wanted.payload.encode()
    try:
        return b64decode(wanted.payload, validate=True)
    except Error as error:
        raise AdminError(f"payload is no base64: {error}") from None


JOB_OPERATIONS: Final = (
    Operation(
        "list_job_queues",
        "GET",
        "/jobs/queues",
        "List the queues of jobs",
        ListQueues,
        rows.JobQueueRow,
        lambda context, wanted: everywhere.list_queues(context.broker, wanted, wanted.local),
        many=True,
    ),
    Operation(
        "show_job_queue",
        "GET",
        "/jobs/queue",
        "Show a queue of jobs with the options that hold for it",
        QueueOf,
        rows.JobQueueDetails,
        lambda context, wanted: everywhere.show_queue(context.broker, wanted),
    ),
    Operation(
        "purge_job_queue",
        "DELETE",
        "/jobs/queue",
        "Delete the jobs that are queued; those that workers have stay",
        QueueOf,
        rows.JobsChanged,
        lambda context, wanted: everywhere.purge(context.broker, wanted),
    ),
    Operation(
        "peek_jobs",
        "GET",
        "/jobs",
        "Look into a queue of jobs without taking any",
        PeekJobs,
        rows.JobRow,
        lambda context, wanted: everywhere.peek(context.broker, wanted),
        many=True,
    ),
    Operation(
        "show_job",
        "GET",
        "/jobs/job",
        "Show one job",
        ShowJob,
        rows.JobRow,
        lambda context, wanted: everywhere.show_job(context.broker, wanted),
    ),
    Operation(
        "add_job",
        "POST",
        "/jobs/job",
        "Add a job",
        AddJob,
        rows.JobAdded,
        _add,
    ),
    Operation(
        "delete_job",
        "DELETE",
        "/jobs/job",
        "Delete one job, wherever it is",
        OneJob,
        rows.JobsChanged,
        lambda context, wanted: everywhere.delete(context.broker, wanted),
    ),
    Operation(
        "take_jobs",
        "POST",
        "/jobs/take",
        "Take jobs as a worker does",
        TakeJobs,
        rows.JobRow,
        lambda context, wanted: everywhere.take(context.broker, wanted),
        many=True,
    ),
    Operation(
        "pause_job_queue",
        "POST",
        "/jobs/pause",
        "Have a queue take or give no jobs",
        PauseQueue,
        rows.QueuePaused,
        lambda context, wanted: everywhere.pause(
            context.broker, wanted.queue, wanted.mountpoint, wanted.what
        ),
    ),
    Operation(
        "resume_job_queue",
        "POST",
        "/jobs/resume",
        "End the pause of a queue",
        OneQueue,
        rows.QueuePaused,
        lambda context, wanted: everywhere.pause(
            context.broker, wanted.queue, wanted.mountpoint, "none"
        ),
    ),
    Operation(
        "retry_jobs",
        "POST",
        "/jobs/retry",
        "Send dead letters back to their queue, or queue a delayed job at once",
        RetryJobs,
        rows.JobsChanged,
        lambda context, wanted: everywhere.retry(context.broker, wanted),
    ),
    Operation(
        "list_schedules",
        "GET",
        "/jobs/schedules",
        "List the schedules by which jobs are added",
        List,
        schedules.ScheduleRow,
        lambda context, wanted: Listing(
            schedules.ScheduleRow, schedules.list_schedules(context.broker), wanted
        ),
        many=True,
    ),
    Operation(
        "dump_jobs",
        "GET",
        "/jobs/dump",
        "Jobs with all that happened to them, some at a time, to be loaded elsewhere",
        DumpJobs,
        dump.JobDump,
        lambda context, wanted: everywhere.dump(context.broker, wanted),
    ),
    Operation(
        "load_jobs",
        "POST",
        "/jobs/load",
        "Take jobs that were dumped; ids are kept",
        LoadJobs,
        dump.JobsLoaded,
        lambda context, wanted: dump.load(context.broker, wanted.jobs),
    ),
    Operation(
        "why_job",
        "GET",
        "/why/job",
        "Explain where a job is, and what has to happen before a worker gets it",
        OneJob,
        why.JobExplained,
        lambda context, wanted: everywhere.explain(context.broker, wanted),
    ),
    Operation(
        "list_mappings",
        "GET",
        "/mappings",
        "List the mappings, with what they did",
        List,
        mappings.MappingRow,
        lambda context, wanted: Listing(
            mappings.MappingRow, mappings.list_mappings(context.broker), wanted
        ),
        many=True,
    ),
    Operation(
        "try_mapping",
        "POST",
        "/mappings/test",
        "Show what a mapping would do with a message; nothing is sent",
        TryMapping,
        mappings.MappingTried,
        lambda context, wanted: mappings.try_out(
            context.broker,
            wanted.name,
            wanted.topic,
            _payload_of(wanted),
            wanted.qos,
            wanted.client_id,
        ),
        change=False,
    ),
    Operation(
        "enable_mapping",
        "POST",
        "/mappings/enable",
        "Have a mapping in force, also after a restart",
        OneMapping,
        mappings.MappingRow,
        lambda context, wanted: mappings.switch(context.broker, wanted.name, is_enabled=True),
    ),
    Operation(
        "disable_mapping",
        "POST",
        "/mappings/disable",
        "Have a mapping out of force, also after a restart",
        OneMapping,
        mappings.MappingRow,
        lambda context, wanted: mappings.switch(context.broker, wanted.name, is_enabled=False),
    ),
)

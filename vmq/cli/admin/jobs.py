"""`vmq jobs`: the jobs of a running broker."""

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

from vmq.cli.admin.asking import BytesOption, MountpointOption, asking, is_job_id, listing
from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.console import CliError, nobody_reads
from vmq.cli.terminal.rows import Columns, show_rows, warn_of_missing
from vmq.cli.terminal.settings import ConfigOption, DataDirOption

app = typer.Typer(
    help="Look at jobs, add and take them, and what became dead letters.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

QUEUES: Final = Columns(
    ("queue", "depth", "jobs", "dead", "workers", "oldest", "paused"),
    ("mountpoint", "came", "went"),
)
JOBS: Final = Columns(
    ("id", "state", "priority", "age", "next", "deliveries", "size", "body"),
    (
        "queue",
        "mountpoint",
        "topic",
        "created",
        "ttl",
        "retry",
        "nacks",
        "repeats",
        "key",
        "reason",
        "history",
        "encoding",
        "truncated",
    ),
)
DEAD: Final = Columns(
    ("id", "age", "deliveries", "reason", "size", "body"),
    (
        "queue",
        "mountpoint",
        "topic",
        "created",
        "state",
        "priority",
        "next",
        "ttl",
        "retry",
        "nacks",
        "repeats",
        "key",
        "history",
        "encoding",
        "truncated",
    ),
)
SCHEDULES: Final = Columns(
    ("schedule", "cron", "timezone", "queue", "last", "next"), ("mountpoint", "body")
)
#: What one request to load has at most, in jobs and in characters.
_JOBS: Final = 500
_CHARACTERS: Final = 500_000

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue of jobs.")]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The job.")]


@app.command("list")
@listing(QUEUES)
def list_queues(ask: AdminClient) -> Any:
    """List the queues of jobs.

    \b
    {columns}

    \b
    Examples:
      vmq jobs list --sort -depth --limit 10
      vmq jobs list --where 'dead > 0'
    """
    return ask.get("/jobs/queues")


@app.command("show")
@asking()
def show(
    ask: AdminClient,
    name: Annotated[str, typer.Argument(metavar="QUEUE|ID", help="A queue, or a job.")],
    mountpoint: MountpointOption = "",
) -> Any:
    """Show a queue with the options that hold for it, or one job whole.

    \b
    Examples:
      vmq jobs show mail
      vmq jobs show D-1f3a9c04-LYyQMK4fgYJLigrQnwiD1GW2-05a1
    """
    if is_job_id(name):
        return ask.get("/jobs/job", id=name)
    return ask.get("/jobs/queue", queue=name, mountpoint=mountpoint)


@app.command("peek")
@listing(JOBS)
def peek(
    ask: AdminClient,
    queue: QueueArgument,
    everything: Annotated[
        bool, typer.Option("--all", help="Also delayed jobs, and those that workers have.")
    ] = False,
    payload_bytes: BytesOption = 64,
    mountpoint: MountpointOption = "",
) -> Any:
    """Look into a queue without taking anything: the jobs as they would go.

    \b
    {columns}

    \b
    Examples:
      vmq jobs peek mail
      vmq jobs peek mail --all --where 'state = "active"'
    """
    return ask.get(
        "/jobs",
        queue=queue,
        everything=everything,
        payload_bytes=payload_bytes,
        mountpoint=mountpoint,
    )


@app.command("dead")
@listing(DEAD)
def dead(
    ask: AdminClient,
    queue: QueueArgument,
    payload_bytes: BytesOption = 64,
    mountpoint: MountpointOption = "",
) -> Any:
    """List the dead letters of a queue: jobs that failed, expired, or could never be done.

    \b
    {columns}

    \b
    Examples:
      vmq jobs dead mail --columns id,reason,history
      vmq jobs dead mail --where 'reason = "expired"'
    """
    name = queue.removesuffix("!dead") + "!dead"
    return ask.get("/jobs", queue=name, payload_bytes=payload_bytes, mountpoint=mountpoint)


@app.command("add")
@asking()
def add(
    ask: AdminClient,
    queue: QueueArgument,
    body: Annotated[
        str, typer.Argument(metavar="BODY", help="What is to be done; - reads it from the input.")
    ],
    delay: Annotated[
        int, typer.Option("--delay", metavar="SECONDS", min=0, help="Until it is due.")
    ] = 0,
    retry: Annotated[
        int | None,
        typer.Option(
            "--retry", metavar="SECONDS", min=0, help="Until it is given again; 0 = never."
        ),
    ] = None,
    ttl: Annotated[
        int | None, typer.Option("--ttl", metavar="SECONDS", min=1, help="How long it lives.")
    ] = None,
    priority: Annotated[
        int | None, typer.Option("--priority", min=0, max=9, help="9 goes first.")
    ] = None,
    maxlen: Annotated[
        int | None,
        typer.Option("--maxlen", metavar="N", min=1, help="Refused if so many are queued."),
    ] = None,
    replicate: Annotated[
        int | None,
        typer.Option(
            "--replicate", metavar="N", min=1, help="Hosts that have it before it counts as added."
        ),
    ] = None,
    key: Annotated[
        str, typer.Option("--key", metavar="TEXT", help="Keeps a second job with it out.")
    ] = "",
    mountpoint: MountpointOption = "",
) -> Any:
    """Add a job.

    \b
    Examples:
      vmq jobs add mail 'to: ada@example.org'
      vmq jobs add mail - --delay 3600 --key ada < letter
    """
    wanted: dict[str, Any] = {"body": body, "encoding": "text"}
    if body == "-":
        import base64

        data = base64.b64encode(sys.stdin.buffer.read()).decode()
        wanted = {"body": data, "encoding": "base64"}
    given = {"retry": retry, "ttl": ttl, "priority": priority, "maxlen": maxlen}
    given["replicate"] = replicate
    wanted |= {name: value for name, value in given.items() if value is not None}
    wanted |= {"queue": queue, "mountpoint": mountpoint, "delay": delay, "key": key}
    return ask.post("/jobs/job", **wanted)


def _show_taken(rows: Any) -> None:
    show_rows({"rows": rows}, JOBS, as_json=False)


@app.command("take")
@asking(show=_show_taken)
def take(
    ask: AdminClient,
    queue: QueueArgument,
    count: Annotated[int, typer.Option("--count", "-n", metavar="N", min=1, max=1000)] = 1,
    ack: Annotated[
        bool, typer.Option("--ack", help="Acknowledge them at once: they are gone.")
    ] = False,
    mountpoint: MountpointOption = "",
) -> Any:
    """Take jobs as a worker does. Unless they are acknowledged they are given again.

    \b
    Examples:
      vmq jobs take mail --json
      vmq jobs take mail --count 100 --ack
    """
    wanted = {"queue": queue, "mountpoint": mountpoint, "count": count, "ack": ack}
    answer = ask.post("/jobs/take", **wanted)
    warn_of_missing(answer)
    return answer["rows"]


@app.command("pause")
@asking()
def pause(
    ask: AdminClient,
    queue: QueueArgument,
    adding: Annotated[bool, typer.Option("--in", help="No job may be added.")] = False,
    giving: Annotated[bool, typer.Option("--out", help="No job is given to workers.")] = False,
    mountpoint: MountpointOption = "",
) -> Any:
    """Pause a queue until it is resumed, also over restarts: both ways, if none is named."""
    what = "in" if adding and not giving else "out" if giving and not adding else "all"
    return ask.post("/jobs/pause", queue=queue, what=what, mountpoint=mountpoint)


@app.command("resume")
@asking()
def resume(ask: AdminClient, queue: QueueArgument, mountpoint: MountpointOption = "") -> Any:
    """End the pause of a queue."""
    return ask.post("/jobs/resume", queue=queue, mountpoint=mountpoint)


@app.command("retry")
@asking()
def retry(
    ask: AdminClient,
    name: Annotated[
        str, typer.Argument(metavar="QUEUE|ID", help="A queue with dead letters, or one job.")
    ],
    mountpoint: MountpointOption = "",
) -> Any:
    """Send dead letters back to their queue, as if they were new.

    One job that is delayed, or that a worker has, is queued at once.

    \b
    Examples:
      vmq jobs retry mail
      vmq jobs retry D-1f3a9c04-LYyQMK4fgYJLigrQnwiD1GW2-05a1
    """
    if is_job_id(name):
        return ask.post("/jobs/retry", id=name)
    return ask.post("/jobs/retry", queue=name, mountpoint=mountpoint)


@app.command("purge")
@asking()
def purge(
    ask: AdminClient,
    name: Annotated[str, typer.Argument(metavar="QUEUE|ID", help="A queue, or one job.")],
    mountpoint: MountpointOption = "",
) -> Any:
    """Delete what is queued, or one job. What is delayed, or with workers, stays.

    \b
    Examples:
      vmq jobs purge mail
      vmq jobs purge 'mail!dead'
    """
    if is_job_id(name):
        return ask.delete("/jobs/job", id=name)
    return ask.delete("/jobs/queue", queue=name, mountpoint=mountpoint)


@app.command("schedules")
@listing(SCHEDULES)
def list_schedules(ask: AdminClient) -> Any:
    """List the schedules of the configuration, with their last and next times.

    \b
    {columns}

    \b
    Example:
      vmq jobs schedules --sort next
    """
    return ask.get("/jobs/schedules")


@app.command("dump")
def dump(config: ConfigOption = None, data_dir: DataDirOption = None) -> int:
    """Print all jobs, one JSON object a line, for `vmq jobs load`.

    \b
    Example:
      vmq jobs dump > jobs.jsonl
    """
    broker = AdminClient(config, data_dir)
    after, node = 0, ""
    try:
        while True:
            answer = broker.get("/jobs/dump", after=after, node=node)
            for job in answer["jobs"]:
                print(json.dumps(job))
            after, node = answer["after"], answer["node"]
            if not after and not node:
                sys.stdout.flush()
                return 0
    except BrokenPipeError:
        return nobody_reads()


@app.command("load")
@asking()
def load(ask: AdminClient) -> Any:
    """Take jobs that were dumped, from the input. Ids are kept; those that are here already stay.

    A job that a worker had is queued, unless it is delivered at most once.

    \b
    Example:
      vmq jobs load < jobs.jsonl
    """
    total = {"loaded": 0, "known": 0, "lapsed": 0}
    for batch in _batches(sys.stdin):
        answer: Mapping[str, int] = ask.post("/jobs/load", jobs=batch)
        total = {name: total[name] + answer[name] for name in total}
    return total


def _batches(lines: Any) -> Iterator[list[Any]]:
    """The jobs of a dump, as many as go into one request."""
    batch: list[Any] = []
    size = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        if batch and (len(batch) >= _JOBS or size + len(line) > _CHARACTERS):
            yield batch
            batch, size = [], 0
        try:
            batch.append(json.loads(line))
        except ValueError as error:
            raise CliError(f"line {number} is no JSON: {error}") from None
        size += len(line)
    if batch:
        yield batch

"""`vmq stream`: the streams of a running broker, or else of its data folder; make and delete those of one that runs."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from vmq.cli.admin.asking import asking
from vmq.cli.admin.client import AdminClient
from vmq.cli.data import stream_making, stream_tail
from vmq.cli.data.stored_streams import (
    all_stored_streams,
    configured,
    elsewhere,
    stored_streams,
    where,
)
from vmq.cli.data.stream_making import NameArgument
from vmq.cli.terminal.console import FAILURE, CliError, UsageError, error, table, warning
from vmq.cli.terminal.rows import Columns, JsonOption, clean, print_json, show_one, show_rows
from vmq.cli.terminal.settings import ConfigOption, DataDirOption

if TYPE_CHECKING:
    from vmq.streams.stored import PartitionReport, StoredStream

app = typer.Typer(
    help="Make, look at, follow, verify, repair, export and delete streams.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_STATE: Final = ("leaderless", "under_replicated", "moving", "abstaining")
COLUMNS: Final = Columns(
    (
        "stream",
        "filters",
        "partitions",
        "owned",
        *_STATE,
        "messages",
        "bytes",
    ),
    ("origin",),
    _STATE,
)
#: Of partitions in a cluster, of those with copies, and of some of these.
_PLACES: Final = ("owner", "replicas", "joining", "leaving", "term", "behind", "given_up")
_ALONE: Final = COLUMNS._replace(shown=[each for each in COLUMNS.shown if each != "owned"])

LocalOption = Annotated[
    bool,
    typer.Option("--local", help="Of a cluster's stream only what is on this node's disk."),
]


@app.command("list")
def list_streams(
    config: ConfigOption = None, data_dir: DataDirOption = None, as_json: JsonOption = False
) -> None:
    """List the streams: of the running broker, or what is in its data folder if none runs.

    \b
    Examples:
      vmq stream list
      vmq stream list --data-dir /var/lib/vmq --json
    """
    broker = AdminClient(config, data_dir)
    if broker.finds_broker():
        answer = broker.get("/streams", limit=0)
        in_cluster = any(row["owned"] is not None for row in answer["rows"])
        show_rows(answer, COLUMNS if in_cluster else _ALONE, as_json=as_json)
        return
    with stored_streams(config, data_dir) as folder:
        from vmq.streams import stored

        rows = [_row(stored.StoredStream(folder, name)) for name in stored.names(folder)]
    show_rows({"rows": rows}, _ALONE, as_json=as_json)


@app.command("show")
def show(
    name: NameArgument,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the options of a stream and what is in it.

    \b
    Examples:
      vmq stream show sensors
      vmq stream show sensors --json
    """
    broker = AdminClient(config, data_dir)
    if broker.finds_broker():
        found = broker.get("/stream", name=name)
        partitions, options = found.pop("partitions"), found.pop("options")
        _show({**found, **options, "partitions": partitions}, as_json=as_json)
        return
    with stored_streams(config, data_dir) as folder:
        import msgspec

        from vmq.streams.stored import StoredStream

        stream = StoredStream(folder, name)
        options = msgspec.to_builtins(stream.options)
        partitions = [_plain(each.summary()) for each in stream.partitions]
        shown = {**_row(stream), **options, "partitions": partitions}
    _show(shown, as_json=as_json)


def _show(stream: dict[str, Any], *, as_json: bool) -> None:
    """Print a stream, its options and its partitions: as a table without what none of them has."""
    if as_json:
        print_json(stream)
        return
    rows = stream["partitions"]
    empty = {name for name in _PLACES if not any(row.get(name) for row in rows)}
    if "replicas" in empty:
        empty.add("leader")  # where there is none of copies, that is news
    partitions = [{name: row[name] for name in row if name not in empty} for row in rows]
    show_one({**stream, "filters": ", ".join(stream["filters"]), "partitions": partitions})


app.command("create")(stream_making.create)


def _print_deleted(stream: Mapping[str, Any]) -> None:
    name, filters = clean(stream["stream"]), clean(stream["filters"])
    print(f"deleted {name} ({filters}): {stream['messages']} messages on this node")


@app.command("delete")
@asking(show=_print_deleted)
def delete(ask: AdminClient, name: NameArgument) -> Any:
    """Delete a stream of a running broker, with its messages.

    One that the configuration names is refused: it would be made again.
    """
    return ask.delete("/stream", name=name)


app.command("alter")(stream_making.alter)

PartitionOption = Annotated[
    int, typer.Option("--partition", metavar="N", min=0, help="Which of its partitions.")
]


def _print_move(moved: Mapping[str, Any]) -> None:
    name, to = clean(moved["stream"]), ", ".join(map(clean, moved["to"]))
    print(
        f"partition {moved['partition']} of {name} goes to {to}: 'vmq stream show' tells how far it is"
    )


@app.command("move")
@asking(show=_print_move)
def move(
    ask: AdminClient,
    name: NameArgument,
    to: Annotated[
        list[str],
        typer.Option("--to", metavar="NODE", help="A node that is to have it; repeat it."),
    ],
    partition: PartitionOption = 0,
) -> Any:
    """Have a partition of a replicated stream go to other nodes.

    It happens in the background, copy by copy; 'vmq stream show' tells how far
    it is. The first node is to lead it.

    \b
    Example:
      vmq stream move sensors --partition 2 --to a --to b --to d
    """
    answer = ask.post("/stream/move", name=name, partition=partition, to=to)
    return {**answer, "partition": partition, "to": to}


def _print_leaders(led: Mapping[str, Any]) -> None:
    for node, numbers in led["leaders"].items():
        shown = ", ".join(map(str, numbers[:10])) + ", ..." * (len(numbers) > 10)
        which = f"partition{'s' * (len(numbers) > 1)} {shown}"
        print(f"{clean(node) or 'nobody'} leads {len(numbers)} of {clean(led['stream'])}: {which}")


@app.command("transfer")
@asking(show=_print_leaders)
def transfer(
    ask: AdminClient,
    name: NameArgument,
    to: Annotated[str, typer.Option("--to", metavar="NODE", help="A node that has a replica.")],
    partition: PartitionOption = 0,
) -> Any:
    """Have another replica lead a partition of a replicated stream.

    It returns when that leads; a node that cannot be reached is refused.
    """
    answer = ask.post("/stream/transfer", name=name, partition=partition, to=to)
    return {**answer, "leaders": {to: [partition]}}


@app.command("rebalance")
@asking(show=_print_leaders)
def rebalance(ask: AdminClient, name: NameArgument) -> Any:
    """Spread the leaders of a replicated stream's partitions evenly.

    After nodes have been down they lead less than their share.
    """
    answer = ask.post("/stream/rebalance", name=name)
    leaders: dict[str, list[int]] = {}
    for row in ask.get("/stream", name=name)["partitions"]:
        leaders.setdefault(row["leader"], []).append(row["partition"])
    return {**answer, "leaders": dict(sorted(leaders.items()))}


def _print_recovered(recovered: Mapping[str, Any]) -> None:
    print(f"{clean(recovered['stream'])} goes on here; /health names the offsets that may be lost")


@app.command("recover")
@asking(show=_print_recovered)
def recover(
    ask: AdminClient,
    name: NameArgument,
    unsafe: Annotated[
        bool, typer.Option("--unsafe", help="Say that what only the lost nodes had is given up.")
    ] = False,
    partition: Annotated[
        int | None,
        typer.Option("--partition", metavar="N", min=0, help="One of them; without it, all."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also if most copies could be reached a moment ago.")
    ] = False,
) -> Any:
    """Have a replicated stream go on though most of its copies are lost.

    For when most nodes that have a partition, or have its cluster's
    decisions, will not come back with their disks: with this node's copy
    alone. Messages that only the lost nodes had are gone, acknowledged or
    not, and readers may have seen them; /health and the log name the offset
    from which on that may be so. Refused where a node in reach has more; and
    while copies in reach may elect a leader yet, for a minute; and where most
    copies could be reached within the last minute, unless their nodes are
    removed, or you say --force. New copies are
    made on other nodes of the cluster by themselves. Before it, remove the
    lost nodes ('vmq cluster remove'); should one come back with its disk, wipe
    that first.

    \b
    Example:
      vmq stream recover sensors --unsafe
    """
    if not unsafe:
        raise UsageError(
            "messages that only the lost nodes had are given up, acknowledged or not; "
            "if that is to be, say --unsafe"
        )
    return ask.post("/stream/recover", name=name, partition=partition, unsafe=True, force=force)


@app.command("accept-loss")
@asking()
def accept_loss(
    ask: AdminClient,
    name: NameArgument,
    partition: Annotated[
        int | None,
        typer.Option("--partition", metavar="N", min=0, help="One of them; without it, all."),
    ] = None,
) -> Any:
    """Say that you know which offsets of a stream may be lost.

    /health of the nodes that have a copy names them until then, or until
    retention has passed them. Asked of a node that has a copy; what is lost
    later is named again.

    Asked of the node that leads a partition, it also gives up what is damaged
    there and no copy has whole: readers skip these offsets then, and new
    copies are made. All who have, or had, a copy are asked before. Refused
    while one may have it: one that cannot be reached is waited for, for a
    minute.
    """
    return ask.post("/stream/accept-loss", name=name, partition=partition)


app.command("tail")(stream_tail.tail)


@app.command("verify")
def verify(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The stream; without it, all.")
    ] = None,
    local: LocalOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> int:
    """Read every byte of a stream, or of all, and report what is wrong.

    Changes nothing; a broker that runs has a look, too, and tells of damage in
    /health. Exits with 1 if there are problems, or if other nodes of a cluster
    have some of it and --local was not given.

    \b
    Examples:
      vmq stream verify
      vmq stream verify sensors --data-dir /var/lib/vmq
    """
    with all_stored_streams(config, data_dir) as folders:
        from vmq.streams import stored

        wanted = stored.names(folders[0]) if name is None else [name]
        reports = [
            report
            for each in wanted
            for found in _stored(folders, each)
            for report in found.verify()
        ]
    missing = [] if local else _missing(config, data_dir, wanted)
    columns = ("stream", "partition", "earliest", "end", "segments", "bytes")
    table(columns, [[str(asdict(report)[column]) for column in columns] for report in reports])
    for report in reports:
        for note in report.notes:
            warning(clean(note))
        for problem in report.problems:
            error(clean(problem))
    for each in missing:
        error(f"{each}: not looked at; verify it there, or say --local")
    wrong = sorted({report.stream for report in reports if report.problems})
    broker = AdminClient(config, data_dir)
    if wrong and broker.finds_broker():
        for each in wrong:
            broker.post("/stream/scrub", name=each)
    if missing or wrong:
        return FAILURE
    print("ok")
    return 0


@app.command("repair")
def repair(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The stream; without it, all.")
    ] = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Mend the damaged partitions of a stream, or of all. The broker must not be running.

    Of a last segment the rows before the damage stay, and the offsets behind
    them are given out again. One before it that is missing, or whose end is,
    goes with those before it, as offsets have no gaps. What was there is kept
    beside the partition's segments. Other damage stays as it is: readers are
    refused from there on, and 'vmq stream verify' names it.

    \b
    Examples:
      vmq stream repair
      vmq stream repair sensors --data-dir /var/lib/vmq
    """
    from vmq.cli.data.auditing import audited

    found = configured(config, data_dir)
    given = {"name": name, "data_dir": found.broker.data_dir}
    with (
        all_stored_streams(config, data_dir) as folders,
        audited(found, "repair_streams", given) as results,
    ):
        from vmq.streams import mending, stored

        done = []
        for folder in folders:
            there = stored.names(folder)
            if name is not None and folder == folders[0]:
                stored.StoredStream(folder, name)  # or says which there are
            done += mending.mend(folder, [each for each in there if name in (None, each)])
        results.append("; ".join(done) or "nothing to mend")
    for each in done:
        print(clean(each))
    print("ok" if done else "nothing to mend")


@app.command("export")
def export(
    name: NameArgument,
    parquet: Annotated[
        Path, typer.Option("--parquet", metavar="FILE", help="The Parquet file to write.")
    ],
    local: LocalOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    topic_filter: Annotated[
        str | None,
        typer.Option("--filter", "-t", metavar="FILTER", help="Only topics that match."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns", metavar="COLUMNS", help="These columns, as in topic,payload,offset."
        ),
    ] = None,
) -> None:
    """Write the messages of a stream to a Parquet file.

    Where other nodes of a cluster have some of it nothing is written, unless
    --local is given.

    \b
    Examples:
      vmq stream export sensors --parquet sensors.parquet
      vmq stream export sensors --parquet t.parquet -t 'sensors/+/temp' --columns topic,payload
    """
    if not parquet.absolute().parent.is_dir():
        raise UsageError(f"--parquet: there is no folder {clean(str(parquet.parent))}")
    with all_stored_streams(config, data_dir) as folders:
        from vmq.streams.log.errors import DamagedError, StreamError
        from vmq.streams.stored import export_parquet

        streams = _stored(folders, name)
        if not local and (missing := _missing(config, data_dir, [name])):
            raise CliError(
                f"{'; '.join(missing)}: nothing is written; read all of it by Flight, or say --local"
            )
        chosen = None if columns is None else [each.strip() for each in columns.split(",")]
        try:
            count = export_parquet(streams, parquet, chosen, topic_filter)
        except DamagedError:
            raise
        except StreamError as problem:
            raise UsageError(str(problem)) from None
    print(f"{count} messages")


def _stored(folders: list[Path], name: str) -> "list[StoredStream]":
    """A stream as each process of a data folder has it."""
    from vmq.streams import stored

    first, *others = folders
    found = [stored.StoredStream(first, name)]
    return found + [
        stored.StoredStream(each, name) for each in others if name in stored.names(each)
    ]


def _missing(config: Path | None, data_dir: str | None, names: list[str]) -> list[str]:
    """What other nodes have of some streams, a text for each stream."""
    found = {name: elsewhere(config, data_dir, name) for name in names}
    return [clean(where(name, found[name])) for name in names if found[name]]


def _plain(report: "PartitionReport") -> dict[str, Any]:
    """A quick look at a partition, as a row."""
    plain = asdict(report)
    return {
        key: plain[key] for key in ("partition", "earliest", "end", "messages", "segments", "bytes")
    }


def _row(stream: "StoredStream") -> dict[str, Any]:
    """A stream as a row of the list."""
    found = [each.summary() for each in stream.partitions]
    return {
        "stream": stream.name,
        "origin": stream.origin,
        "filters": ", ".join(stream.options.filters),
        "partitions": len(found),
        "owned": None,
        **dict.fromkeys(_STATE),
        "messages": sum(each.messages for each in found),
        "bytes": sum(each.bytes for each in found),
    }

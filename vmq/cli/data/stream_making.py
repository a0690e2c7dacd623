"""`vmq stream create` and `alter`: what a stream keeps, and in how many copies."""

from pathlib import Path
from typing import Annotated, Any

import typer

from vmq.cli.admin.asking import asking
from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.console import UsageError
from vmq.cli.terminal.settings import tell_months

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The stream.")]
RetentionAgeOption = Annotated[
    str | None, typer.Option("--retention-age", metavar="TIME", help="As in 14d.")
]
RetentionBytesOption = Annotated[int | None, typer.Option("--retention-bytes", metavar="N")]
CompactOption = Annotated[
    bool | None,
    typer.Option("--compact/--no-compact", help="Whether of a key only the newest message stays."),
]
CompactByOption = Annotated[
    str | None, typer.Option("--compact-by", metavar="WHAT", help="The key of that: topic or key.")
]
AcksOption = Annotated[
    str | None, typer.Option("--acks", metavar="WHO", help="none, leader or quorum.")
]
DurabilityOption = Annotated[
    str | None, typer.Option("--durability", metavar="LEVEL", help="memory, os or fsync.")
]
WithoutQuorumOption = Annotated[
    str | None,
    typer.Option(
        "--without-quorum",
        metavar="WHAT",
        help="While most copies are away publishers wait, or are acknowledged by one disk: wait or keep.",
    ),
]
SchemaOption = Annotated[
    Path | None,
    typer.Option(
        "--schema",
        metavar="FILE",
        help="A JSON schema of the payloads: its properties are columns.",
    ),
]


@asking()
def create(
    ask: AdminClient,
    name: NameArgument,
    filters: Annotated[
        list[str],
        typer.Option("--filter", "-t", metavar="FILTER", help="What it keeps; may be repeated."),
    ],
    partitions: Annotated[int | None, typer.Option("--partitions", metavar="N")] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="client_id, topic or level:N.")
    ] = None,
    retention_age: RetentionAgeOption = None,
    retention_bytes: RetentionBytesOption = None,
    compact: CompactOption = None,
    compact_by: CompactByOption = None,
    segment_age: Annotated[str | None, typer.Option("--segment-age", metavar="TIME")] = None,
    segment_bytes: Annotated[int | None, typer.Option("--segment-bytes", metavar="N")] = None,
    compression: Annotated[
        str | None, typer.Option("--compression", metavar="KIND", help="none, lz4 or zstd.")
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option("--replicas", metavar="N", help="Nodes that have a copy of each partition."),
    ] = None,
    acks: AcksOption = None,
    durability: DurabilityOption = None,
    without_quorum: WithoutQuorumOption = None,
    schema: SchemaOption = None,
) -> Any:
    """Make a stream in a running broker; it stays after a restart.

    In a cluster each partition has copies on 3 nodes, or on as many as there
    are, unless --replicas says another number: 1 is one copy, on one node's
    disk. With 3 or more, a message is acknowledged when most copies have it.
    With 2, that would take both nodes, so it is acknowledged when the leader
    has it (--acks leader): what a leader that dies had not yet given to the
    other is lost then; say --acks quorum to wait for both.

    \b
    Example:
      vmq stream create sensors -t 'sensors/+/temp' --partitions 4 --key topic
    """
    options = {
        "partitions": partitions,
        "key": key,
        "retention_age": retention_age,
        "retention_bytes": retention_bytes,
        "compact": compact,
        "compact_by": compact_by,
        "segment_age": segment_age,
        "segment_bytes": segment_bytes,
        "compression": compression,
        "replicas": replicas,
        "acks": acks,
        "durability": durability,
        "without_quorum": without_quorum,
        "schema": None if schema is None else _columns(schema),
    }
    given = _said(options)
    return ask.post("/stream", name=name, filters=filters, **given)


def _said(options: dict[str, Any]) -> dict[str, Any]:
    """The options that were said; of those that are months the user hears."""
    given = {option: value for option, value in options.items() if value is not None}
    for option in given.keys() & {"retention_age", "segment_age"}:
        tell_months(given[option])
    return given


def _columns(path: Path) -> dict[str, str]:
    from vmq.config.columns import columns_of_file

    try:
        return columns_of_file(path)
    except ValueError as problem:
        raise UsageError(f"--schema: {problem}") from None


@asking()
def alter(
    ask: AdminClient,
    name: NameArgument,
    replicas: Annotated[
        int | None,
        typer.Option("--replicas", metavar="N", help="Nodes that are to have a copy, 2 to 5."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", metavar="N", help="How many there are to be; never fewer."),
    ] = None,
    retention_age: RetentionAgeOption = None,
    retention_bytes: RetentionBytesOption = None,
    compact: CompactOption = None,
    compact_by: CompactByOption = None,
    without_quorum: WithoutQuorumOption = None,
) -> Any:
    """Change what a stream keeps, or in how many copies, while it is read and written.

    With --replicas each partition of a stream in a cluster gets another number
    of copies, in the background, a few partitions at a time; 'vmq stream show'
    tells how far it is. Messages that are there are copied with their offsets.
    A stream that has copies keeps two at least.

    With --partitions it gets more of them. A key may belong to a new one from
    then on; its messages keep their order all the same, and readers begin with
    a new partition at its beginning.

    What a stream of the configuration keeps is changed there.

    \b
    Examples:
      vmq stream alter sensors --replicas 3
      vmq stream alter sensors --compact --retention-age never
    """
    options = {
        "replicas": replicas,
        "partitions": partitions,
        "retention_age": retention_age,
        "retention_bytes": retention_bytes,
        "compact": compact,
        "compact_by": compact_by,
        "without_quorum": without_quorum,
    }
    given = _said(options)
    if not given:
        raise UsageError("nothing is to change; accepted: an option, as in --replicas 3")
    return ask.post("/stream/alter", name=name, **given)

"""`vmq cluster`: the cluster that a broker is a node of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from vmq.cli.admin.asking import asking, listing
from vmq.cli.admin.client import AdminClient
from vmq.cli.admin.what_is_left import showing_what_is_left
from vmq.cli.terminal.console import CliError
from vmq.cli.terminal.rows import Columns

app = typer.Typer(
    help="Show the cluster of a running broker, join or leave one, make its key.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

COLUMNS: Final = Columns(
    (
        "node",
        "status",
        "is_up",
        "is_self",
        "address",
        "sessions",
        "online",
        "offline",
        "subscriptions",
        "waiting_messages",
        "waiting_bytes",
        "slots_owned",
        "slots_followed",
        "slots_without_follower",
        "slots_behind",
        "slots_waiting",
        "partitions",
        "leads_meta",
    )
)

#: Seconds beyond the limit of a leave in which the broker is to answer.
_GRACE: Final = 30.0


@app.command("status")
@listing(COLUMNS, limit=0)
def status(ask: AdminClient) -> Any:
    """List the nodes of the cluster, as the asked one sees them.

    What only the node itself knows is shown as - (null in JSON). What waits is what the asked node has for the other.

    \b
    {columns}
    """
    return ask.get("/cluster/members")


@app.command("join")
@asking()
def join(
    ask: AdminClient,
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="Of any of its nodes: tcp://HOST:PORT.")
    ],
) -> Any:
    """Join the cluster of the node at an address.

    If that does not answer in ten seconds, the command ends and says why; the node is
    asked on until it answers.
    """
    return ask.post("/cluster/join", address=address)


def _is_incomplete(answer: Mapping[str, Any]) -> bool:
    """The other nodes do not have all that this one had: a script that deletes its data must not go on."""
    return not answer["complete"]


@app.command("leave")
@asking(is_no=_is_incomplete)
def leave(
    ask: AdminClient,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=1,
            max=3600,
            help="Leave after so long at the latest.",
        ),
    ] = 60.0,
) -> Any:
    """Turn clients away, hand durable sessions over to the other nodes, leave the cluster, and stop the broker.

    Exits with 1 if the others do not have all that this node had; its data directory is to be kept then.
    """
    ask.timeout = timeout + _GRACE
    with showing_what_is_left(ask):
        return ask.post("/cluster/leave", timeout=timeout)


@app.command("drain")
@asking(is_no=_is_incomplete)
def drain(
    ask: AdminClient,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout",
            metavar="SECONDS",
            min=1,
            max=3600,
            help="Seconds that the sessions may take to move.",
        ),
    ] = 60.0,
    undo: Annotated[bool, typer.Option("--undo", help="Let clients in again.")] = False,
) -> Any:
    """Turn clients away and hand durable sessions over to the other nodes; the broker runs on and stays a member.

    For maintenance: it serves clients again after `vmq cluster drain --undo` or a restart;
    sessions come back with their clients. Other nodes lead the partitions of streams, as far
    as they have copies; 'vmq stream rebalance' gives the lead back. Copies stay where they
    are: of other nodes' sessions, of partitions and of jobs.

    Exits with 1 if others do not have all of it.
    """
    ask.timeout = timeout + _GRACE
    with showing_what_is_left(ask):
        return ask.post("/cluster/drain", timeout=timeout, undo=undo)


@app.command("remove")
@asking()
def remove(
    ask: AdminClient,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Its name.")],
    force: Annotated[bool, typer.Option("--force", help="Even if it is alive.")] = False,
) -> Any:
    """Take a dead node out of the cluster. It comes back only by joining anew."""
    return ask.delete("/cluster/member", node=node, force="true" if force else "false")


@app.command("keygen")
def keygen(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="A new file, for cluster.key_file.")
    ] = None,
) -> None:
    """Make a key for a cluster: in a file that only its owner may read, or on stdout.

    Every node needs the same one; whoever has it can join.
    """
    from vmq.clustering.node.key import write_key
    from vmq_cluster.addresses import generate_key

    if file is None:
        print(generate_key())
        return
    try:
        write_key(file)
    except OSError as problem:
        raise CliError(f"cannot write {file}: {problem.strerror}") from None

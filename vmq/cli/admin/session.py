"""`vmq session`: the sessions of a running broker."""

from typing import Annotated, Any, Final

import typer

from vmq.cli.admin.asking import (
    AnyMountpointOption,
    ClientArgument,
    MountpointOption,
    asking,
    listing,
)
from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.rows import Columns

app = typer.Typer(
    help="List, show and end the sessions of a running broker.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

LocalOption = Annotated[
    bool,
    typer.Option("--local", help="Only what the asked node has, not the rest of its cluster."),
]

COLUMNS: Final = Columns(
    (
        "node",
        "client_id",
        "mountpoint",
        "is_online",
        "user",
        "peer_host",
        "queue_size",
        "subscriptions",
        "dropped",
    ),
    (
        "peer_port",
        "clean_session",
        "waiting_acks",
        "protocol",
        "keep_alive",
        "online_messages",
        "offline_messages",
        "session_started_at",
        "offline_since",
    ),
    if_any=("node", "mountpoint"),
)


@app.command("list")
@listing(COLUMNS)
def list_sessions(
    ask: AdminClient, mountpoint: AnyMountpointOption = None, local: LocalOption = False
) -> Any:
    """List the sessions, connected or not: of a cluster those of all its nodes.

    Of a session on another node the asked one knows its subscriptions and whether it is
    clean; what only its own node knows is shown as - (null in JSON).

    \b
    {columns}

    \b
    Examples:
      vmq session list
      vmq session list --where 'queue_size > 100' --sort -queue_size
      vmq session list --where 'node = "b"'
      vmq session list --where 'is_online = false and client_id ~ "^dev"' --json
    """
    return ask.get("/sessions", mountpoint=mountpoint, local=local)


@app.command("show")
@asking()
def show(
    ask: AdminClient,
    client_id: ClientArgument,
    mountpoint: MountpointOption = "",
    local: LocalOption = False,
) -> Any:
    """Show one session with its subscriptions, on whichever node of the cluster it is."""
    return ask.get("/session", client_id=client_id, mountpoint=mountpoint, local=local)


@app.command("disconnect")
@asking()
def disconnect(
    ask: AdminClient,
    client_id: ClientArgument,
    cleanup: Annotated[
        bool,
        typer.Option("--cleanup", help="End the session, too: its messages and subscriptions go."),
    ] = False,
    mountpoint: MountpointOption = "",
) -> Any:
    """Close a client's connection; its will is published.

    A client that is allowed to will come back: this does not ban it.
    """
    return ask.delete("/session", client_id=client_id, mountpoint=mountpoint, cleanup=cleanup)


@app.command("unsubscribe")
@asking()
def unsubscribe(
    ask: AdminClient,
    client_id: ClientArgument,
    topic_filter: Annotated[
        str, typer.Argument(metavar="FILTER", help="The filter, exactly as subscribed to.")
    ],
    mountpoint: MountpointOption = "",
) -> Any:
    """Remove a client's subscription. The client is not told: MQTT has no packet for it."""
    return ask.delete(
        "/session/subscription", client_id=client_id, mountpoint=mountpoint, filter=topic_filter
    )

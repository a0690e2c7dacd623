"""`vmq session`: the sessions of a running broker."""

from typing import Annotated, Final

import typer

from vmq.cli.admin_client import AdminClient
from vmq.cli.console import table
from vmq.cli.rows import (
    ColumnsOption,
    JsonOption,
    LimitOption,
    SortOption,
    WhereOption,
    cell,
    clean,
    show_one,
    show_rows,
)
from vmq.cli.settings import ConfigOption, DataDirOption

app = typer.Typer(
    help="List, show and end the sessions of a running broker.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_COLUMNS: Final = (
    "client_id",
    "is_online",
    "user",
    "peer_host",
    "peer_port",
    "clean_session",
    "queue_size",
    "waiting_acks",
    "subscriptions",
    "dropped",
)

ClientArgument = Annotated[str, typer.Argument(metavar="CLIENT", help="The client id.")]


@app.command("list")
def list_sessions(
    where: WhereOption = None,
    sort: SortOption = None,
    limit: LimitOption = 100,
    columns: ColumnsOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """List the sessions, connected or not.

    \b
    Columns: client_id is_online user peer_host peer_port protocol
    clean_session keep_alive queue_size online_messages offline_messages
    waiting_acks subscriptions dropped session_started_at offline_since

    \b
    Examples:
      vmq session list
      vmq session list --where 'queue_size > 100' --sort -queue_size
      vmq session list --where 'not is_online and client_id ~ "^dev"' --json
    """
    client = AdminClient(config, data_dir)
    answer = client.get("/sessions", where=where, sort=sort, limit=limit)
    show_rows(answer, _COLUMNS, as_json=as_json, chosen=columns)


@app.command("show")
def show(
    client_id: ClientArgument,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Show one session with its subscriptions."""
    row = AdminClient(config, data_dir).get("/session", client_id=client_id)
    show_one(row, as_json=as_json, leave_out=("filters",))
    if not as_json:
        filters = [(clean(each["filter"]), cell(each["qos"])) for each in row["filters"]]
        table(("filter", "qos"), filters)


@app.command("disconnect")
def disconnect(
    client_id: ClientArgument,
    cleanup: Annotated[
        bool,
        typer.Option("--cleanup", help="End the session, too: its messages and subscriptions go."),
    ] = False,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Close a client's connection; its will is published.

    A client that is allowed to will come back: this does not ban it.
    """
    client = AdminClient(config, data_dir)
    show_one(client.delete("/session", client_id=client_id, cleanup=cleanup), as_json=as_json)


@app.command("unsubscribe")
def unsubscribe(
    client_id: ClientArgument,
    topic_filter: Annotated[
        str, typer.Argument(metavar="FILTER", help="The filter, exactly as subscribed to.")
    ],
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Remove a client's subscription. The client is not told: MQTT has no packet for it."""
    answer = AdminClient(config, data_dir).delete(
        "/session/subscription", client_id=client_id, filter=topic_filter
    )
    show_one(answer, as_json=as_json)

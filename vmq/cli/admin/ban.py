"""`vmq ban`: who is not let in any more."""

from typing import Annotated, Any, Final

import typer

from vmq.cli.admin.asking import asking, listing
from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.console import UsageError
from vmq.cli.terminal.rows import Columns
from vmq.config.values import months, parse_duration

app = typer.Typer(
    help="List, add and remove bans of clients, users and addresses.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

COLUMNS: Final = Columns(("kind", "value", "until", "reason", "since"))

ClientOption = Annotated[
    str, typer.Option("--client", metavar="ID", help="This client id, whoever uses it.")
]
UserOption = Annotated[
    str, typer.Option("--user", metavar="NAME", help="This user, with any client id.")
]
AddressOption = Annotated[
    str,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        help="This address or network, as in 192.0.2.7 or 2001:db8::/64; behind a trusted proxy the client's own.",
    ),
]


@app.command("list")
@listing(COLUMNS, limit=0)
def list_bans(ask: AdminClient) -> Any:
    """List the bans that hold.

    \b
    {columns}
    """
    return ask.get("/bans")


@app.command("add")
@asking()
def add(
    ask: AdminClient,
    client: ClientOption = "",
    user: UserOption = "",
    address: AddressOption = "",
    span: Annotated[
        str,
        typer.Option(
            "--for", metavar="SPAN", help="How long: 30min, 12h, 7d, 4w, 1y, or never to end."
        ),
    ] = "never",
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="For the log and the list.")
    ] = "",
) -> Any:
    """Let a client, a user or an address in no more, and end its connections.

    It is answered with CONNACK 5. Bans outlive restarts and hold on all nodes of a cluster.

    \b
    Examples:
      vmq ban add --client lamp-17 --for 12h --reason 'floods'
      vmq ban add --address 192.0.2.0/24
    """
    if read_as := months(span):
        raise UsageError(f"--for: {read_as}; accepted: one of these two")
    try:
        seconds = parse_duration(span)
    except ValueError as error:
        raise UsageError(f"--for: {error}") from None
    return ask.post(
        "/ban", client_id=client, user=user, address=address, seconds=seconds, reason=reason
    )


@app.command("remove")
@asking()
def remove(
    ask: AdminClient, client: ClientOption = "", user: UserOption = "", address: AddressOption = ""
) -> Any:
    """End a ban; say it as it was added."""
    return ask.delete("/ban", client_id=client, user=user, address=address)

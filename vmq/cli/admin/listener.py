"""`vmq listener`: the listeners of a running broker."""

from typing import Annotated, Any, Final

import typer

from vmq.cli.admin.asking import asking, listing
from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.rows import Columns

app = typer.Typer(
    help="List, open and close the listeners of a running broker.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

COLUMNS: Final = Columns(
    ("name", "status", "url", "connections", "mountpoint", "allow_anonymous"),
    if_any=("mountpoint",),
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help=r"As in \[listeners.NAME].")]


@app.command("list")
@listing(COLUMNS, limit=0)
def list_listeners(ask: AdminClient) -> Any:
    """List the listeners of the configuration, and whether they run.

    \b
    {columns}
    """
    return ask.get("/listeners")


@app.command("start")
@asking()
def start(ask: AdminClient, name: NameArgument) -> Any:
    """Open a listener that was stopped."""
    return ask.post("/listener/start", name=name)


@app.command("stop")
@asking()
def stop(ask: AdminClient, name: NameArgument) -> Any:
    """Close a listener: nobody new gets in there, who is connected stays."""
    return ask.post("/listener/stop", name=name)

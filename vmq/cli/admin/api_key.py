"""`vmq api-key`: who may use the HTTP API."""

from typing import Annotated, Any, Final

import typer

from vmq.cli.admin.asking import asking, listing
from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.rows import Columns

app = typer.Typer(
    help="Make, list and delete the keys of the HTTP API.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

COLUMNS: Final = Columns(("id", "name", "scope", "created_at"))


@app.command("create")
@asking()
def create(
    ask: AdminClient,
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="Whose key it is.")] = "",
    read_only: Annotated[
        bool, typer.Option("--read-only", help="It may look, and change nothing.")
    ] = False,
) -> Any:
    """Make a key. It is shown this once: the data directory holds a hash of it."""
    return ask.post("/api-key", name=name, scope="read" if read_only else "all")


@app.command("list")
@listing(COLUMNS, limit=0)
def list_keys(ask: AdminClient) -> Any:
    """List the keys, by id and name.

    \b
    {columns}
    """
    return ask.get("/api-keys")


@app.command("delete")
@asking()
def delete(
    ask: AdminClient,
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id, as the list shows it.")],
) -> Any:
    """Delete a key: whoever uses it is refused from now on."""
    return ask.delete("/api-key", id=key_id)

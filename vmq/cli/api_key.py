"""`vmq api-key`: who may use the HTTP API."""

from typing import Annotated, Final

import typer

from vmq.cli.admin_client import AdminClient
from vmq.cli.rows import JsonOption, show_one, show_rows
from vmq.cli.settings import ConfigOption, DataDirOption

app = typer.Typer(
    help="Make, list and delete the keys of the HTTP API.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_COLUMNS: Final = ("id", "name", "created_at")


@app.command("create")
def create(
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="Whose key it is.")] = "",
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Make a key. It is shown this once: the data directory holds a hash of it."""
    show_one(AdminClient(config, data_dir).post("/api-key", name=name), as_json=as_json)


@app.command("list")
def list_keys(
    as_json: JsonOption = False, config: ConfigOption = None, data_dir: DataDirOption = None
) -> None:
    """List the keys, by id and name."""
    answer = AdminClient(config, data_dir).get("/api-keys", limit=0)
    show_rows(answer, _COLUMNS, as_json=as_json)


@app.command("delete")
def delete(
    key_id: Annotated[str, typer.Argument(metavar="ID", help="The id, as the list shows it.")],
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Delete a key: whoever uses it is refused from now on."""
    show_one(AdminClient(config, data_dir).delete("/api-key", id=key_id), as_json=as_json)

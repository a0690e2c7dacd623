"""`vmq listener`: the listeners of a running broker."""

from typing import Annotated, Final

import typer

from vmq.cli.admin_client import AdminClient
from vmq.cli.rows import JsonOption, show_one, show_rows
from vmq.cli.settings import ConfigOption, DataDirOption

app = typer.Typer(
    help="List, open and close the listeners of a running broker.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_COLUMNS: Final = ("name", "status", "url", "connections", "allow_anonymous")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As in [listeners.NAME].")]


@app.command("list")
def list_listeners(
    as_json: JsonOption = False, config: ConfigOption = None, data_dir: DataDirOption = None
) -> None:
    """List the listeners of the configuration, and whether they run."""
    answer = AdminClient(config, data_dir).get("/listeners", limit=0)
    show_rows(answer, _COLUMNS, as_json=as_json)


@app.command("start")
def start(
    name: NameArgument,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Open a listener that was stopped."""
    show_one(AdminClient(config, data_dir).post("/listener/start", name=name), as_json=as_json)


@app.command("stop")
def stop(
    name: NameArgument,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Close a listener: nobody new gets in there, who is connected stays."""
    show_one(AdminClient(config, data_dir).post("/listener/stop", name=name), as_json=as_json)

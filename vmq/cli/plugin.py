"""`vmq plugin`: the plugins of a running broker, and the beginning of a new one."""

from pathlib import Path
from typing import Annotated, Final

import typer

from vmq.cli.admin_client import AdminClient
from vmq.cli.console import CliError
from vmq.cli.plugin_project import ProjectError, write_project
from vmq.cli.rows import JsonOption, show_one, show_rows
from vmq.cli.settings import ConfigOption, DataDirOption

app = typer.Typer(
    help="List, enable, disable and reload the plugins of a running broker; begin a new one.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_COLUMNS: Final = ("name", "status", "priority", "breaker", "errors", "timeouts", "hooks")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As in [plugins.NAME].")]


@app.command("list")
def list_plugins(
    as_json: JsonOption = False, config: ConfigOption = None, data_dir: DataDirOption = None
) -> None:
    """List the plugins, those that run in the order in which they are asked."""
    answer = AdminClient(config, data_dir).get("/plugins", limit=0)
    show_rows(answer, _COLUMNS, as_json=as_json)


@app.command("enable")
def enable(
    name: NameArgument,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Load and start a plugin, until the broker stops.

    For good, change the configuration file as well.
    """
    show_one(AdminClient(config, data_dir).post("/plugin/enable", name=name), as_json=as_json)


@app.command("disable")
def disable(
    name: NameArgument,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Stop a plugin: its hooks are not called any more.

    What it alone has forbidden is allowed then: publishing and subscribing
    are free where no plugin is asked.
    """
    show_one(AdminClient(config, data_dir).post("/plugin/disable", name=name), as_json=as_json)


@app.command("reload")
def reload(
    name: NameArgument,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Start a plugin's code as it is now, in place of what runs.

    If it cannot be loaded or started, the old code goes on. No connection is
    dropped either way.
    """
    show_one(AdminClient(config, data_dir).post("/plugin/reload", name=name), as_json=as_json)


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Lower-case, as in rooms.")],
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="DIR", help="Where to; ./vmq-NAME if left out."),
    ] = None,
) -> None:
    """Write a project for a plugin: package, typed options, test, README.

    \b
    Example:
      vmq plugin new rooms
      cd vmq-rooms && pip install -e '.[test]' && pytest
    """
    try:
        written = write_project(name, folder)
    except ProjectError as problem:
        raise CliError(str(problem)) from None
    for path in written:
        print(path)

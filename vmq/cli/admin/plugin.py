"""`vmq plugin`: the plugins of a running broker, and the beginning of a new one."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from vmq.cli.admin.asking import asking, listing
from vmq.cli.admin.client import AdminClient
from vmq.cli.admin.plugin_project import ProjectError, write_project
from vmq.cli.terminal.console import CliError
from vmq.cli.terminal.rows import Columns

app = typer.Typer(
    help="List, enable, disable and reload the plugins of a running broker; begin a new one.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

COLUMNS: Final = Columns(
    ("name", "status", "priority", "source", "breaker", "errors", "timeouts", "hooks")
)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As in [plugins.NAME].")]


@app.command("list")
@listing(COLUMNS, limit=0)
def list_plugins(ask: AdminClient) -> Any:
    """List the plugins, those that run in the order in which they are asked.

    \b
    {columns}
    """
    return ask.get("/plugins")


@app.command("enable")
@asking()
def enable(ask: AdminClient, name: NameArgument) -> Any:
    """Load and start a plugin, until the broker stops.

    For good, change the configuration file as well.
    """
    return ask.post("/plugin/enable", name=name)


@app.command("disable")
@asking()
def disable(ask: AdminClient, name: NameArgument) -> Any:
    """Stop a plugin: its hooks are not called any more.

    What it alone has forbidden is allowed then: publishing and subscribing
    are free where no plugin is asked. `opened` says so.
    """
    return ask.post("/plugin/disable", name=name)


@app.command("reload")
@asking()
def reload(
    ask: AdminClient,
    name: NameArgument,
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Also if the new code serves an auth hook no more that the old one serves.",
        ),
    ] = False,
) -> Any:
    """Start a plugin's code as it is now, in place of what runs.

    If it cannot be loaded or started, or has lost an auth hook, the old code
    goes on. No connection is dropped either way.
    """
    return ask.post("/plugin/reload", name=name, force=force)


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

"""`vmq plugin`: the plugins of a running broker, and the beginning of a new one."""

import time
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from vmq.cli.admin.asking import asking, listing
from vmq.cli.admin.client import AdminClient
from vmq.cli.admin.plugin_project import ProjectError, write_project
from vmq.cli.terminal.console import CliError, UsageError
from vmq.cli.terminal.rows import Columns

app = typer.Typer(
    help="List, enable, disable and reload the plugins of a running broker; begin a new one.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

COLUMNS: Final = Columns(
    ("name", "status", "priority", "source", "breaker", "errors", "timeouts", "hooks", "problem"),
    if_any=("problem",),
)

#: What tells one difference of `--shadow` from another.
DIFFERENCE: Final = ("hook", "user", "client_id", "about", "old", "new")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help=r"As in \[plugins.NAME].")]


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
@asking(is_no=lambda answer: bool(answer.get("differing") or answer.get("failures")))
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
    shadow: Annotated[
        float | None,
        typer.Option(
            "--shadow",
            metavar="SECONDS",
            min=0.1,
            max=86_400,
            help="Try it first: ask it what the old code is asked, for so long, without effect.",
        ),
    ] = None,
    commit: Annotated[
        bool, typer.Option("--commit", help="Start the very code that was tried.")
    ] = False,
) -> Any:
    """Start a plugin's code as it is now, in place of what runs.

    If it cannot be loaded or started, or has lost an auth hook, the old code
    goes on. No connection is dropped either way.

    With --shadow the new code runs beside the old on live traffic: what it
    answers is compared and dropped, and what it would publish or disconnect is
    not done. Each answer that differs is listed, and --commit then swaps the
    two. Exits with 1 if an answer differed or the new code failed.

    \b
    Examples:
      vmq plugin reload rooms
      vmq plugin reload rooms --shadow 60 && vmq plugin reload rooms --commit
    """
    if shadow is None:
        return ask.post("/plugin/reload", name=name, force=force, commit=commit)
    if commit:
        raise UsageError("--commit comes after --shadow, in a command of its own")
    return _try(ask, name, shadow)


def _try(ask: AdminClient, name: str, seconds: float) -> Any:
    """Tries new code for a while and tells of differences as they come; gives the sum."""
    report = ask.post("/plugin/shadow", name=name, seconds=seconds)
    told: dict[tuple[str, ...], int] = {}
    while True:
        for each in report["differences"]:
            key = tuple(each[column] for column in DIFFERENCE)
            if key not in told:
                told[key] = 1
                who = " ".join(filter(None, (each["client_id"], each["about"])))
                print(f"{each['hook']} {who}: {each['old']} -> {each['new']}", flush=True)
        if not report["running"]:
            break
        time.sleep(min(1.0, seconds))
        report = ask.get("/plugin/shadow", name=name)
    return {key: report[key] for key in ("name", "asked", "differing", "left_out", "failures")}


@app.command("dev")
def dev(
    path: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="The plugin's file, or the folder of its package."),
    ],
    listen: Annotated[
        list[str] | None,
        typer.Option("--listen", metavar="URL", help="Where clients connect."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="An option of the plugin, in TOML."),
    ] = None,
) -> int:
    """Run a throw-away broker with one plugin, and take up its code whenever it is saved.

    Shows each call of its hooks with the verdict and the time it took, what the
    plugin prints and logs, and tracebacks. Code that does not load or start
    leaves that of before in service. Nothing is kept when it ends.

    \b
    Examples:
      vmq plugin dev rooms.py --option 'news = "n/"'
      vmq sub -u kitchen -P salt -t 'kitchen/#' -L mqtt://127.0.0.1:1883
    """
    import asyncio

    from vmq.cli.start import logs
    from vmq.config.sources import ConfigError
    from vmq.runtime.errors import StartError

    if not path.exists():
        raise CliError(f"{path}: there is no such file or folder")
    name = path.resolve().stem
    logs.configure("info")

    async def serve() -> int:
        from vmq.cli.admin.plugin_dev import Workbench

        urls = listen or ["tcp://127.0.0.1:1883"]
        return await Workbench(path, name, _options(option or []), urls).run()

    try:
        return asyncio.run(serve())
    except (ConfigError, StartError) as problem:
        raise CliError(str(problem)) from None


def _options(texts: list[str]) -> dict[str, Any]:
    """Options of a plugin as the command line has them."""
    import tomllib

    try:
        return tomllib.loads("\n".join(texts))
    except tomllib.TOMLDecodeError as problem:
        raise UsageError(f"--option: not TOML, as in 'news = \"n/\"': {problem}") from None


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
      cd vmq-rooms && pip install -e '.\\[test]' && python -m pytest
    """
    try:
        written = write_project(name, folder)
    except ProjectError as problem:
        raise CliError(str(problem)) from None
    for path in written:
        print(path)

"""The `vmq` command: its subcommands, and the one place where errors become text and exit codes."""

import sys
from collections.abc import Sequence
from typing import Annotated, Final, NoReturn

import typer

from vmq import __version__
from vmq.cli import (
    admin,
    api_key,
    bench,
    cluster,
    config,
    demo,
    health,
    listener,
    passwd,
    plugin,
    pub,
    queue,
    retain,
    session,
    spark,
    start,
    store,
    stream,
    sub,
    trace_client,
    why,
    worker,
)
from vmq.cli.console import CliError, error

# Interrupted from the keyboard: what a shell expects, 128 + SIGINT.
_INTERRUPTED: Final = 130

app = typer.Typer(
    name="vmq",
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _show_version(value: bool) -> None:
    if value:
        print(f"vmq {__version__}")
        raise typer.Exit


@app.callback()
def _vmq(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """vmq, an MQTT broker, and the tools around it.

    \b
    Start a broker on this machine, then talk through it:
      vmq start
      vmq sub -v -t 'sensors/#'
      vmq pub -t sensors/kitchen -m 21.5

    Each command has its own help: [bold]vmq pub --help[/bold]
    """


app.command("start")(start.start)
app.command("worker", hidden=True)(worker.worker)
app.command("pub")(pub.pub)
app.command("sub")(sub.sub)
app.add_typer(session.app, name="session")
app.add_typer(queue.app, name="queue")
app.add_typer(retain.app, name="retain")
app.add_typer(listener.app, name="listener")
app.add_typer(plugin.app, name="plugin")
app.add_typer(trace_client.app, name="trace")
app.command("metrics")(admin.metrics)
app.command("set")(admin.set_option)
app.command("why")(why.why)
app.add_typer(api_key.app, name="api-key")
app.command("bench")(bench.bench)
app.command("demo")(demo.demo)
app.command("health")(health.health)
app.add_typer(cluster.app, name="cluster")
app.add_typer(config.app, name="config")
app.add_typer(store.app, name="store")
app.add_typer(passwd.app, name="passwd")
app.add_typer(stream.app, name="stream")
app.add_typer(spark.app, name="spark")


def main(arguments: Sequence[str]) -> int:
    """Run one command line (without the program's name) and return its exit code."""
    try:
        result: object = app(list(arguments), prog_name="vmq", standalone_mode=False)
    except typer.TyperException as problem:
        # Without a text: no arguments were given, and the help has been shown.
        if problem.format_message():
            error(_usage_text(problem))
        return problem.exit_code
    except CliError as problem:
        error(str(problem))
        return problem.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    return result if isinstance(result, int) else 0


def _usage_text(problem: typer.TyperException) -> str:
    """One line that says what is wrong and where to read on."""
    text = " ".join(problem.format_message().split())
    context = getattr(problem, "ctx", None)
    command = getattr(context, "command_path", "vmq")
    return f"{text.rstrip('.')} (see {command} --help)"


def run() -> NoReturn:
    """The entry point of the `vmq` program."""
    sys.exit(main(sys.argv[1:]))

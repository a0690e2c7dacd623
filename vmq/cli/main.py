"""The `vmq` command: its subcommands, and the one place where errors become text and exit codes."""

import errno
import os
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Annotated, Final, NoReturn

import typer

from vmq.cli.memory import collect_rarely
from vmq.cli.terminal.console import FAILURE, CliError, error, nobody_reads
from vmq.version import __version__

# Interrupted from the keyboard: what a shell expects, 128 + SIGINT.
_INTERRUPTED: Final = 130
#: What stdout cannot take for want of room.
_NOT_WRITTEN: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

#: The commands by the panel of the help that they stand in: a function, or the `app` of several, and its module.
#: Only that of the command that was called is imported: all of them take as long as the interpreter and Typer together.
PANELS: Final = {
    "Run a broker": {
        "start": "start.start:start",
        "config": "config:app",
        "passwd": "passwd:app",
        "health": "health:health",
        "store": "data.store:app",
    },
    "Talk MQTT": {
        "pub": "mqtt.pub:pub",
        "sub": "mqtt.sub:sub",
        "bench": "bench:bench",
        "demo": "demo.command:demo",
    },
    "Look into a running broker": {
        "open": "admin.page:open_page",
        "top": "top.top:top",
        "session": "admin.session:app",
        "queue": "admin.queue:app",
        "jobs": "admin.jobs:app",
        "map": "admin.mapping:app",
        "retain": "admin.retain:app",
        "why": "admin.why:why",
        "trace": "admin.trace:app",
        "metrics": "admin.admin:metrics",
    },
    "Change a running broker": {
        "set": "admin.admin:set_option",
        "ban": "admin.ban:app",
        "listener": "admin.listener:app",
        "plugin": "admin.plugin:app",
        "api-key": "admin.api_key:app",
        "cluster": "admin.cluster:app",
    },
    "Streams and Spark": {
        "stream": "data.stream:app",
        "group": "admin.group:app",
        "sql": "data.sql:sql",
        "spark": "spark:app",
    },
}
COMMANDS: Final = {name: place for commands in PANELS.values() for name, place in commands.items()}
_PANEL_OF: Final = {name: panel for panel, commands in PANELS.items() for name in commands}


def _show_version(value: bool) -> None:
    if value:
        print(f"vmq {__version__}")
        raise typer.Exit


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


def app_of(commands: Iterable[str]) -> typer.Typer:
    """The program with these commands, of `COMMANDS`."""
    app = typer.Typer(
        name="vmq",
        rich_markup_mode="rich",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(_vmq)
    for name in commands:
        module, _, attribute = COMMANDS[name].partition(":")
        found = getattr(import_module(f"vmq.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, rich_help_panel=_PANEL_OF[name])
        else:
            app.command(name, rich_help_panel=_PANEL_OF[name])(found)
    return app


def _called_by(arguments: Sequence[str]) -> Iterable[str]:
    """The commands that a command line needs: its own; or all, for the help and to say which may have been meant."""
    first = arguments[0] if arguments else ""
    if first == "--version":
        return ()
    return (first,) if first in COMMANDS else COMMANDS


def _numbers_last(arguments: Sequence[str]) -> list[str]:
    """The words of `vmq set OPTION -1 ...` with numbers below 0 where no options are looked for.

    The parser takes each word with a dash for an option; no option of the program is a number.
    """
    if arguments[:1] != ["set"] or "--" in arguments:
        return list(arguments)
    numbers = [each for each in arguments if re.fullmatch(r"-[0-9][0-9.eE+-]*", each)]
    if not numbers:
        return list(arguments)
    return [*(each for each in arguments if each not in numbers), "--", *numbers]


def main(arguments: Sequence[str]) -> int:
    """Run one command line (without the program's name) and return its exit code."""
    try:
        app = app_of(_called_by(arguments))
        result: object = app(_numbers_last(list(arguments)), prog_name="vmq", standalone_mode=False)
        sys.stdout.flush()
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
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # Typer's own end of a broken pipe is 1
            return nobody_reads()
        raise
    except BrokenPipeError:
        return nobody_reads()
    except OSError as problem:
        if problem.errno not in _NOT_WRITTEN or problem.filename is not None:
            raise
        error(f"cannot write: {problem.strerror}")
        nobody_reads()
        return FAILURE
    return result if isinstance(result, int) else 0


def _usage_text(problem: typer.TyperException) -> str:
    """One line that says what is wrong and where to read on."""
    text = " ".join(problem.format_message().split())
    context = getattr(problem, "ctx", None)
    command = getattr(context, "command_path", "vmq")
    return f"{text.rstrip('.')} (see {command} --help)"


def run() -> NoReturn:
    """The entry point of the `vmq` program."""
    collect_rarely()  # what a program loads it keeps
    if sys.stdout is None:  # its descriptor was closed
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
    sys.exit(main(sys.argv[1:]))

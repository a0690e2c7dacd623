"""How commands speak to the user: errors, warnings and tables.

Only this module knows about colours: they appear on a terminal, and never where NO_COLOR is set.
"""

import os
import sys
from collections.abc import Iterable
from typing import Final, TextIO

# Exit codes. A wrong option and a wrong configuration are the user's; the rest is the run's.
FAILURE: Final = 1
USAGE: Final = 2
# Of a program whose reader went away: 128 + SIGPIPE.
NO_READER: Final = 141

_RED: Final = "31"
_YELLOW: Final = "33"
# Wide enough that a table in a pipe never wraps: programs read it line by line.
_PIPE_WIDTH: Final = 1000


class CliError(Exception):
    """Ends the command: the text goes to stderr, one error a line, without a traceback."""

    def __init__(self, message: str, exit_code: int = FAILURE) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class UsageError(CliError):
    """The command line makes no sense."""

    def __init__(self, message: str) -> None:
        super().__init__(message, USAGE)


def is_terminal(stream: TextIO) -> bool:
    """Whether a person looks at the stream, as far as one can tell; a closed stream is none."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def has_colour(stream: TextIO) -> bool:
    """Whether the stream may get colours."""
    return (
        is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def painted(text: str, style: str) -> str:
    """Text for stdout in a style of the terminal (ANSI, as in "2" for faint), if it may have any."""
    return f"\x1b[{style}m{text}\x1b[0m" if has_colour(sys.stdout) else text


def nobody_reads() -> int:
    """The exit code, once stdout is a broken pipe: the interpreter's own flush at exit complains no more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return NO_READER


def error(message: str) -> None:
    """Print each line of the message as an error."""
    for line in message.splitlines() or [""]:
        _say("error", _RED, line)


def warning(message: str) -> None:
    """Print what the user should know although the command goes on."""
    _say("warning", _YELLOW, message)


def _say(kind: str, colour: str, message: str) -> None:
    label = f"\x1b[1;{colour}m{kind}:\x1b[0m" if has_colour(sys.stderr) else f"{kind}:"
    try:
        # What the user typed may hold bytes that are no text.
        print(
            f"vmq: {label} {message}".encode(errors="replace").decode(), file=sys.stderr, flush=True
        )
    except (OSError, ValueError):
        pass  # nobody listens on stderr: the exit code must do


def table(headers: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Print a table on stdout; in a pipe, aligned columns without frames, one row a line."""
    from rich import box
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    on_terminal = is_terminal(sys.stdout)
    grid = Table(
        box=box.SIMPLE if on_terminal else None,
        pad_edge=False,
        show_edge=False,
        # Two blanks part the columns: a cell may hold single ones ("load generator").
        padding=(0, 1) if on_terminal else (0, 2, 0, 0),
        collapse_padding=on_terminal,
        header_style="bold" if on_terminal else "",
    )
    for header in headers:
        # Values fold where there is no room; the names of the columns never do.
        grid.add_column(
            header, overflow="fold", no_wrap=not on_terminal, min_width=cell_len(header)
        )
    for row in rows:
        # Text, not str: brackets in a value are no markup.
        grid.add_row(*(Text(cell) for cell in row))
    Console(width=None if on_terminal else _PIPE_WIDTH, highlight=False).print(grid)

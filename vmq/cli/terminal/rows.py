"""What the commands that ask a broker print: tables for people, JSON for programs.

A table in a pipe has the same columns without frames. What clients chose themselves (ids, topics, payloads) is shown
with its control characters escaped, so that it can neither end a row nor steer the terminal.
"""

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, NamedTuple

import typer

from vmq.cli.terminal.console import UsageError, table, warning

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

#: Those of them that JSON does not escape; line feeds stand between its values.
_IN_JSON: Final = re.compile(r"[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

_SELECT: Final = "Selection"

JsonOption = Annotated[bool, typer.Option("--json", help="JSON instead of a table.")]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where",
        metavar="FILTER",
        help="""Only rows for which this holds, as in 'size > 100 and topic ~ "^dev"': columns, numbers, "texts", """
        "= != < <= > >=, ~ and !~ for patterns, and, or, not, ( ).",
        rich_help_panel=_SELECT,
    ),
]
SortOption = Annotated[
    str | None,
    typer.Option(
        "--sort",
        metavar="COLUMNS",
        help="Order by columns, as in -size,topic (- is descending).",
        rich_help_panel=_SELECT,
    ),
]
LimitOption = Annotated[
    int,
    typer.Option(
        "--limit", metavar="N", min=0, help="At most N rows; 0 = all.", rich_help_panel=_SELECT
    ),
]
OffsetOption = Annotated[
    int,
    typer.Option(
        "--offset", metavar="N", min=0, help="Leave out N rows first.", rich_help_panel=_SELECT
    ),
]
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="COLUMNS",
        help="Show these columns, as in client_id,user; all = every one.",
        rich_help_panel=_SELECT,
    ),
]


class Columns(NamedTuple):
    """The columns of a listing."""

    #: Shown unless --columns says otherwise; one of `if_any` only if a row has something there.
    shown: Sequence[str]
    further: Sequence[str] = ()
    if_any: Sequence[str] = ()
    #: Nobody chose them.
    is_default: bool = True

    @property
    def every(self) -> tuple[str, ...]:
        """All that there are."""
        return (*self.shown, *self.further)

    def described(self) -> str:
        """For a help text: their names, in lines that fit a terminal."""
        return textwrap.fill("Columns: " + " ".join(self.every), 74).replace("\n", "\n    ")

    def choose(self, text: str | None) -> "Columns":
        """What --columns asks for; None = the shown ones.

        Raises:
            UsageError: it names what is no column, or nothing.
        """
        if text is None:
            return self
        if text == "all":
            return Columns(self.every, is_default=False)
        names = [name.strip() for name in text.split(",") if name.strip()]
        wrong = [name for name in names if name not in self.every]
        if wrong or not names:
            what = f"there is no column {wrong[0]!r}" if wrong else "no column is named"
            raise UsageError(f"--columns: {what}; accepted: all, {', '.join(self.every)}")
        return Columns(names, is_default=False)


def show_rows(answer: Mapping[str, Any], columns: Columns, *, as_json: bool) -> None:
    """Print the rows of a listing, and say so on stderr if the limit left some out, or some node did not answer."""
    rows: list[dict[str, Any]] = answer["rows"]
    if as_json:
        # Programs get every column, unless somebody chose.
        if not columns.is_default:
            rows = [{name: row[name] for name in columns.shown} for row in rows]
        print_json(rows)
    else:
        names = [
            name
            for name in columns.shown
            if name not in columns.if_any or any(row[name] for row in rows)
        ]
        table(names, [[cell(row[name]) for name in names] for row in rows])
    if answer.get("more"):
        warning(f"there are more rows than these {len(rows)} (--limit 0 shows all)")
    warn_of_missing(answer)


def warn_of_missing(answer: Mapping[str, Any]) -> None:
    """Say so on stderr if some node did not answer."""
    missing = answer.get("missing")
    if missing:
        warning(
            f"what these nodes have is not among the rows: {', '.join(missing)}"
            " (the broker's log says why one did not answer)"
        )


def print_json(value: object) -> None:
    """Print a value for programs."""
    print(json_text(value, indent=2))


def json_text(value: object, indent: int | None = None) -> str:
    """A value as JSON, with the control characters escaped that JSON itself lets stand as they are."""
    return json_clean(json.dumps(value, indent=indent, ensure_ascii=False))


def json_clean(text: str) -> str:
    """JSON with all control characters of its texts escaped, as JSON does; it says the same."""
    return _IN_JSON.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def show_one(thing: Mapping[str, Any]) -> None:
    """Print one thing: a line for each of its properties, then a table for each list that it holds."""
    lists = {name: value for name, value in thing.items() if isinstance(value, list)}
    table(
        ("property", "value"),
        [(name, cell(value)) for name, value in thing.items() if name not in lists],
    )
    for name, rows in lists.items():
        print()
        if rows and not isinstance(rows[0], Mapping):
            table((name,), [(cell(each),) for each in rows])
        elif rows:
            table(rows[0], [[cell(value) for value in row.values()] for row in rows])
        else:
            print(f"{name}: none")


def cell(value: object) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 1e5 or value == int(value) else f"{value:g}"
    if isinstance(value, list):
        return ", ".join(map(cell, value)) or "-"
    if isinstance(value, Mapping):
        return ", ".join(f"{cell(name)}: {cell(each)}" for name, each in value.items()) or "-"
    return clean(str(value)) or '""'


def clean(text: str) -> str:
    """Text with its control characters escaped."""
    return _CONTROLS.sub(lambda match: match.group().encode("unicode_escape").decode(), text)

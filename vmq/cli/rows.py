"""What the commands that ask a broker print: tables for people, JSON for programs.

A table in a pipe has the same columns without frames. What clients chose themselves (ids, topics, payloads) is shown
with its control characters escaped, so that it can neither end a row nor steer the terminal.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from vmq.cli.console import UsageError, table, warning

_CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

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
ColumnsOption = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="COLUMNS",
        help="Show these columns, as in client_id,user; all = every one.",
        rich_help_panel=_SELECT,
    ),
]


def show_rows(
    answer: Mapping[str, Any],
    columns: Sequence[str],
    *,
    as_json: bool,
    chosen: str | None = None,
) -> None:
    """Print the rows of a listing, and say so on stderr if the limit left some out."""
    rows: list[dict[str, Any]] = answer["rows"]
    if chosen == "all":
        columns = list(rows[0]) if rows else columns
    elif chosen is not None:
        columns = [name.strip() for name in chosen.split(",") if name.strip()]
        for name in columns:
            if rows and name not in rows[0]:
                raise UsageError(f"there is no column {name!r}; accepted: {', '.join(rows[0])}")
    if as_json:
        if chosen is not None:
            rows = [{name: row[name] for name in columns} for row in rows]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
    else:
        table(columns, [[cell(row.get(name)) for name in columns] for row in rows])
    if answer.get("more"):
        warning("there are more rows (--limit 0 shows all)")


def show_one(row: Mapping[str, Any], *, as_json: bool, leave_out: Sequence[str] = ()) -> None:
    """Print one thing: a line for each of its properties."""
    if as_json:
        print(json.dumps(row, indent=2, ensure_ascii=False))
        return
    kept = [(name, cell(value)) for name, value in row.items() if name not in leave_out]
    table(("property", "value"), kept)


def cell(value: object) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.0f}" if value == int(value) else f"{value:g}"
    return clean(str(value))


def clean(text: str) -> str:
    """Text with its control characters escaped."""
    return _CONTROLS.sub(lambda match: match.group().encode("unicode_escape").decode(), text)

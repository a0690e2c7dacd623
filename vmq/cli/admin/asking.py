"""Commands that ask a running broker: the options they share, and how their answers are shown.

`asking` and `listing` add those options to a command, so that each states only what is its own.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import typer

from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.console import FAILURE
from vmq.cli.terminal.rows import (
    Columns,
    ColumnsOption,
    JsonOption,
    LimitOption,
    OffsetOption,
    SortOption,
    WhereOption,
    print_json,
    show_one,
    show_rows,
)
from vmq.cli.terminal.settings import ConfigOption, DataDirOption
from vmq.cli.terminal.signature import Command, Options, with_options

P = ParamSpec("P")

#: A command as it is written: it gets the client, and gives the answer of the broker.
Ask = Callable[Concatenate[AdminClient, P], Any]

ClientArgument = Annotated[str, typer.Argument(metavar="CLIENT", help="The client id.")]
MountpointOption = Annotated[
    str,
    typer.Option(
        "--mountpoint",
        metavar="NAME",
        help="The topic tree, as listeners name it.",
        show_default="the default one",
    ),
]
AnyMountpointOption = Annotated[
    str | None,
    typer.Option(
        "--mountpoint", metavar="NAME", help='This topic tree only; "" is the default one.'
    ),
]
BytesOption = Annotated[
    int,
    typer.Option(
        "--bytes", metavar="N", min=0, help="Show at most N bytes of a payload; 0 = all of it."
    ),
]


_ID_LENGTH: Final = 40
_WHERE_IT_RUNS: Final[Options] = {
    "config": (ConfigOption, None),
    "data_dir": (DataDirOption, None),
}


def asking(
    show: Callable[[Mapping[str, Any]], None] = show_one,
    is_no: Callable[[Mapping[str, Any]], bool] = lambda _answer: False,
) -> Callable[[Ask[P]], Command]:
    """A command that asks a broker for one thing and prints it: as JSON, or by `show`.

    Where the answer `is_no`, the exit code is that of a failure.
    """

    def decorate(command: Ask[P]) -> Command:
        work: Callable[..., Any] = command  # its options come by name

        def run(*, as_json: bool, config: Path | None, data_dir: str | None, **own: Any) -> None:
            answer = work(AdminClient(config, data_dir), **own)
            if as_json:
                print_json(answer)
            else:
                show(answer)
            if is_no(answer):
                raise typer.Exit(FAILURE)

        return with_options(run, command, {"as_json": (JsonOption, False), **_WHERE_IT_RUNS})

    return decorate


def listing(columns: Columns, limit: int = 100) -> Callable[[Ask[P]], Command]:
    """A command that asks a broker for rows, of which its options choose, and prints them.

    Args:
        columns: what there is to show. "{columns}" in the help text stands for their names.
        limit: how many rows are shown unless --limit says otherwise; 0 = all.
    """

    def decorate(command: Ask[P]) -> Command:
        work: Callable[..., Any] = command  # its options come by name

        def run(
            *,
            where: str | None,
            sort: str | None,
            limit: int,
            offset: int,
            chosen: str | None,
            as_json: bool,
            config: Path | None,
            data_dir: str | None,
            **own: Any,
        ) -> None:
            names = columns.choose(chosen)
            selection = {"where": where, "sort": sort, "limit": limit, "offset": offset}
            client = AdminClient(config, data_dir, selection)
            show_rows(work(client, **own), names, as_json=as_json)

        shared: Options = {
            "where": (WhereOption, None),
            "sort": (SortOption, None),
            "limit": (LimitOption, limit),
            "offset": (OffsetOption, 0),
            "chosen": (ColumnsOption, None),
            "as_json": (JsonOption, False),
        }
        done = with_options(run, command, dict(shared) | dict(_WHERE_IT_RUNS))
        done.__doc__ = (command.__doc__ or "").replace("{columns}", columns.described())
        return done

    return decorate


def is_job_id(text: str) -> bool:
    """Whether this is the id of a job, and no name of a queue or client."""
    return len(text) == _ID_LENGTH and text.startswith("D-")

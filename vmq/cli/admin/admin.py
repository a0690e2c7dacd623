"""`vmq metrics` and `vmq set`: figures and options of a running broker."""

from typing import Annotated, Any, Final

import typer

from vmq.cli.admin.asking import listing
from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.console import UsageError
from vmq.cli.terminal.rows import Columns, JsonOption, WhereOption, print_json, show_one, show_rows
from vmq.cli.terminal.settings import ConfigOption, DataDirOption, tell_months

METRICS: Final = Columns(("name", "value"))
OPTIONS: Final = Columns(("option", "value", "live"), ("configured", "set_at"))
_SET_LIVE: Final = Columns(("option", "value", "configured", "set_at"))


@listing(METRICS, limit=0)
def metrics(ask: AdminClient) -> Any:
    """Show what a running broker has counted.

    \b
    {columns}

    \b
    Examples:
      vmq metrics
      vmq metrics --where 'name ~ "drop" and value > 0'
    """
    return ask.get("/metrics")


def set_option(
    option: Annotated[
        str | None, typer.Argument(metavar="OPTION", help="As in queue.max_online_messages.")
    ] = None,
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="As in the configuration file.")
    ] = None,
    list_live: Annotated[
        bool, typer.Option("--list", help="List what was set live: since when, over which value.")
    ] = False,
    reset: Annotated[
        bool, typer.Option("--reset", help="Have OPTION as configured again.")
    ] = False,
    where: WhereOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Change an option of a running broker.

    What is set holds until the broker stops, or reads another value of that
    option in its configuration (on SIGHUP). For good, change the file.
    Without OPTION: list the options, and which of them may change.

    \b
    Examples:
      vmq set --where 'live and option ~ "queue"'
      vmq set queue.max_offline_messages 5000
      vmq set queue.max_online_messages -1
      vmq set log.level debug
      vmq set listeners.tcp.max_connections 1000
      vmq set --list
      vmq set --reset log.level
    """
    _check(option, value, where, list_live=list_live, reset=reset)
    ask = AdminClient(config, data_dir)
    if option is None:
        where = "set_at != null" if list_live else where
        columns = _SET_LIVE if list_live else OPTIONS
        show_rows(ask.get("/options", where=where, limit=0), columns, as_json=as_json)
    elif reset:
        _show(ask.delete("/option", option=option), as_json=as_json)
    else:
        answer = ask.post("/option", option=option, value=value)
        tell_months(value)
        _show(answer, as_json=as_json)


def _show(answer: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
    else:
        show_one(answer)


def _check(
    option: str | None, value: str | None, where: str | None, *, list_live: bool, reset: bool
) -> None:
    """Raises UsageError where arguments do not go together."""
    if where is not None and (reset or option is not None):
        raise UsageError("--where chooses among the options that are listed: it goes without one")
    if list_live and (reset or where is not None or option is not None):
        raise UsageError("--list goes with nothing else (see vmq set --help)")
    if reset and (option is None or value is not None):
        raise UsageError("--reset wants an OPTION and no VALUE (see vmq set --help)")
    if option is not None and value is None and not reset:
        raise UsageError(f"a value for {option} is missing (see vmq set --help)")

"""`vmq metrics` and `vmq set`: figures and options of a running broker."""

from typing import Annotated, Final

import typer

from vmq.cli.admin_client import AdminClient
from vmq.cli.console import UsageError
from vmq.cli.rows import JsonOption, LimitOption, SortOption, WhereOption, show_one, show_rows
from vmq.cli.settings import ConfigOption, DataDirOption

_METRIC_COLUMNS: Final = ("name", "value")
_OPTION_COLUMNS: Final = ("option", "value", "live")


def metrics(
    where: WhereOption = None,
    sort: SortOption = None,
    limit: LimitOption = 0,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Show what a running broker has counted.

    \b
    Examples:
      vmq metrics
      vmq metrics --where 'name ~ "drop" and value > 0'
    """
    client = AdminClient(config, data_dir)
    answer = client.get("/metrics", where=where, sort=sort, limit=limit)
    show_rows(answer, _METRIC_COLUMNS, as_json=as_json)


def set_option(
    option: Annotated[
        str | None, typer.Argument(metavar="OPTION", help="As in queue.max_online_messages.")
    ] = None,
    value: Annotated[
        str | None, typer.Argument(metavar="VALUE", help="As in the configuration file.")
    ] = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Change an option of a running broker, until it stops or reloads.

    Without OPTION and VALUE: list the options, and which of them may change.
    For good, change the configuration file as well.

    \b
    Examples:
      vmq set
      vmq set queue.max_offline_messages 5000
      vmq set log.level debug
    """
    client = AdminClient(config, data_dir)
    if option is None:
        answer = client.get("/options", limit=0)
        show_rows(answer, _OPTION_COLUMNS, as_json=as_json)
        return
    if value is None:
        raise UsageError(f"a value for {option} is missing (see vmq set --help)")
    show_one(client.post("/option", option=option, value=value), as_json=as_json)

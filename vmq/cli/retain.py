"""`vmq retain`: the retained messages of a running broker."""

from typing import Annotated, Final

import typer

from vmq.cli.admin_client import AdminClient
from vmq.cli.queue import BytesOption
from vmq.cli.rows import (
    ColumnsOption,
    JsonOption,
    LimitOption,
    SortOption,
    WhereOption,
    show_one,
    show_rows,
)
from vmq.cli.settings import ConfigOption, DataDirOption

app = typer.Typer(
    help="List, show and delete retained messages.", no_args_is_help=True, rich_markup_mode="rich"
)

_COLUMNS: Final = ("topic", "qos", "size", "payload")


@app.command("list")
def list_retained(
    topic_filter: Annotated[
        str, typer.Argument(metavar="[FILTER]", help="A topic filter; none = all, $ topics too.")
    ] = "",
    payload_bytes: BytesOption = 64,
    where: WhereOption = None,
    sort: SortOption = None,
    limit: LimitOption = 100,
    columns: ColumnsOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """List the retained messages whose topics a filter matches.

    \b
    Columns: topic qos size payload encoding truncated

    \b
    Examples:
      vmq retain list
      vmq retain list 'sensors/#' --sort -size --limit 10
    """
    answer = AdminClient(config, data_dir).get(
        "/retained",
        filter=topic_filter,
        payload_bytes=payload_bytes,
        where=where,
        sort=sort,
        limit=limit,
    )
    show_rows(answer, _COLUMNS, as_json=as_json, chosen=columns)


@app.command("show")
def show(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    payload_bytes: BytesOption = 0,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Show the retained message of one topic, with all of its payload."""
    client = AdminClient(config, data_dir)
    row = client.get("/retained/message", topic=topic, payload_bytes=payload_bytes)
    show_one(row, as_json=as_json)


@app.command("delete")
def delete(
    topic_filter: Annotated[
        str, typer.Argument(metavar="FILTER", help="A topic, or a filter with + and #.")
    ],
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Delete the retained messages whose topics a filter matches. Subscribers are told nothing."""
    show_one(
        AdminClient(config, data_dir).delete("/retained", filter=topic_filter), as_json=as_json
    )

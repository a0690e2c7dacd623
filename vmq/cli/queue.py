"""`vmq queue`: look into the queues of a running broker."""

from typing import Annotated, Final

import typer

from vmq.cli.admin_client import AdminClient
from vmq.cli.rows import (
    ColumnsOption,
    JsonOption,
    LimitOption,
    SortOption,
    WhereOption,
    show_one,
    show_rows,
)
from vmq.cli.session import ClientArgument
from vmq.cli.settings import ConfigOption, DataDirOption

app = typer.Typer(
    help="Look into a client's queue, or empty it.", no_args_is_help=True, rich_markup_mode="rich"
)

_COLUMNS: Final = ("position", "state", "topic", "qos", "retain", "packet_id", "size", "payload")

BytesOption = Annotated[
    int,
    typer.Option(
        "--bytes", metavar="N", min=0, help="Show at most N bytes of a payload; 0 = all of it."
    ),
]


@app.command("peek")
def peek(
    client_id: ClientArgument,
    payload_bytes: BytesOption = 64,
    where: WhereOption = None,
    sort: SortOption = None,
    limit: LimitOption = 100,
    columns: ColumnsOption = None,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Look into a client's queue without consuming it.

    Messages come in the order in which they will leave. Payloads that are no
    text are shown in hexadecimal.

    \b
    Columns: position state topic qos retain packet_id size payload encoding
    truncated shared

    \b
    Examples:
      vmq queue peek sensor-17
      vmq queue peek sensor-17 --where 'size > 10000' --limit 10
    """
    answer = AdminClient(config, data_dir).get(
        "/queue",
        client_id=client_id,
        payload_bytes=payload_bytes,
        where=where,
        sort=sort,
        limit=limit,
    )
    show_rows(answer, _COLUMNS, as_json=as_json, chosen=columns)


@app.command("purge")
def purge(
    client_id: ClientArgument,
    as_json: JsonOption = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Drop what waits in a client's queue. What was sent to it already stays."""
    show_one(AdminClient(config, data_dir).delete("/queue", client_id=client_id), as_json=as_json)

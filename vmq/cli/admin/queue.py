"""`vmq queue`: look into the queues of a running broker."""

from typing import Any, Final

import typer

from vmq.cli.admin.asking import BytesOption, ClientArgument, MountpointOption, asking, listing
from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.rows import Columns

app = typer.Typer(
    help="Look into a client's queue, or empty it.", no_args_is_help=True, rich_markup_mode="rich"
)

COLUMNS: Final = Columns(
    ("position", "state", "topic", "qos", "retain", "packet_id", "size", "payload"),
    ("encoding", "truncated", "shared"),
)


@app.command("peek")
@listing(COLUMNS)
def peek(
    ask: AdminClient,
    client_id: ClientArgument,
    payload_bytes: BytesOption = 64,
    mountpoint: MountpointOption = "",
) -> Any:
    """Look into a client's queue without consuming it.

    Messages come in the order in which they will leave. Payloads that are no
    text are shown in hexadecimal.

    \b
    {columns}

    \b
    Examples:
      vmq queue peek sensor-17
      vmq queue peek sensor-17 --where 'size > 10000' --limit 10
    """
    return ask.get(
        "/queue", client_id=client_id, mountpoint=mountpoint, payload_bytes=payload_bytes
    )


@app.command("purge")
@asking()
def purge(ask: AdminClient, client_id: ClientArgument, mountpoint: MountpointOption = "") -> Any:
    """Drop what waits in a client's queue. What was sent to it already stays."""
    return ask.delete("/queue", client_id=client_id, mountpoint=mountpoint)

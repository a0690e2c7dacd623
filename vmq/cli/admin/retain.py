"""`vmq retain`: the retained messages of a running broker."""

from typing import Annotated, Any, Final

import typer

from vmq.cli.admin.asking import AnyMountpointOption, BytesOption, MountpointOption, asking, listing
from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.rows import Columns

app = typer.Typer(
    help="List, show and delete retained messages.", no_args_is_help=True, rich_markup_mode="rich"
)

COLUMNS: Final = Columns(
    ("topic", "mountpoint", "qos", "size", "payload"),
    ("encoding", "truncated"),
    if_any=("mountpoint",),
)


@app.command("list")
@listing(COLUMNS)
def list_retained(
    ask: AdminClient,
    topic_filter: Annotated[
        str, typer.Argument(metavar="FILTER", help="A topic filter; none = all, $ topics too.")
    ] = "",
    payload_bytes: BytesOption = 64,
    mountpoint: AnyMountpointOption = None,
) -> Any:
    """List the retained messages whose topics a filter matches.

    \b
    {columns}

    \b
    Examples:
      vmq retain list
      vmq retain list 'sensors/#' --sort -size --limit 10
    """
    return ask.get(
        "/retained", filter=topic_filter, mountpoint=mountpoint, payload_bytes=payload_bytes
    )


@app.command("show")
@asking()
def show(
    ask: AdminClient,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic, without wildcards.")],
    payload_bytes: BytesOption = 0,
    mountpoint: MountpointOption = "",
) -> Any:
    """Show the retained message of one topic, with all of its payload."""
    return ask.get(
        "/retained/message", topic=topic, mountpoint=mountpoint, payload_bytes=payload_bytes
    )


@app.command("delete")
@asking()
def delete(
    ask: AdminClient,
    topic_filter: Annotated[
        str, typer.Argument(metavar="FILTER", help="A topic, or a filter with + and #.")
    ],
    mountpoint: MountpointOption = "",
) -> Any:
    """Delete the retained messages whose topics a filter matches. Subscribers are told nothing."""
    return ask.delete("/retained", filter=topic_filter, mountpoint=mountpoint)

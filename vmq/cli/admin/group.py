"""`vmq group`: consumer groups of streams."""

from typing import Annotated, Any, Final

import typer

from vmq.cli.admin.asking import asking, listing
from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.rows import Columns

app = typer.Typer(
    help="Look at consumer groups of streams, have them begin elsewhere, and delete them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

COLUMNS: Final = Columns(("group", "stream", "filter", "where", "members", "lag"))

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group.")]
StreamOption = Annotated[
    str, typer.Option("--stream", metavar="NAME", help="Where it reads several streams.")
]
TopicOption = Annotated[
    str, typer.Option("--topic", "-t", metavar="FILTER", help="Where it reads several filters.")
]


@app.command("list")
@listing(COLUMNS, limit=0)
def list_groups(ask: AdminClient) -> Any:
    """List the groups that have members, or had some in the last 7 days, with their lag.

    \b
    {columns}
    """
    return ask.get("/groups")


@app.command("show")
@asking()
def show(
    ask: AdminClient, group: GroupArgument, stream: StreamOption = "", topic: TopicOption = ""
) -> Any:
    """Show how far a group is in each partition, and who has it.

    \b
    Example:
      vmq group show billing
    """
    return ask.get("/group", group=group, stream=stream, filter=topic)


@app.command("reset")
@asking()
def reset(
    ask: AdminClient,
    group: GroupArgument,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="earliest, latest, -15m, seconds since 1970, or 2030-01-31T06:00:00Z.",
        ),
    ],
    stream: StreamOption = "",
    topic: TopicOption = "",
) -> Any:
    """Have a group begin elsewhere; it may have no members meanwhile.

    \b
    Example:
      vmq group reset billing --to -1h
    """
    return ask.post("/group/reset", group=group, stream=stream, filter=topic, to=to)


@app.command("delete")
@asking()
def delete(
    ask: AdminClient, group: GroupArgument, stream: StreamOption = "", topic: TopicOption = ""
) -> Any:
    """Delete the place of a group that has no members; the next member begins it anew."""
    return ask.delete("/group", group=group, stream=stream, filter=topic)

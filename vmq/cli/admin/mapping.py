"""`vmq map`: the mappings of a running broker."""

import sys
from base64 import b64encode
from collections.abc import Mapping
from typing import Annotated, Any, Final

import typer

from vmq.cli.admin.asking import asking, listing
from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.rows import Columns

app = typer.Typer(
    help="List and try mappings, and switch them on and off.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

COLUMNS: Final = Columns(
    ("mapping", "enabled", "source", "to", "seen", "sent", "failed", "error"),
    ("where", "mountpoint"),
    if_any=("error",),
)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The mapping.")]


@app.command("list")
@listing(COLUMNS)
def list_mappings(ask: AdminClient) -> Any:
    """List the mappings of the configuration, with what they did.

    \b
    {columns}

    \b
    Example:
      vmq map list --where 'failed>0'
    """
    return ask.get("/mappings")


def _show(answer: Mapping[str, Any]) -> None:
    if answer["error"]:
        print(f"fails: {answer['error']}")
    elif not answer["wanted"]:
        print("is not for this mapping: where is false")
    for each in answer["to"]:
        print(f"{each['target']} {each['payload']}")


@app.command("test")
@asking(_show, lambda answer: bool(answer["error"]))
def try_mapping(
    ask: AdminClient,
    name: NameArgument,
    topic: Annotated[
        str,
        typer.Option("--topic", "-t", help="Of the message; needed where the mapping has many."),
    ] = "",
    qos: Annotated[int, typer.Option("--qos", "-q", min=0, max=2, help="Of the message.")] = 1,
    client_id: Annotated[str, typer.Option("--client-id", help="The publisher.")] = "",
) -> Any:
    """Show what a mapping would do with the message on standard input; nothing is sent.

    \b
    Example:
      echo '{"value": 31.5}' | vmq map test hot --topic sensors/zagreb/temp
    """
    payload = sys.stdin.buffer.read().removesuffix(b"\n")
    return ask.post(
        "/mappings/test",
        name=name,
        topic=topic,
        payload=b64encode(payload).decode(),
        is_base64=True,
        qos=qos,
        client_id=client_id,
    )


@app.command("enable")
@asking()
def enable(ask: AdminClient, name: NameArgument) -> Any:
    """Have a mapping in force, whatever the file says, also after a restart."""
    return ask.post("/mappings/enable", name=name)


@app.command("disable")
@asking()
def disable(ask: AdminClient, name: NameArgument) -> Any:
    """Have a mapping out of force, also after a restart."""
    return ask.post("/mappings/disable", name=name)

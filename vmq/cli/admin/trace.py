"""`vmq trace client`: what one client of a running broker does, as it happens."""

import http.client
import sys
from typing import Annotated, Final
from urllib.parse import urlencode

import typer

from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.console import CliError
from vmq.cli.terminal.rows import clean
from vmq.cli.terminal.settings import ConfigOption, DataDirOption

app = typer.Typer(
    help="Watch what a client of a running broker does.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

#: Seconds of silence after which the broker counts as gone; it gives a sign of life more often.
_SILENCE: Final = 30.0


@app.command("client")
def client(
    client_id: Annotated[str, typer.Argument(metavar="ID", help="The client id.")],
    payload_bytes: Annotated[
        int, typer.Option("--payload-bytes", min=0, max=65_536, help="Bytes shown of a payload.")
    ] = 64,
    rate: Annotated[
        int, typer.Option("--rate", min=1, max=10_000, help="Lines a second; others are counted.")
    ] = 100,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Show a client's MQTT frames and the calls of hooks about it, until Ctrl-C.

    -> came from the client, <- went to it; calls of hooks stand between with
    verdict and time. Passwords are not shown. The client need not be connected.

    \b
    Example:
      vmq trace client lamp1 --payload-bytes 0
    """
    query = urlencode(
        {"client_id": client_id, "payload_bytes": payload_bytes, "rate": rate},
        errors="surrogateescape",
    )
    begun = False
    try:
        for line in AdminClient(config, data_dir).stream(f"/trace?{query}", _SILENCE):
            if not begun:
                begun = True
                print(f"tracing {clean(client_id)}, until Ctrl-C", file=sys.stderr, flush=True)
            if line:
                print(clean(line), flush=True)
    except (OSError, http.client.HTTPException) as problem:
        text = str(problem) or type(problem).__name__
        raise CliError(f"the trace ended: {text}") from None
    raise CliError("the trace ended: the broker closed it")

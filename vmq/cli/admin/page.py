"""`vmq open`: a link to the live page of a running broker, good for once."""

import os
import sys
import webbrowser
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from vmq.cli.admin.asking import asking
from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.console import is_terminal


def show_links(answer: Mapping[str, Any]) -> None:
    """Print each link, and say on a terminal how long it is good for."""
    for url in answer["urls"]:
        print(url)
    if is_terminal(sys.stdout):
        may = "look and change" if answer["scope"] == "all" else "look"
        print(
            f"Good for one browser within {answer['seconds']} s, which may {may}.", file=sys.stderr
        )


@asking(show_links)
def open_page(
    ask: AdminClient,
    change: Annotated[
        bool,
        typer.Option("--change", help="The page may change things too: disconnect, purge, reload."),
    ] = False,
    show_only: Annotated[
        bool, typer.Option("--print", help="Print the link; open no browser.")
    ] = False,
) -> Any:
    """Open the live page of a running broker in a browser.

    Prints the link as well. It is good for one browser, which has to open it
    within a minute; the page may look, and with --change also act.

    \b
    Examples:
      vmq open
      vmq open --change --print
    """
    answer = ask.post("/live/token", scope="all" if change else "read")
    if not show_only and _has_screen():
        webbrowser.open(answer["urls"][0])
    return answer


def _has_screen() -> bool:
    """Whether a browser that is opened would be seen by whoever called."""
    return is_terminal(sys.stdout) and (
        sys.platform == "darwin"
        or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    )

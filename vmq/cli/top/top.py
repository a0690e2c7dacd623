"""`vmq top`: the command."""

import sys
from typing import Annotated

import typer

from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.console import CliError, is_terminal
from vmq.cli.terminal.settings import ConfigOption, DataDirOption


def top(
    sort: Annotated[
        str,
        typer.Option(
            "--sort", metavar="COLUMN", help="Sort clients by queue, unacked, dropped or client."
        ),
    ] = "queue",
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> int:
    """Watch a running broker in the terminal.

    Shows the figures of each second, what is wrong, and the clients that are
    worst. Keys 1 to 4 sort by another column, q or Ctrl-C ends it.

    \b
    Examples:
      vmq top
      vmq top --sort dropped
    """
    from vmq.cli.top.news import BrokerNews
    from vmq.cli.top.screen import SORTS, TopScreen

    if sort not in SORTS:
        raise CliError(f"--sort {sort}: accepted: {', '.join(SORTS)}")
    news = BrokerNews(AdminClient(config, data_dir))
    if not news.finds_broker():
        news.sessions("")  # says why
    if not is_terminal(sys.stdout):
        raise CliError(
            "vmq top draws on a terminal; for a program: vmq metrics --json, /status.json"
        )
    screen = TopScreen(news, sort)
    screen.run()
    return screen.return_code or 0

"""Certificates that change while the broker runs: listeners take their files anew, and drop no connection for it."""

import asyncio
from collections.abc import Callable, Iterable

from vmq.listeners.listener import Listener
from vmq.listeners.state import AnyListener

#: Seconds between two looks at the files.
INTERVAL = 10


def renew(listeners: Iterable[Listener]) -> bool:
    """Reads the TLS files of listeners anew, for the handshakes to come.

    A listener whose files are broken keeps what it has, and the log says why.

    Returns:
        Whether every listener could use its files.
    """
    good = True
    for listener in listeners:
        good = listener.reload_certificates() and good
    return good


def not_renewed(listeners: Iterable[AnyListener]) -> list[str]:
    """The listeners that could not use their files of late, and why, a line each."""
    return [
        f"listener {each.name} keeps its old certificates: {each.outdated_because}"
        for each in listeners
        if isinstance(each, Listener) and each.outdated_because
    ]


async def watch(listeners: Callable[[], Iterable[Listener]]) -> None:
    """Has the listeners of the time take files that changed."""
    while True:
        await asyncio.sleep(INTERVAL)
        for listener in listeners():
            listener.reload_changed_certificates()

"""Certificates that change while the broker runs: listeners take their files anew, and drop no connection for it."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping

from vmq.config.options import ListenerOptions
from vmq.listeners.certificates import outdated_of
from vmq.listeners.listener import Listener
from vmq.listeners.state import AnyListener

log = logging.getLogger("vmq.listeners")

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


class CertificateWatch:
    """Looks at the TLS files of listeners from time to time, for changes and for what time does to them.

    Args:
        options: those of the configuration, by name.
    """

    def __init__(self, options: Mapping[str, ListenerOptions]) -> None:
        self._options = {name: each for name, each in options.items() if each.endpoint.is_tls}
        #: What is out of date, a line each.
        self.outdated: list[str] = []

    async def run(self, listeners: Callable[[], Iterable[Listener]]) -> None:
        """Has the listeners of the time take files that changed, and the log say what is out of date."""
        while True:
            before, self.outdated = self.outdated, await self._look()
            for line in self.outdated:
                if line not in before:
                    log.warning("%s", line)
            await asyncio.sleep(INTERVAL)
            for listener in listeners():
                listener.reload_changed_certificates()

    async def _look(self) -> list[str]:
        """In a thread: a list of all whom an authority has revoked may be long."""
        return await asyncio.to_thread(self._outdated) if self._options else []

    def _outdated(self) -> list[str]:
        return [
            f"listener {name}: {line}"
            for name, options in self._options.items()
            for line in outdated_of(options)
        ]

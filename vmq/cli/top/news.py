"""What a broker tells `vmq top`, over its admin socket."""

import http.client
import json
from collections.abc import Iterator
from threading import Event
from typing import Any, Final, NamedTuple, Protocol

from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.console import CliError

#: Seconds of silence after which the broker counts as gone; it tells something each second.
SILENCE: Final = 10.0
#: Seconds until it is asked again.
RETRY: Final = 1.0
#: Clients that are shown at most.
MOST: Final = 200


class TopNews(NamedTuple):
    """Something that a broker tells: hello, tick, worst or warnings; or that it is gone, with the reason."""

    kind: str
    what: Any


class Newsroom(Protocol):
    """Where the screen has its figures from."""

    def follow(self) -> Iterator[TopNews]:
        """All that is told, until `close`."""

    def sessions(self, sort: str) -> list[dict[str, Any]]:
        """Sessions in an order, at most `MOST`."""

    def close(self) -> None:
        """Ends what runs in other threads."""


class BrokerNews:
    """A running broker."""

    def __init__(self, ask: AdminClient) -> None:
        self._ask = ask
        self._is_over = Event()

    def finds_broker(self) -> bool:
        """Whether one runs."""
        return self._ask.finds_broker()

    def follow(self) -> Iterator[TopNews]:
        """All that is told, until `close`; a broker that comes back is followed again."""
        while not self._is_over.is_set():
            try:
                yield from self._told()
                reason = "the broker stopped"
            except (CliError, OSError, http.client.HTTPException) as problem:
                reason = str(problem) or type(problem).__name__
            if not self._is_over.is_set():
                yield TopNews("gone", reason)
                self._is_over.wait(RETRY)

    def close(self) -> None:
        """Ends `follow` and `sessions`, in whatever threads they wait for the broker."""
        self._is_over.set()
        self._ask.hang_up()

    def _told(self) -> Iterator[TopNews]:
        kind = ""
        for line in self._ask.stream("/live", SILENCE):
            name, _, data = line.partition(": ")
            if name == "event":
                kind = data
            elif name == "data":
                yield TopNews(kind, json.loads(data))

    def sessions(self, sort: str) -> list[dict[str, Any]]:
        """Sessions in an order.

        Raises:
            CliError: the broker does not answer.
        """
        rows: list[dict[str, Any]] = self._ask.get("/sessions", sort=sort, limit=MOST, local=True)[
            "rows"
        ]
        return rows

"""What a node still has while it leaves its cluster, or is drained: told on stderr whenever it is another number."""

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from vmq.cli.admin.client import AdminClient
from vmq.cli.terminal.console import CliError

#: Seconds between two looks.
_LOOK: Final = 1.0
_THINGS: Final = {
    "sessions": "sessions",
    "slots_owned": "slots of sessions",
    "partitions": "copies of partitions",
}


@contextmanager
def showing_what_is_left(ask: AdminClient, every: float = _LOOK) -> Iterator[None]:
    """Tells it for as long as something goes on."""
    ended = threading.Event()
    watching = threading.Thread(target=_watch, args=(ask, ended, every), daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        watching.join(_LOOK)


def _watch(ask: AdminClient, ended: threading.Event, every: float) -> None:
    told = ""
    while not ended.wait(every):
        try:
            rows = ask.get("/cluster/members", limit=0)["rows"]
        except CliError:
            return  # it stops, or has another place: the answer that is waited for says so
        text = what_is_left(rows)
        if text and text != told:
            print(text, file=sys.stderr, flush=True)
        told = text


def what_is_left(members: list[Mapping[str, Any]]) -> str:
    """What the node that answers still has; "" if it says nothing of that."""
    own = next((row for row in members if row["is_self"]), {})
    parts = [f"{own[name]} {what}" for name, what in _THINGS.items() if own.get(name)]
    return f"still here: {', '.join(parts)}" if parts else ""

"""One broker among several on this machine that share their listeners and are seen as one."""

from pathlib import Path

import msgspec
from msgspec import Struct


class Share(Struct, frozen=True, kw_only=True):
    """The part of one of them.

    What it listens on by TCP, the others may listen on too: the system gives each connection to one of them.
    """

    #: Which one it is, from 1.
    number: int
    #: The listeners of the configuration that it opens.
    listeners: frozenset[str]
    #: Its own folder beside the data directory: the admin socket, and the node that links it to the others.
    folder: str
    #: The others that are there when this one starts: names and addresses of their nodes.
    siblings: dict[str, str] = msgspec.field(default_factory=dict)
    #: Unix sockets by which they talk to each other though their nodes have other addresses, by name, this one's too.
    sockets: dict[str, str] = msgspec.field(default_factory=dict)
    #: The names that all of them have as nodes, this one's included.
    worker_names: frozenset[str] = frozenset()
    #: Plugins that the operator started (True) or stopped (False), whatever the configuration says.
    plugins: dict[str, bool] = msgspec.field(default_factory=dict)

    @property
    def path(self) -> Path:
        """`folder` as a path."""
        return Path(self.folder)

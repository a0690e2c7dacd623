"""Whose page it is: what the page shows beside the figures of each second, of a broker alone or of several workers."""

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct
from vmq_hooks import Peer, SubscriberId

from vmq.config.options import Config
from vmq.http.dashboard.reading import BrokerReader, FigureSource
from vmq.http.dashboard.topics import BranchSource, RouteSums
from vmq.http.users import let_in
from vmq.listeners.state import AnyListener

if TYPE_CHECKING:
    from aiohttp import web

    from vmq.ports import BrokerView

#: The client id that plugins see when a user opens the page.
CLIENT_ID: Final = "vmq-page"


class HookRow(Struct, frozen=True):
    """One hook of one plugin, since it was loaded. Times are milliseconds."""

    plugin: str
    hook: str
    calls: int
    accepted: int
    refused: int
    seconds: float
    p50: float
    p99: float
    errors: int
    timeouts: int
    skipped: int


class SampleRow(Struct, frozen=True):
    """One value of a metric."""

    name: str
    labels: dict[str, str]
    value: float


class PageSource(Protocol):
    """A broker, as its page knows it."""

    @property
    def node(self) -> str:
        """The name by which operators know it."""

    @property
    def folder(self) -> Path:
        """Where it keeps its keys."""

    @property
    def started(self) -> float:
        """When, in seconds since 1970."""

    @property
    def config(self) -> Config:
        """The configuration in force."""

    @property
    def listeners(self) -> Mapping[str, AnyListener]:
        """The listeners that are open, those of HTTP at least."""

    @property
    def figures(self) -> FigureSource:
        """What is read each second."""

    @property
    def topics(self) -> BranchSource:
        """What is published."""

    async def hooks(self) -> list[HookRow]:
        """What the hooks of plugins took."""

    async def samples(self, prefix: str) -> list[SampleRow]:
        """The metrics whose names begin so."""

    async def trace(self, request: "web.Request") -> "web.StreamResponse":
        """Streams what one client does."""

    async def let_in(self, user: str, password: str, address: str) -> None:
        """Returns if the plugins let a user in.

        Raises:
            AdminError: they do not, or nobody could decide.
        """


class BrokerSource:
    """The broker of this process."""

    def __init__(self, broker: "BrokerView") -> None:
        self._broker = broker
        self.figures = BrokerReader(broker)
        self.topics = RouteSums(broker)

    @property
    def node(self) -> str:
        """The name of its node, or of its machine."""
        return self._broker.config.cluster.node_name or socket.gethostname()

    @property
    def folder(self) -> Path:
        """The data directory."""
        return Path(self._broker.config.broker.data_dir)

    @property
    def started(self) -> float:
        """When, in seconds since 1970."""
        return time.time() - self._broker.monitor.uptime()

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self._broker.config

    @property
    def listeners(self) -> Mapping[str, AnyListener]:
        """All that are open."""
        return self._broker.listeners

    async def hooks(self) -> list[HookRow]:
        """Each hook of each plugin."""
        return [
            HookRow(
                plugin,
                hook,
                times.count,
                guard.accepted[hook],
                guard.refused[hook],
                times.total,
                _milliseconds(times.quantile(0.5)),
                _milliseconds(times.quantile(0.99)),
                guard.errors[hook],
                guard.timeouts[hook],
                guard.skipped[hook],
            )
            for plugin, guard in self._broker.plugins.guards.items()
            for hook, times in guard.times.items()
        ]

    async def samples(self, prefix: str) -> list[SampleRow]:
        """Counters and gauges; histograms have their own place."""
        return [
            SampleRow(family.name, dict(each.labels), each.value)
            for family in self._broker.metrics.families()
            if family.name.startswith(prefix)
            for each in family.samples
        ]

    async def trace(self, request: "web.Request") -> "web.StreamResponse":
        """Streams what one client does."""
        # Late: it needs the library, and the links to the page are shown before that is loaded.
        from vmq.http.trace import stream

        return await stream(request, self._broker)

    async def let_in(self, user: str, password: str, address: str) -> None:
        """Asks the plugins, as if the user connected."""
        peer = Peer(address, 0, "http", "local", network=address)
        await let_in(self._broker, user, password, SubscriberId(CLIENT_ID), peer)


def _milliseconds(seconds: float) -> float:
    """A bound of a histogram in milliseconds; above the last bound twice that."""
    return 1000 * min(seconds, 2.0)

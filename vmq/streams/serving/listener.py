"""A listener for Arrow Flight: programs read streams, and publish, under the rules of MQTT clients.

They talk to a process of its own, which reads for them; what is not reading it asks of a server here (see
`vmq.streams.flight.front`).
"""

import asyncio
import os
import socket
from concurrent.futures import Future
from itertools import count
from pathlib import Path
from typing import Final

from vmq.config.options import Config, ListenerOptions
from vmq.config.values import Endpoint
from vmq.listeners.certificates import CertificateError, build_context
from vmq.runtime.scheduling import share_interpreter
from vmq.streams.catalog import Catalog
from vmq.streams.flight.access import Access
from vmq.streams.flight.front import Orders
from vmq.streams.flight.groups import ProgramGroups
from vmq.streams.flight.service import StreamServer
from vmq.streams.flight.sink import Sink
from vmq.streams.serving.process import FlightProcess
from vmq.streams.sql.running import SqlRunner

#: Stand for all of a machine's addresses, and are none themselves.
WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - nothing is bound here

_numbers = count()


class FlightListener:
    """Serves from `open` until `close`."""

    #: Those of MQTT, which has none here.
    connections: Final = 0
    #: Its clients are another process's.
    is_wanting: Final = False

    def __init__(
        self,
        name: str,
        options: ListenerOptions,
        catalog: Catalog,
        access: Access,
        sink: Sink,
        groups: ProgramGroups,
        runner: SqlRunner,
    ) -> None:
        self.name = name
        self.options = options
        self.endpoint: Endpoint = options.endpoint
        self.url = self.endpoint.url
        #: Where readers on other machines find it.
        self.location = ""
        self.catalog = catalog
        self.access = access
        self.sink = sink
        self.groups = groups
        self.runner = runner
        self.server: StreamServer | None = None
        self.process: FlightProcess | None = None
        self.folder = -1
        self.ending: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Returns once it serves.

        Raises:
            OSError: the address cannot be had, or there can be no process.
            CertificateError: certificate or key cannot be read.
        """
        tls = certificate_of(self.options) if self.endpoint.is_tls else None
        share_interpreter()  # with the server's threads
        self.folder = os.open(self.catalog.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            port = await asyncio.wrap_future(self._begin(tls))
        except BaseException:
            await self.finish()
            raise
        self.url = self.endpoint.with_address(self.endpoint.host, port).url
        self.location = location_of(self.options, port)

    def _begin(self, tls: tuple[bytes, bytes] | None) -> "Future[int]":
        """Starts the server here and the process that asks it; the port will be known."""
        # By the folder's descriptor: a socket's path may have some hundred bytes only. The folder is this
        # process' own, so whatever has the name was left by one that is gone.
        inner = f"/proc/self/fd/{self.folder}/.flight-{next(_numbers)}.sock"
        # Protobuf is loaded by who has such a listener.
        from vmq.streams.flightsql.statements import FlightSql

        self.server = StreamServer(
            self.catalog,
            access=self.access,
            sink=self.sink,
            groups=self.groups,
            local_reads=self.options.local_reads,
            socket=inner,
            statements=FlightSql(self.catalog, self.access, self.runner),
        )
        Path(inner).chmod(0o600)
        orders = Orders(inner, self.endpoint.host, self.endpoint.port, tls)
        self.process = FlightProcess(self.name, orders, self.folder)
        return self.process.start()

    def configure(self, _config: Config) -> None:
        """Goes by another configuration: it has no option that changes while it is open."""

    @property
    def is_open(self) -> bool:
        """Whether programs are served."""
        return self.ending is None and self.process is not None and self.process.is_serving

    @property
    def restarts(self) -> int:
        """How often the process was started again."""
        return 0 if self.process is None else self.process.restarts

    def close(self) -> None:
        """Lets nobody in any more; calls under way are given up after a moment."""
        if self.ending is None:
            loop = asyncio.get_running_loop()
            self.ending = loop.run_in_executor(None, self._end)

    def _end(self) -> None:
        if self.server is not None:
            self.server.stopping.set()  # else the process would wait for calls that wait here
        if self.process is not None:
            self.process.stop()
        if self.server is not None:
            self.server.close()
        os.close(self.folder)

    async def finish(self) -> None:
        """Returns once it has ended."""
        self.close()
        assert self.ending is not None
        await self.ending


def certificate_of(options: ListenerOptions) -> tuple[bytes, bytes]:
    """Certificate and key of a listener, as PEM.

    Raises:
        CertificateError: one of the files cannot be used.
    """
    build_context(options, "h2")  # gRPC would only say that something is wrong
    assert options.certfile is not None and options.keyfile is not None
    try:
        return Path(options.certfile).read_bytes(), Path(options.keyfile).read_bytes()
    except OSError as error:
        raise CertificateError("certfile", str(error)) from error


def location_of(options: ListenerOptions, port: int) -> str:
    """Where readers on other machines find a listener that has this port."""
    endpoint = options.endpoint
    host = socket.gethostname() if endpoint.host in WILDCARDS else endpoint.host
    return options.advertise or endpoint.with_address(host, port).url

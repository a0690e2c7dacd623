"""A listener for Arrow Flight: programs read streams, and publish, under the rules of MQTT clients."""

import asyncio
import socket
import sys
from pathlib import Path
from typing import Final

from vmq.config import ListenerOptions
from vmq.config_values import Endpoint
from vmq.listeners.certificates import CertificateError
from vmq.streams.catalog import Catalog
from vmq.streams.flight import StreamServer
from vmq.streams.flight_access import Access
from vmq.streams.flight_sink import Sink

#: Seconds after which a thread that computes lets another one have the interpreter.
SWITCH_INTERVAL: Final = 0.0005

#: Stand for all of a machine's addresses, and are none themselves.
WILDCARDS: Final = frozenset({"0.0.0.0", "::"})  # noqa: S104 - nothing is bound here


class FlightListener:
    """Serves from its making until `close`.

    Raises:
        OSError: the address cannot be had.
        CertificateError: certificate or key cannot be read.
    """

    #: Those of MQTT, which has none here.
    connections: Final = 0

    def __init__(
        self, name: str, options: ListenerOptions, catalog: Catalog, access: Access, sink: Sink
    ) -> None:
        self.name = name
        self.endpoint: Endpoint = options.endpoint
        # The server's threads have the event loop's interpreter. At Python's 5 ms, the slowest
        # tenth of messages waits about three times as long while a backlog is read.
        sys.setswitchinterval(min(SWITCH_INTERVAL, sys.getswitchinterval()))
        self.server = StreamServer(
            catalog,
            self.endpoint.host,
            self.endpoint.port,
            access,
            certificate_of(options) if self.endpoint.is_tls else None,
            sink=sink,
        )
        self.url = self.endpoint.with_address(self.endpoint.host, self.server.port).url
        #: Where readers on other machines find it.
        self.location = location_of(options, self.server.port)
        self.is_open = True
        self.ending: asyncio.Future[None] | None = None

    def close(self) -> None:
        """Lets nobody in any more; calls under way are given up after a moment."""
        if self.ending is None:
            self.is_open = False
            loop = asyncio.get_running_loop()
            self.ending = loop.run_in_executor(None, self.server.close)

    async def finish(self) -> None:
        """Returns once it has ended."""
        self.close()
        assert self.ending is not None
        await self.ending


def certificate_of(options: ListenerOptions) -> tuple[bytes, bytes]:
    """Certificate and key of a listener, as PEM.

    Raises:
        CertificateError: one of the files cannot be read.
    """
    found: list[bytes] = []
    for option in ("certfile", "keyfile"):
        path = Path(getattr(options, option))
        try:
            found.append(path.read_bytes())
        except OSError as error:
            raise CertificateError(f"{option}: {path}: {error.strerror}") from error
    return found[0], found[1]


def location_of(options: ListenerOptions, port: int) -> str:
    """Where readers on other machines find a listener that has this port."""
    endpoint = options.endpoint
    host = socket.gethostname() if endpoint.host in WILDCARDS else endpoint.host
    return options.advertise or endpoint.with_address(host, port).url

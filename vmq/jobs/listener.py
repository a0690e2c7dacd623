"""A listener of RESP: sockets, TLS, PROXY headers and limits are those of every listener; inside it jobs are spoken."""

import asyncio
from typing import Any

from vmq.config.options import Config
from vmq.config.values import Endpoint
from vmq.core.registry import Registry
from vmq.jobs.resp.connection import RespConnection
from vmq.jobs.resp.door import RespDoor
from vmq.listeners import addresses
from vmq.listeners.handshakes import Handshakes
from vmq.listeners.listener import Listener
from vmq.protocol.connection import Connection


class JobListener(Listener):
    """A listener, and its present connections.

    Args:
        name: its name in the configuration.
        config: the whole configuration.
        registry: the topic tree of its mountpoint, for what all listeners share.
        door: what its connections share.
        handshakes: shares the time for TLS.
        shared: the supervisor of this worker has its port, too.
    """

    def __init__(
        self,
        name: str,
        config: Config,
        registry: Registry,
        door: RespDoor,
        handshakes: Handshakes | None,
        shared: bool,
    ) -> None:
        super().__init__(
            name, config, registry, nobody, nobody_left, no_id, shared, handshakes, None
        )
        self.door = door
        self.clients: dict[RespConnection, None] = {}
        self.last_number: int = 0

    async def open(self) -> None:
        await super().open()
        endpoint = Endpoint.parse(self.url)
        self.door.host, self.door.port = endpoint.host.encode(), b"%d" % endpoint.port
        nodes = self.door.control.nodes
        if nodes is not None:
            nodes.set_address(endpoint.host, endpoint.port)

    def _alpn(self) -> str:
        return "resp"

    def configure(self, config: Config) -> None:
        super().configure(config)
        self.door.max_job_size = config.limits.max_job_size

    def inside(self, address: Any, peer: str, identity: str | None) -> Any:
        connection = RespConnection(self.door, self.arrived, self.gone)
        connection.identity = identity
        connection.peer = peer
        connection.network = self.network(address, peer)
        self.last_number += 1
        connection.number = self.last_number
        return connection

    def arrived(self, connection: RespConnection) -> None:
        """A connection may receive."""
        core, network = self.registry.core, connection.network
        connection.transport.set_write_buffer_limits(high=self._config.network.write_buffer)
        self.clients[connection] = None
        is_full = addresses.is_full(core, network)
        if network:
            core.networks[network] = core.networks.get(network, 0) + 1
        if is_full:
            connection.cut(addresses.reason(core, network))
            return
        loop = asyncio.get_running_loop()
        timeout = self._config.session.mqtt_connect_timeout
        if not connection.is_known:
            loop.call_later(timeout, connection.end_if_unknown)
        if self.options.max_connection_lifetime:
            reason = "max_connection_lifetime reached"
            loop.call_later(self.options.max_connection_lifetime, connection.end, reason)

    def gone(self, connection: RespConnection) -> None:
        """A connection has ended."""
        if connection not in self.clients:
            return
        del self.clients[connection]
        self.connections -= 1
        core, network = self.registry.core, connection.network
        if network:
            count = core.networks.get(network, 0) - 1
            if count > 0:
                core.networks[network] = count
            else:
                core.networks.pop(network, None)

    def end_all(self, reason: str) -> None:
        """Ends every connection."""
        for connection in list(self.clients):
            connection.end(reason)

    def abort_all(self) -> None:
        """Drops what has not ended."""
        for connection in list(self.clients):
            connection.cut("the broker is shutting down")


def nobody(_connection: Connection, _listener: Listener) -> None:
    """No MQTT client arrives here."""


def nobody_left(_connection: Connection) -> None:
    """Nor does one leave."""


def no_id() -> str:
    """Nor needs one an id."""
    return ""

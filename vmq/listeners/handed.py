"""A listener whose port another process has: that lets connections in, and hands over those that speak MQTT."""

from typing import TYPE_CHECKING

from vmq.config.values import Endpoint

if TYPE_CHECKING:
    from vmq.config.options import Config
    from vmq.listeners.listener import Listener
    from vmq.listeners.sockets import AcceptedSocket


class HandedListener:
    """Takes connections of MQTT that came to a listener of HTTP.

    Args:
        name: its name in the configuration.
        endpoint: the address of the configuration.
        mqtt: what they speak through; it has no socket of its own.
    """

    is_wanting = False

    def __init__(self, name: str, endpoint: Endpoint, mqtt: "Listener") -> None:
        self.name = name
        self.endpoint = endpoint
        self.is_open = True
        self._mqtt = mqtt

    @property
    def url(self) -> str:
        """The address of the configuration; the other process knows the port."""
        return self.endpoint.url

    @property
    def connections(self) -> int:
        """Open connections."""
        return self._mqtt.connections

    def take(self, sock: "AcceptedSocket", begun: bytes) -> None:
        """A connection, with what was read of it so far."""
        self._mqtt.adopt_begun(sock, begun)

    def configure(self, config: "Config") -> None:
        """Goes by another configuration, for the connections to come."""
        self._mqtt.configure(config)

    def close(self) -> None:
        """Nobody is let in any more."""
        self.is_open = False

    async def finish(self) -> None:
        """There is nothing to end: connections are ended with all others."""

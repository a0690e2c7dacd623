"""What is known of an open listener, of whatever kind."""

import asyncio
from typing import Protocol

from vmq.config_values import Endpoint


class AnyListener(Protocol):
    """A listener as health, status and metrics see it."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""

    @property
    def url(self) -> str:
        """Where it listens, with its real port."""

    @property
    def endpoint(self) -> Endpoint:
        """The address of the configuration."""

    @property
    def connections(self) -> int:
        """Open MQTT connections."""

    @property
    def is_open(self) -> bool:
        """Whether new connections are let in."""

    def close(self) -> None:
        """Lets nobody in any more."""


class OpenListener:
    """A listener for MQTT."""

    def __init__(self, name: str, url: str, endpoint: Endpoint) -> None:
        self.name = name
        self.url = url
        self.endpoint = endpoint
        self.connections = 0
        #: None until it accepts.
        self.server: asyncio.Server | None = None

    @property
    def is_open(self) -> bool:
        """Whether new connections are let in."""
        return self.server is not None and self.server.is_serving()

    def close(self) -> None:
        """Lets nobody in any more; connections stay."""
        if self.server is not None:
            self.server.close()

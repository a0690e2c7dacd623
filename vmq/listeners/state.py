"""What is known of an open listener."""

from typing import Literal, Protocol

#: What its connections count as: MQTT over a stream, MQTT over WebSocket, HTTP.
ListenerKind = Literal["mqtt", "mqttws", "http"]


class Accepting(Protocol):
    """The part of `asyncio.Server` that says whether it accepts."""

    def is_serving(self) -> bool:
        """Whether new connections are accepted."""


class OpenListener:
    """One listener: where it listens (with its real port) and how many connections it has."""

    __slots__ = ("connections", "kind", "name", "server", "url")

    def __init__(self, name: str, url: str, kind: ListenerKind, server: Accepting | None) -> None:
        self.name = name
        self.url = url
        self.kind = kind
        #: None until it accepts.
        self.server = server
        #: Open MQTT connections.
        self.connections = 0

    @property
    def is_accepting(self) -> bool:
        """Whether new connections are accepted."""
        return self.server is not None and self.server.is_serving()

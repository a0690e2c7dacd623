"""The listeners of one process of a broker, from the ports that it has at once to the clients that are let in last."""

import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vmq.config.options import Config, ListenerOptions
from vmq.http.server import HttpListener
from vmq.listeners.listener import Listener
from vmq.listeners.sockets import bind
from vmq.listeners.state import AnyListener
from vmq.runtime.errors import StartError
from vmq.runtime.open_listeners import OpenListeners, not_to_be_had
from vmq.startup.listening import listen

if TYPE_CHECKING:
    from vmq.listeners.handed import HandedListener
    from vmq.ports import BrokerView
    from vmq.streams.serving.listener import FlightListener


class BrokerListeners(OpenListeners[AnyListener]):
    """By their names in the configuration.

    Args:
        broker: whose they are.
    """

    def __init__(self, broker: "BrokerView") -> None:
        super().__init__(self._listen)
        self._broker = broker
        #: Sockets that have the ports of listeners, until those are there.
        self._ports: dict[str, socket.socket] = {}
        #: Those that are none of MQTT's.
        self._served: list[HandedListener | HttpListener | FlightListener] = []

    async def _listen(self, name: str, options: ListenerOptions) -> AnyListener:
        listener = await listen(self._broker, name, options)
        if not isinstance(listener, Listener):
            self._served.append(listener)
        return listener

    def own(self) -> Iterator[tuple[str, ListenerOptions]]:
        """Those of the configuration that are this process's."""
        share = self._broker.share
        for name, options in self._broker.config.listeners.items():
            if share is None or name in share.listeners:
                yield name, options

    def of_mqtt(self) -> list[Listener]:
        """The open ones that have their clients themselves: of MQTT, and of jobs."""
        return [each for each in self.values() if isinstance(each, Listener)]

    def bind_ports(self) -> None:
        """Has the TCP ports of this process's MQTT listeners, so that one in use is told before anything else is done.

        Raises:
            StartError: an address cannot be had, or the broker has them already: it is started.
        """
        if self._broker.connections is not None:
            raise StartError("the broker is started already")
        for name, options in self.own():
            endpoint = options.endpoint
            if endpoint.scheme in ("tcp", "tls", "ws", "wss"):
                try:
                    shared = self._broker.share is not None
                    self._ports[name] = bind(endpoint.host, endpoint.port, shared)
                except OSError as error:
                    self.free_ports()
                    raise not_to_be_had(name, options, error) from error

    def free_ports(self) -> None:
        """Gives back the ports whose listeners were not opened."""
        for sock in self._ports.values():
            sock.close()
        self._ports.clear()

    def take_port(self, name: str) -> socket.socket | None:
        """The socket that has a listener's port since the start; it is the listener's from now on."""
        return self._ports.pop(name, None)

    async def prepare(self) -> None:
        """Opens what is this process's and not open; those of MQTT let nobody in before `let_in`, those of HTTP wait.

        Raises:
            StartError: an address or certificates cannot be had.
        """
        for name, options in self.own():
            if name not in self:
                await self.open(name, options)

    def let_in(self) -> None:
        """Has every open listener of MQTT listen, and after that those of HTTP load what answers who connects.

        Raises:
            StartError: an address cannot be had.
        """
        for listener in self.of_mqtt():
            if not listener.is_open:
                try:
                    listener.listen()
                except OSError as error:
                    raise not_to_be_had(listener.name, listener.options, error) from error
        for served in self._served:
            if isinstance(served, HttpListener):
                served.serve()

    def configure(self, config: Config) -> None:
        """Has the open ones go by a configuration."""
        for each in (*self.of_mqtt(), *self._served):
            each.configure(config)

    async def finish(self) -> None:
        """Returns when nothing is served any more; all are closed."""
        self.free_ports()
        for served in self._served:
            await served.finish()
        self._served.clear()

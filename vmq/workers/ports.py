"""The TCP ports that workers listen on together."""

import socket

from vmq.config.options import Config
from vmq.listeners.proxy import peer_text
from vmq.listeners.sockets import reserve


class Ports:
    """Keeps the ports of all listeners of MQTT and of jobs for the workers of this supervisor, until `close`."""

    def __init__(self) -> None:
        self._sockets: list[socket.socket] = []

    def reserve(self, config: Config) -> dict[str, str]:
        """The addresses of the listeners with their real ports, by name; those without a port are left out.

        Raises:
            PortError: an address cannot be had.
        """
        urls: dict[str, str] = {}
        for name, options in config.listeners.items():
            endpoint = options.endpoint
            if not (endpoint.is_mqtt or endpoint.is_resp) or endpoint.scheme == "unix":
                continue
            try:
                sock = reserve(endpoint.host, endpoint.port)
            except OSError as error:
                raise PortError(
                    f"listeners.{name}: cannot listen on {options.url}: {error.strerror or error}"
                ) from error
            self._sockets.append(sock)
            host, port = sock.getsockname()[:2]
            urls[name] = f"{endpoint.scheme}://{peer_text(host, port)}{endpoint.path}"
        return urls

    def close(self) -> None:
        """Lets the ports go."""
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()


class PortError(Exception):
    """An address cannot be had; the text is for the operator."""

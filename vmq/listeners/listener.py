"""One listener: opens its socket, lets connections in, and puts together what each speaks through.

A connection climbs from the socket: `Arrival` (limits, PROXY header), then `Tls`, then `WebSocket`,
then the `Connection` with its session. A layer that is passed falls away; one that stays is the
transport of the one above.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Any

from vmq.config import Config, ListenerOptions
from vmq.connection import Connection
from vmq.listeners import sockets
from vmq.listeners.certificates import (
    CertificateError,
    Stamp,
    build_context,
    stamp_of,
)
from vmq.listeners.proxy import ProxyError, ProxyHeader
from vmq.listeners.tls import Tls
from vmq.listeners.trust import Networks
from vmq.listeners.websocket import WebSocket
from vmq.registry import Registry

log = logging.getLogger("vmq.listeners")


class Listener:
    """A listener and its present connections.

    Args:
        name: its name in the configuration.
        config: the whole configuration, which has this name among its listeners.
        registry: whom its clients register with.
        opened: told of each new connection, when it may receive.
        closed: told of each that has ended.
        new_client_id: makes an id for a client that brings none.
    """

    def __init__(
        self,
        name: str,
        config: Config,
        registry: Registry,
        opened: "Callable[[Connection, Listener], None]",
        closed: Callable[[Connection], None],
        new_client_id: Callable[[], str],
    ) -> None:
        self.name = name
        self.options: ListenerOptions = config.listeners[name]
        self.endpoint = self.options.endpoint
        self.anonymous = config.anonymous_allowed(name)
        self.anonymous_until_hook = config.anonymous_until_hook(name)
        self.registry = registry
        #: The hooks for its clients.
        self.hooks = registry.core.hooks
        #: Where it listens, with its real port once it is open.
        self.url = self.options.url
        #: Connections now, those in their handshake included.
        self.connections: int = 0
        self._config = config
        self._opened = opened
        self._closed = closed
        # Bound once, not once for each of many connections.
        self._on_made = self._on_opened
        self._on_lost = self._on_closed
        self._new_client_id = new_client_id
        self._server: asyncio.Server | None = None
        self._context: ssl.SSLContext | None = None
        self._stamp: Stamp = ()
        scheme = self.endpoint.scheme
        assert scheme != "http"
        self._scheme = scheme
        self._levels = tuple(self.options.allowed_protocol_versions)
        self._proxies = Networks(self.options.proxy_protocol_trusted)
        forwarders = Networks(self.options.xff_trusted_intermediate)
        self._forwarders = forwarders if self.options.xff_enabled else None
        #: Connections in a handshake below MQTT, and what will end a slow one.
        self._pending: dict[Any, asyncio.TimerHandle] = {}

    # Open and close

    @property
    def is_open(self) -> bool:
        """Whether new connections are let in."""
        return self._server is not None

    async def open(self) -> None:
        """Begins to listen.

        Raises:
            OSError: the address cannot be had.
            CertificateError: a file of the listener's TLS cannot be used.
        """
        if self.endpoint.is_tls:
            self._stamp = stamp_of(self.options)
            self._context = build_context(self.options, self._alpn())
        backlog = self._config.network.backlog
        endpoint = self.endpoint
        loop = asyncio.get_running_loop()
        if endpoint.scheme == "unix":
            mode = int(self.options.unix_mode, 8)
            sock = sockets.bind_unix(endpoint.path, mode, self.options.unix_owner, backlog)
            self._server = await loop.create_unix_server(self._arrival, sock=sock, backlog=backlog)
            return
        sock = sockets.bind(endpoint.host, endpoint.port, backlog)
        self._server = await loop.create_server(self._arrival, sock=sock, backlog=backlog)
        host, port = sock.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"{endpoint.scheme}://{shown}:{port}{endpoint.path}"

    def close(self) -> None:
        """Lets nobody in any more; connections that are past their handshake stay."""
        if self._server is None:
            return
        self._server.close()
        self._server = None
        if self.endpoint.scheme == "unix":
            sockets.remove_unix(self.endpoint.path)
        for layer in list(self._pending):
            layer.transport.abort()

    def _alpn(self) -> str:
        return "http/1.1" if self.endpoint.is_websocket else "mqtt"

    # Certificates

    def reload_certificates(self) -> bool:
        """Takes up the files as they are now, for new handshakes; False if it could not.

        Connections stay as they are. If a file is broken, what was loaded before stays in use.
        """
        if self._context is None:
            return True
        self._stamp = stamp_of(self.options)
        try:
            self._context = build_context(self.options, self._alpn())
        except CertificateError as error:
            text = 'kept the old certificates listener=%s reason="%s"'
            log.error(text, self.name, error)
            return False
        log.info("loaded certificates listener=%s", self.name)
        return True

    def reload_changed_certificates(self) -> None:
        """Takes up the files if one has changed since the last look."""
        if self._context is not None and stamp_of(self.options) != self._stamp:
            self.reload_certificates()

    # Connections

    def _arrival(self) -> asyncio.Protocol:
        return Arrival(self)

    def arrive(self, arrival: "Arrival", transport: Any) -> None:
        """A peer has connected."""
        limit = self.options.max_connections
        self.connections += 1
        if limit and self.connections > limit:
            self.refused(arrival, transport, f"max_connections = {limit} reached")
            transport.abort()
        elif not self.options.proxy_protocol:
            self.enter(transport, "")
        elif self._proxies.has_peer(transport.get_extra_info("peername")):
            timeout = self._config.session.mqtt_connect_timeout
            self.limit_time(arrival, timeout, "no PROXY header within mqtt_connect_timeout")
        else:
            self.refused(arrival, transport, "not among proxy_protocol_trusted")
            transport.abort()

    def enter(self, transport: Any, peer: str) -> Any:
        """A connection is let in; returns the protocol that takes its bytes from now on.

        `peer` is whom a PROXY header named, "" if none did.
        """
        protocol: Any
        if self._context is not None:
            wants_identity = self.options.use_identity_as_username
            protocol = Tls(self._context, Entry(self, peer), wants_identity)
            timeout = self.options.tls_handshake_timeout
            reason = "no TLS handshake within tls_handshake_timeout"
            self.limit_time(protocol, timeout, reason, peer)
        else:
            protocol = self.inside(transport, peer, None)
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        return protocol

    def inside(self, transport: Any, peer: str, identity: str | None) -> Any:
        """What speaks inside TLS, or on the bare transport."""
        connection = Connection(
            self.registry, self.anonymous, self._new_client_id(), self._on_made, self._on_lost
        )
        connection.reply_limit = 4 * self._config.network.write_buffer
        connection.listener = self.name
        connection.scheme = self._scheme
        connection.session.hooks = self.hooks
        connection.session.anonymous_until_hook = self.anonymous_until_hook
        connection.session.identity = identity
        connection.session.levels = self._levels
        connection.peer = peer
        if self.endpoint.scheme == "unix" and not peer:
            connection.peer = "unix"
        if not self.endpoint.is_websocket:
            return connection
        limit = self._config.session.max_packet_size + 65_536
        forwarders = self._forwarders
        if forwarders is not None and not forwarders.has_peer(transport.get_extra_info("peername")):
            forwarders = None
        return WebSocket(connection, self.endpoint.path, limit, forwarders)

    def _on_opened(self, connection: Connection) -> None:
        connection.transport.set_write_buffer_limits(high=self._config.network.write_buffer)
        self._opened(connection, self)

    def _on_closed(self, connection: Connection) -> None:
        self.connections -= 1
        self._closed(connection)

    # Handshakes below MQTT

    def limit_time(self, layer: Any, seconds: float, reason: str, peer: str = "") -> None:
        """Ends a layer's connection unless it is `passed` within so many seconds."""
        loop = asyncio.get_running_loop()
        self._pending[layer] = loop.call_later(seconds, self._too_slow, layer, reason, peer)

    def _too_slow(self, layer: Any, reason: str, peer: str) -> None:
        transport = layer.transport
        self.refused(layer, transport, reason, peer=peer)
        transport.abort()

    def passed(self, layer: Any) -> None:
        """A layer has what it waited for."""
        timer = self._pending.pop(layer, None)
        if timer is not None:
            timer.cancel()

    def refused(
        self, layer: Any, transport: Any, reason: str, expected: bool = False, peer: str = ""
    ) -> None:
        """A connection has ended before MQTT began. Its layer will say nothing more of it.

        `expected` makes it nothing to write of; `peer` is whom a PROXY header named.
        """
        layer.ended = True
        self.passed(layer)
        self.connections -= 1
        self.registry.core.counters.socket_error += 1
        level = logging.DEBUG if expected else logging.WARNING
        if log.isEnabledFor(level):
            text = 'refused listener=%s peer=%s reason="%s"'
            log.log(level, text, self.name, peer or peer_of(transport), reason)


class Arrival(asyncio.Protocol):
    """A connection before anything else: is there room, and who is it from?"""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.header: ProxyHeader | None = None
        self.transport: Any = None
        self.ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.listener.arrive(self, transport)

    def data_received(self, data: bytes) -> None:
        if self.ended:
            return
        if self.header is None:
            self.header = ProxyHeader()
        try:
            if not self.header.feed(data):
                return
        except ProxyError as error:
            self.listener.refused(self, self.transport, str(error))
            self.transport.abort()
            return
        self.ended = True
        self.listener.passed(self)
        protocol = self.listener.enter(self.transport, self.header.peer)
        if self.header.rest:
            protocol.data_received(self.header.rest)

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.ended:
            reason = "connection lost before its PROXY header"
            self.listener.refused(self, self.transport, reason, True)


class Entry:
    """What a TLS connection needs of its listener."""

    __slots__ = ("listener", "peer")

    def __init__(self, listener: Listener, peer: str) -> None:
        self.listener = listener
        self.peer = peer

    def secured(self, tls: Tls, identity: str | None) -> Any:
        self.listener.passed(tls)
        return self.listener.inside(tls, self.peer, identity)

    def refused(self, layer: Any, transport: Any, reason: str, expected: bool = False) -> None:
        self.listener.refused(layer, transport, reason, expected, self.peer)


def peer_of(transport: Any) -> str:
    """A transport's peer, for logs."""
    address = transport.get_extra_info("peername")
    if not isinstance(address, tuple):
        return "unix" if isinstance(address, str | bytes) else "unknown"
    host = str(address[0])
    return f"[{host}]:{address[1]}" if ":" in host else f"{host}:{address[1]}"

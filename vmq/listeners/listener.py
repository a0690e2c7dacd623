"""One listener: opens its socket, lets connections in, and puts together what each speaks through.

A connection climbs from the socket: `Arrival` if a PROXY header must come first, then `Tls`, then
`WebSocket`, then the `Connection` with its session. A layer that is passed falls away; one that
stays is the transport of the one above.
"""

import asyncio
import logging
import ssl
import sys
from collections.abc import Callable
from socket import socket
from typing import Any, cast

from vmq.config.options import Config, ListenerOptions
from vmq.core.registry import Registry
from vmq.listeners import addresses, sockets
from vmq.listeners.acceptor import Accepted, Acceptor
from vmq.listeners.certificates import (
    CertificateError,
    Stamp,
    build_context,
    stamp_of,
)
from vmq.listeners.handshakes import Handshakes
from vmq.listeners.origins import Origins
from vmq.listeners.proxy import ProxyError, ProxyHeader, peer_text
from vmq.listeners.sockets import AcceptedSocket
from vmq.listeners.time_limits import TimeLimits
from vmq.listeners.tls import Tls
from vmq.listeners.trust import Networks, network_of
from vmq.listeners.websocket import WebSocket
from vmq.protocol.connection import Connection, split_peer
from vmq.protocol.listener_context import ListenerContext

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
        shared: other processes may listen on its TCP port too.
        handshakes: shares the time for TLS among all listeners; None = among its own clients.
        sock: has its TCP port already (`sockets.bind`); None = `open` makes one.
    """

    def __init__(
        self,
        name: str,
        config: Config,
        registry: Registry,
        opened: "Callable[[Connection, Listener], None]",
        closed: Callable[[Connection], None],
        new_client_id: Callable[[], str],
        shared: bool = False,
        handshakes: Handshakes | None = None,
        sock: socket | None = None,
    ) -> None:
        self.name = name
        self._shared = shared
        self._sock = sock
        core = registry.core
        self.handshakes = handshakes or Handshakes(core.clock, core.call_soon, core.counters)
        self.options: ListenerOptions = config.listeners[name]
        self.endpoint = self.options.endpoint
        self.anonymous = config.anonymous_allowed(name)
        self.anonymous_until_hook = config.anonymous_until_hook(name)
        self.registry = registry
        self.hooks = registry.core.hooks
        #: Where it listens, with its real port once it is open.
        self.url = self.options.url
        #: Now, those in their handshake included.
        self.connections: int = 0
        self._config = config
        self._opened = opened
        self._closed = closed
        self._new_client_id = new_client_id
        self._acceptor: Acceptor | None = None
        #: What makes transports, with the future of each that is done when the connection is made.
        self._making: list[tuple[Any, Any]] = []
        #: The protocol of the transport that is being made.
        self._protocol: Any = None
        #: Whose connection came last, and what it counts as.
        self._host = self._network = ""
        self._context: ssl.SSLContext | None = None
        self._stamp: Stamp = ()
        #: Why it goes by older certificates than those in its files; "": it does not.
        self.outdated_because: str = ""
        scheme = self.endpoint.scheme
        self.is_unix = scheme == "unix"
        self.is_websocket = self.endpoint.is_websocket
        #: Nobody need know an address before there is a transport.
        self._is_plain = scheme == "tcp" or scheme == "tls"
        assert scheme != "http" and scheme != "grpc" and scheme != "grpc+tls"
        # Connections of another protocol are made by a subclass, which has them named otherwise.
        seen = "tcp" if scheme == "resp" or scheme == "resp+tls" else scheme
        limit = config.network.write_buffer
        #: What its connections have in common.
        self.context = ListenerContext(self._on_opened, self._on_closed, name, seen, limit)
        self._levels = tuple(self.options.allowed_protocol_versions)
        self._proxies = Networks(self.options.proxy_protocol_trusted)
        forwarders = Networks(self.options.xff_trusted_intermediate)
        self._forwarders = forwarders if self.options.xff_enabled else None
        self._origins = Origins(name, self.options)
        #: Connections in a handshake below MQTT.
        self._limits = TimeLimits(core.clock, self._too_slow)

    # Open and close

    @property
    def is_open(self) -> bool:
        """Whether new connections are let in."""
        return self._acceptor is not None

    @property
    def is_wanting(self) -> bool:
        """Whether somebody could not be let in lately, for want of files or memory."""
        return self._acceptor is not None and self._acceptor.has_wanted()

    async def open(self) -> None:
        """Has its address and its certificates; nobody is let in before `listen`.

        Raises:
            OSError: the address cannot be had.
            CertificateError: a file of the listener's TLS cannot be used.
        """
        if self.endpoint.is_tls:
            self._stamp = stamp_of(self.options)
            self._context = build_context(self.options, self._alpn())
        endpoint = self.endpoint
        if endpoint.scheme == "unix":
            mode = int(self.options.unix_mode, 8)
            self._sock = sockets.bind_unix(endpoint.path, mode, self.options.unix_owner)
            return
        if self._sock is None:
            self._sock = sockets.bind(endpoint.host, endpoint.port, self._shared)
        host, port = self._sock.getsockname()[:2]
        self.url = f"{endpoint.scheme}://{peer_text(host, port)}{endpoint.path}"

    def listen(self) -> None:
        """Lets clients in, from now on.

        Raises:
            OSError: somebody else has begun to listen on the address meanwhile.
        """
        sock, network = self._sock, self._config.network
        assert sock is not None, "not opened"
        sock.listen(network.backlog)
        self._sock = None
        core, drift = self.registry.core, network.max_event_loop_drift
        self._acceptor = Acceptor(self.name, sock, self.arrive, core, drift)
        if self._is_plain:
            self._acceptor.use_server(network.backlog, self._offer, self._may_offer)

    def close(self) -> None:
        """Lets nobody in any more; connections that are past their handshake stay."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None
        elif self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        else:
            return
        if self.is_unix:
            sockets.remove_unix(self.endpoint.path)
        for layer in list(self._limits.pending):
            layer.transport.abort()

    def _alpn(self) -> str:
        return "http/1.1" if self.is_websocket else "mqtt"

    def configure(self, config: Config) -> None:
        """Goes by another configuration, for the connections to come; its address stays."""
        self._config = config
        self.options = config.listeners[self.name]
        self._levels = tuple(self.options.allowed_protocol_versions)
        self._origins = Origins(self.name, self.options)
        self.context.limit_replies(config.network.write_buffer)
        if self._acceptor is not None:
            self._acceptor.look_at_all()

    def reload_certificates(self) -> bool:
        """Takes up the files as they are now, for new handshakes. False: one is broken; those loaded before stay."""
        if self._context is None:
            return True
        self._stamp = stamp_of(self.options)
        self.outdated_because = ""
        try:
            self._context = build_context(self.options, self._alpn())
        except CertificateError as error:
            self.outdated_because = str(error)
            log.error('kept the old certificates listener=%s reason="%s"', self.name, error)
            return False
        log.info("loaded certificates listener=%s", self.name)
        return True

    def reload_changed_certificates(self) -> None:
        """Takes up the files if one has changed since the last look."""
        if self._context is not None and stamp_of(self.options) != self._stamp:
            self.reload_certificates()

    # Connections

    def arrive(self, sock: Accepted | AcceptedSocket, address: Any) -> None:
        """A peer has connected; what is refused at once costs no more than its socket."""
        self.connections += 1
        limit = self.options.max_connections
        reason = ""
        if limit and self.connections > limit:
            reason = f"max_connections = {limit} reached"
        elif self.options.proxy_protocol and not self._proxies.has_peer(address):
            reason = "not among proxy_protocol_trusted"
        elif self.registry.core.options.max_connections_per_ip:
            # Here it costs no handshake yet; what a proxy tells comes later.
            network = self.network(address, "")
            if addresses.is_full(self.registry.core, network):
                reason = addresses.reason(self.registry.core, network)
        if reason:
            self.turned_away(peer_of(address), reason)
            sock.close()
            return
        if self.options.proxy_protocol:
            self.adopt(sock, Arrival(self, address))
        else:
            self.adopt(sock, self.enter(address, ""))

    def _may_offer(self) -> bool:
        """Whether the next client may come in without its address having been looked at."""
        limit = self.options.max_connections
        if self.options.proxy_protocol or self.registry.core.options.max_connections_per_ip:
            return False
        return not limit or self.connections < limit

    def _offer(self) -> Any:
        """A client is in: it has an address when it has a transport (`_on_opened`, `TlsEntry.begun`)."""
        self.connections += 1
        return self.enter(None, "")

    def adopt_begun(self, sock: AcceptedSocket, begun: bytes) -> None:
        """Another process has let a connection in, and read the beginning of what it says."""
        self.connections += 1
        self.adopt(sock, Begun(self, begun))

    def take_over(self, transport: Any, begun: bytes) -> None:
        """A connection that was let in elsewhere, and read the beginning of, is one of this listener from now on."""
        self.connections += 1
        self.go_on(transport, begun)

    def go_on(self, transport: Any, begun: bytes) -> None:
        """A connection that is counted already begins with some bytes."""
        protocol = self.enter(transport.get_extra_info("peername"), "")
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(begun)

    def adopt(self, sock: Accepted | AcceptedSocket, protocol: Any) -> None:
        """Has the event loop make a transport; `connection_made` is called in its next pass.

        The loop's coroutine is driven by hand: a task would cost a tenth of all that an accept does, and a callback of
        its future as much. It has to end, since one that is dropped closes its transport: once a turn all do that can.
        """
        sock.begin()
        self._protocol = protocol
        loop = asyncio.get_running_loop()
        making = loop.connect_accepted_socket(self._made_for, cast(Any, sock)).__await__()
        try:
            waiter = next(making)
        except (OSError, RuntimeError) as error:  # gone before we looked
            self.turned_away("unknown", str(error), expected=True)
            sock.close()
            return
        sock.hand_over()
        if not self._making:
            loop.call_soon(self._end_made)
        self._making.append((making, waiter))

    def _end_made(self) -> None:
        made = [making for making, waiter in self._making if waiter.done()]
        self._making = [each for each in self._making if not each[1].done()]
        if self._making:
            asyncio.get_running_loop().call_soon(self._end_made)
        for making in made:
            try:
                # `next`, since the exception that says that there is no more is dear outside of it.
                next(making, None)
            except (OSError, RuntimeError):
                pass  # it was closed before it was made: nobody else's transport is to be lost for that

    def _made_for(self) -> Any:
        protocol, self._protocol = self._protocol, None
        return protocol

    def enter(self, address: Any, peer: str) -> Any:
        """A connection is let in; returns the protocol that takes its bytes from now on.

        `peer` is whom a PROXY header named, "" if none did.
        """
        if self._context is None:
            return self.inside(address, peer, None)
        entry = TlsEntry(self, address, peer)
        return Tls(self._context, entry, self.options.use_identity_as_username)

    def inside(self, address: Any, peer: str, identity: str | None) -> Any:
        """What speaks inside TLS, or on the bare transport."""
        connection = Connection(self.registry, self.anonymous, self._new_client_id(), self.context)
        connection.session.hooks = self.hooks
        connection.session.anonymous_until_hook = self.anonymous_until_hook
        connection.session.identity = identity
        connection.session.levels = self._levels
        connection.peer = peer or ("unix" if self.is_unix else "")
        connection.network = self.network(address, peer)
        if not self.is_websocket:
            return connection
        limit = self._config.limits.max_ws_frame_size
        forwarders = self.forwarders_of(address, peer)
        return WebSocket(connection, self.endpoint.path, limit, forwarders, self._origins)

    def forwarders_of(self, address: Any, peer: str) -> Networks | None:
        """The proxies whose X-Forwarded-For counts; None if this peer, or whom its PROXY header names, is none."""
        known = self._forwarders
        return known if known and known.has_peer(split_peer(peer) if peer else address) else None

    def network(self, address: Any, peer: str) -> str:
        """What a connection counts as where addresses count; a trusted proxy's own address does not."""
        if not peer and (self.options.proxy_protocol or not isinstance(address, tuple)):
            return ""
        if self.forwarders_of(address, peer) is not None:
            return ""
        return self.network_of_host(split_peer(peer)[0] if peer else str(address[0]))

    def network_of_host(self, host: str) -> str:
        """What a host counts as; many may come from one, one after the other."""
        if host != self._host:
            self._host = host
            self._network = sys.intern(network_of(host))
        return self._network

    def _on_opened(self, connection: Connection) -> None:
        transport = connection.transport
        transport.set_write_buffer_limits(high=self._config.network.write_buffer)
        if self._is_plain and not connection.network:
            address = transport.get_extra_info("peername")
            connection.network = self.network(address, connection.peer)
        self._opened(connection, self)
        if not addresses.arrived(connection):
            connection.close(addresses.reason(connection.core, connection.network))
            connection.abort()

    def _on_closed(self, connection: Connection) -> None:
        self.connections -= 1
        addresses.left(connection)
        self._closed(connection)

    # Handshakes below MQTT

    def header_awaited(self, arrival: "Arrival") -> None:
        timeout = self._config.session.mqtt_connect_timeout
        self._limits.set(arrival, timeout, "no PROXY header within mqtt_connect_timeout", arrival)

    def handshake_awaited(self, tls: Tls, entry: "TlsEntry") -> None:
        timeout = self.options.tls_handshake_timeout
        self._limits.set(tls, timeout, "no TLS handshake within tls_handshake_timeout", entry)

    def _too_slow(self, layer: Any, reason: str, who: "Arrival | TlsEntry") -> None:
        self.refused(layer, reason, who.describe())
        layer.transport.abort()

    def passed(self, layer: Any) -> None:
        """A layer has what it waited for."""
        self._limits.passed(layer)

    def refused(self, layer: Any, reason: str, peer: str, expected: bool = False) -> None:
        """A connection has ended before MQTT began. Its layer will say nothing more of it.

        `expected` makes it nothing to write of.
        """
        layer.ended = True
        self.passed(layer)
        self.turned_away(peer, reason, expected)

    def turned_away(self, peer: str, reason: str, expected: bool = False) -> None:
        self.connections -= 1
        self.registry.core.counters.socket_error += 1
        level = logging.DEBUG if expected else logging.WARNING
        if log.isEnabledFor(level):
            log.log(level, 'refused listener=%s peer=%s reason="%s"', self.name, peer, reason)


class Arrival:
    """A connection that must begin with a PROXY header."""

    def __init__(self, listener: Listener, address: Any) -> None:
        self.listener = listener
        self.address = address
        self.header = ProxyHeader()
        self.transport: Any = None
        self.ended = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.listener.header_awaited(self)

    def data_received(self, data: bytes) -> None:
        if self.ended:
            return
        try:
            if not self.header.feed(data):
                return
        except ProxyError as error:
            self.refuse(str(error))
            self.transport.abort()
            return
        self.ended = True
        self.listener.passed(self)
        protocol = self.listener.enter(self.address, self.header.peer)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        if self.header.rest:
            protocol.data_received(self.header.rest)

    def refuse(self, reason: str, expected: bool = False) -> None:
        self.listener.refused(self, reason, self.describe(), expected)

    def describe(self) -> str:
        """Whom it comes from, for logs."""
        return peer_of(self.address)

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        """Nothing is written here."""

    def resume_writing(self) -> None:
        """Nothing is written here."""

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.ended:
            self.refuse("connection lost before its PROXY header", True)


class Begun:
    """A connection whose beginning another process has read."""

    def __init__(self, listener: Listener, begun: bytes) -> None:
        self.listener = listener
        self.begun = begun

    def connection_made(self, transport: Any) -> None:
        self.listener.go_on(transport, self.begun)


class TlsEntry:
    """What a TLS connection needs of its listener."""

    __slots__ = ("address", "listener", "network", "peer")

    def __init__(self, listener: Listener, address: Any, peer: str) -> None:
        self.listener = listener
        self.address = address
        self.peer = peer
        self.network = ""

    def describe(self) -> str:
        """Whom it comes from, for logs."""
        return self.peer or peer_of(self.address)

    def begun(self, tls: Tls) -> None:
        if self.address is None:
            self.address = tls.get_extra_info("peername")
            self.peer = self.peer or ("" if self.address else "unknown")
        host = split_peer(self.peer)[0] if self.peer else str(self.address[0])
        self.network = self.listener.network_of_host(host)
        self.listener.handshake_awaited(tls, self)

    def due(self, tls: Tls) -> None:
        self.listener.handshakes.due(tls, self.network)

    def secured(self, tls: Tls, identity: str | None) -> Any:
        self.listener.passed(tls)
        return self.listener.inside(self.address, self.peer, identity)

    def refused(self, layer: Any, reason: str, expected: bool = False) -> None:
        self.listener.handshakes.forget(layer, self.network)
        self.listener.refused(layer, reason, self.describe(), expected)


def peer_of(address: Any) -> str:
    """A peer's address as `accept` gives it, for logs."""
    return peer_text(str(address[0]), address[1]) if isinstance(address, tuple) else "unix"

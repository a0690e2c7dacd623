"""What an HTTP listener does below HTTP: it limits connections and the time of a first request, and knows MQTT.

A client that sends its request byte by byte would otherwise hold its connection for as long as it
likes. The library bounds what comes after the first request (`KEEP_ALIVE`); here is what comes before.

Who finds no room is told so: 503, and the connection ends. Of the files that the process may open HTTP has a quarter,
whatever `max_connections` says, lest MQTT has none; and eight that clients of MQTT leave alone: probes are answered
though all others are taken.

A connection whose first request is for `MQTT_PATH` is handed to MQTT over WebSocket, with the limits of every listener
of MQTT, before the HTTP library sees a byte.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from vmq.config.options import ListenerOptions
from vmq.core.context import Counters
from vmq.listeners.listener import peer_of
from vmq.listeners.single_server import SPARE, end_of_files
from vmq.listeners.time_limits import READ_FIRST
from vmq.mqtt.first_bytes import FIRST_BYTES, protocol_of

if TYPE_CHECKING:
    from vmq.config.options import Config

log = logging.getLogger("vmq.http")

#: Seconds that a connection may wait for its next request, and that its peer may take nothing of what it is answered.
KEEP_ALIVE: Final = 75.0
#: Where MQTT is spoken, and how a request for it begins.
MQTT_PATH: Final = "/mqtt"
_MQTT: Final = (b"GET /mqtt ", b"GET /mqtt?")
_LONGEST: Final = len(_MQTT[0])
#: The answer to who finds no room.
_TEXT: Final = b"there is no room for more connections\n"
NO_ROOM: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n"
    b"Cache-Control: no-store\r\nRetry-After: 5\r\nConnection: close\r\n\r\n%b"
    % (len(_TEXT), _TEXT)
)


class MqttDoor(Protocol):
    """Who takes connections that speak MQTT: a listener of this process, or the workers."""

    @property
    def connections(self) -> int:
        """Those that were taken and are open."""

    def take_over(self, transport: Any, begun: bytes) -> None:
        """Takes a connection of which some bytes were read."""

    def configure(self, config: "Config") -> None:
        """Goes by another configuration, for the connections to come."""


class Guards:
    """The connections of one HTTP listener; called by its server for the protocol of a new one."""

    #: Makes the library's protocol for a connection; set when its server is.
    make: Callable[[], asyncio.Protocol]

    def __init__(self, name: str, options: ListenerOptions, counters: Counters) -> None:
        self.name = name
        self.timeout = options.http_request_timeout
        self.limit = options.max_connections
        self.counters = counters
        #: Takes the connections that speak MQTT; None: there is none.
        self.mqtt: MqttDoor | None = None
        #: By transport, which is what a request knows of its connection.
        self.present: dict[object, HttpGuard] = {}
        #: Those that speak HTTP, and the most that may.
        self.talking = 0
        self.most = end_of_files() // 4
        #: From this number on files are not for clients of HTTP, either.
        self.end = end_of_files() + SPARE // 2

    def __call__(self) -> asyncio.Protocol:
        return HttpGuard(self, self.make())

    def lack(self, file: int) -> str:
        """Why there is no room for one that has come, with this number of a file; "": there is."""
        there = len(self.present) + (0 if self.mqtt is None else self.mqtt.connections)
        if 0 < self.limit < there:
            return f"max_connections = {self.limit} reached"
        return "no more files may be open (ulimit -n)" if file >= self.end else ""

    def drop_silent(self) -> None:
        """Ends those who have not said yet what they are: nobody else knows of them."""
        for guard in list(self.present.values()):
            if guard.begun is not None:
                guard.transport.abort()

    def refuse(self, transport: Any, reason: str) -> None:
        self._tell(transport, reason)
        transport.abort()

    def turn_away(self, transport: Any, reason: str) -> None:
        """There is no room."""
        self._tell(transport, reason)
        transport.write(NO_ROOM)
        transport.close()

    def _tell(self, transport: Any, reason: str) -> None:
        peer = peer_of(transport.get_extra_info("peername"))
        log.warning('refused listener=%s peer=%s reason="%s"', self.name, peer, reason)

    def on_request(self, transport: asyncio.BaseTransport | None) -> None:
        """A whole head is there."""
        guard = self.present.get(transport)
        if guard is not None:
            guard.passed()


class HttpGuard(asyncio.Protocol):
    """One connection: hands everything on to the library's protocol, once it is known not to be MQTT's."""

    def __init__(self, guards: Guards, inner: asyncio.Protocol) -> None:
        self.guards = guards
        self.inner = inner
        self.transport: Any = None
        self.timer: asyncio.TimerHandle | None = None
        #: What came so far of a first request that may be one for MQTT; None: it is none.
        self.begun: bytes | None = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        guards = self.guards
        self.transport = transport
        guards.present[transport] = self
        lack = guards.lack(transport.get_extra_info("socket").fileno())
        if lack:
            guards.turn_away(transport, lack)
            return
        if guards.mqtt is None and not self.be_http():
            return
        loop = asyncio.get_running_loop()
        self.timer = loop.call_later(guards.timeout, self.read_first)

    def be_http(self) -> bool:
        """The library takes the connection, if there is room; whether it does.

        All calls still come here first: the event loop knows us by our methods.
        """
        guards = self.guards
        if guards.talking >= guards.most:
            reason = f"{guards.most} speak HTTP, which is a quarter of the files (ulimit -n)"
            guards.turn_away(self.transport, reason)
            return False
        self.begun = None
        guards.talking += 1
        sock = self.transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(KEEP_ALIVE * 1000))
        self.inner.connection_made(self.transport)
        return True

    def data_received(self, data: bytes) -> None:
        """The beginning of the first request: who takes it, and all that follows?"""
        if self.begun is None:
            self.inner.data_received(data)
            return
        begun = self.begun + data
        if len(begun) < _LONGEST and any(each.startswith(begun) for each in _MQTT):
            self.begun = begun
        elif begun.startswith(_MQTT):
            self.be_mqtt(begun)
        elif (spoken := protocol_of(begun[:FIRST_BYTES])) not in ("", "HTTP"):
            self.guards.refuse(self.transport, spoken + " instead of HTTP")
        elif self.be_http():
            self.inner.data_received(begun)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received() if self.begun is None else None

    def pause_writing(self) -> None:
        if self.begun is None:
            self.inner.pause_writing()

    def resume_writing(self) -> None:
        if self.begun is None:
            self.inner.resume_writing()

    def be_mqtt(self, begun: bytes) -> None:
        """MQTT takes the connection."""
        mqtt, transport = self.guards.mqtt, self.transport
        assert mqtt is not None
        self.passed()
        del self.guards.present[transport]
        mqtt.take_over(transport, begun)

    def read_first(self) -> None:
        """The loop may have been late itself: what came in time lies unread, and timers come before sockets."""
        self.timer = asyncio.get_running_loop().call_later(READ_FIRST, self.too_slow)

    def too_slow(self) -> None:
        self.guards.counters.http_timeouts += 1
        self.guards.refuse(self.transport, "no request within http_request_timeout")

    def passed(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def connection_lost(self, error: Exception | None) -> None:
        self.passed()
        self.guards.present.pop(self.transport, None)
        if self.begun is None:
            self.guards.talking -= 1
            self.inner.connection_lost(error)

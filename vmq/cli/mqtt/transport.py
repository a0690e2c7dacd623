"""The byte streams below the client of `vmq pub` and `vmq sub`, as amqtt wants them.

amqtt can open them itself, but not to an IPv6 address by WebSocket; it refuses frames above 1 MiB; and when a WebSocket
ends inside a packet, it makes up the rest out of the last frame.
"""

import asyncio
import os
import socket
import ssl
from typing import Final

import websockets
from amqtt.adapters import (
    ReaderAdapter,
    StreamReaderAdapter,
    StreamWriterAdapter,
    WebSocketsWriter,
    WriterAdapter,
)
from websockets.asyncio.client import ClientConnection

from vmq.cli.mqtt.target import BrokerTarget
from vmq.cli.mqtt.tls import explain

CLOSE_TIMEOUT: Final = 5.0


async def open_streams(
    target: BrokerTarget, context: ssl.SSLContext | None = None
) -> "tuple[ReaderAdapter, StreamWriter | WebSocketWriter]":
    """Connect to a broker: by TCP, a Unix socket or WebSocket, over TLS if there is a context.

    Raises:
        OSError: nobody answers there, or (SSLError) not as TLS demands.
        WebSocketException: whoever answers has no MQTT over WebSocket there.
    """
    if target.scheme == "unix":
        reader, writer = await asyncio.open_unix_connection(target.path)
        return StreamReaderAdapter(reader), StreamWriter(writer)
    sock = await _open_socket(target.host, target.port)
    name = None if context is None else target.host
    if not target.is_websocket:
        reader, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname=name)
        return StreamReaderAdapter(reader), StreamWriter(writer)
    channel = await _open_websocket(target, sock, context)
    return WebSocketReader(channel), WebSocketWriter(channel)


async def _open_websocket(
    target: BrokerTarget, sock: socket.socket, context: ssl.SSLContext | None
) -> ClientConnection:
    """A WebSocket on a connected socket; raises as `open_streams`."""
    alerts: list[ssl.SSLError] = []

    class Channel(ClientConnection):
        """Keeps what ends a handshake from within TLS: the library tells of a missing answer only."""

        def connection_lost(self, exc: Exception | None) -> None:
            if isinstance(exc, ssl.SSLError):
                alerts.append(exc)
            super().connection_lost(exc)

    try:
        return await websockets.connect(
            target.url,
            sock=sock,
            ssl=context,
            server_hostname=None if context is None else target.host,
            subprotocols=[websockets.Subprotocol("mqtt")],
            compression=None,
            max_size=None,  # MQTT has a limit of its own
            ping_interval=None,  # and a keep-alive
            open_timeout=None,  # the caller has one
            close_timeout=2 * CLOSE_TIMEOUT,  # `_Ending` gives up before
            create_connection=Channel,
        )
    except websockets.WebSocketException:
        if alerts:
            raise alerts[0] from None
        raise


class _Ending(WriterAdapter):  # type: ignore[misc]  # amqtt has no types
    """A writer whose end everybody who asks for it awaits.

    Several tasks of amqtt's close one writer. Its own writers have the first wait for the end of the connection; to the
    others it is closed at once. Then the event loop went before what was still to be sent, and before the socket.
    """

    _end: asyncio.Task[None] | None = None
    #: Bytes that were written and have not been sent when the connection ended.
    unsent = 0

    async def close(self) -> None:
        """Send what was written, and close; what takes longer than CLOSE_TIMEOUT is given up.

        Returns when the socket is closed, and raises nothing. `unsent` says what did not go out.
        """
        if self._end is None:
            self._end = asyncio.create_task(self._finish())
        await asyncio.shield(self._end)

    async def _finish(self) -> None:
        left = waiting_in(self._transport())
        closing = asyncio.create_task(self._close())
        try:
            await asyncio.wait({closing}, timeout=CLOSE_TIMEOUT)
        finally:
            if not closing.done():
                self.unsent = waiting_in(self._transport())
                self._transport().abort()
        (problem,) = await asyncio.gather(closing, return_exceptions=True)
        if isinstance(problem, OSError):
            self.unsent = left  # at most: it went with the connection

    async def _close(self) -> None:
        """Close in good order; returns when the connection has ended. Raises OSError if it broke off."""
        raise NotImplementedError

    def _transport(self) -> asyncio.WriteTransport:
        """What is written to."""
        raise NotImplementedError


def waiting_in(transport: asyncio.WriteTransport) -> int:
    """Bytes that were written to a transport and that the system has not taken yet."""
    # asyncio's TLS counts what is on this side of it alone, and shows the transport below it to nobody.
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    return transport.get_write_buffer_size() + (
        0 if below is None else below.get_write_buffer_size()
    )


class StreamWriter(_Ending, StreamWriterAdapter):  # type: ignore[misc]  # amqtt has no types
    """A stream to write packets to."""

    async def _close(self) -> None:
        self.is_closed = True
        # Closed twice, a transport of TLS could not be aborted any more.
        if not self._writer.is_closing():
            self._writer.close()
        await self._writer.wait_closed()

    def _transport(self) -> asyncio.WriteTransport:
        found: asyncio.WriteTransport = self._writer.transport
        return found


class WebSocketReader(ReaderAdapter):  # type: ignore[misc]  # amqtt has no types
    """The binary frames of a WebSocket as one stream."""

    def __init__(self, channel: ClientConnection) -> None:
        self._channel = channel
        self._buffer = bytearray()

    async def read(self, n: int = -1) -> bytes:
        """`n` bytes, or fewer when the connection has ended."""
        while len(self._buffer) < n:
            try:
                frame = await self._channel.recv()
            except websockets.ConnectionClosed:
                break
            self._buffer += frame.encode() if isinstance(frame, str) else frame
        data = bytes(self._buffer[:n])
        del self._buffer[:n]
        return data

    def feed_eof(self) -> None:
        """Part of amqtt's interface; nothing to do."""


class WebSocketWriter(_Ending, WebSocketsWriter):  # type: ignore[misc]  # amqtt has no types
    """A WebSocket to write packets to, one a frame."""

    async def _close(self) -> None:
        await self._protocol.close()

    def _transport(self) -> asyncio.WriteTransport:
        found: asyncio.WriteTransport = self._protocol.transport
        return found

    async def drain(self) -> None:
        """Send what was written."""
        try:
            await super().drain()
        except websockets.ConnectionClosed as problem:
            # The error of a lost connection that amqtt knows.
            raise ConnectionResetError(str(problem)) from None


async def _open_socket(host: str, port: int) -> socket.socket:
    """A socket connected to the first address of the host that answers. Raises the last one's OSError."""
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    problem = OSError(f"no address for {host}")
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            problem = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise problem


def reason(problem: OSError) -> str:
    """The system's words for an error, without asyncio's additions; for TLS our own."""
    if isinstance(problem, ssl.SSLError):
        return explain(problem)
    if isinstance(problem, socket.gaierror) or not problem.errno:
        return (problem.strerror or str(problem)).lower()
    return os.strerror(problem.errno).lower()

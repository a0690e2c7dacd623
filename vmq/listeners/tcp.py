"""The TCP listener, for IPv4 and IPv6."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

from vmq.connection import Connection


def bind(host: str, port: int, backlog: int) -> socket.socket:
    """A listening socket.

    Raises:
        OSError: the address cannot be had.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind(address)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock


def prepare(transport: Any, write_buffer: int) -> None:
    """Sets the high-water mark. TCP_NODELAY is set by both event loops, and writes are gathered."""
    transport.set_write_buffer_limits(high=write_buffer)


async def listen(
    sock: socket.socket, factory: Callable[[], Connection], backlog: int
) -> asyncio.Server:
    """Serves connections on a listening socket."""
    loop = asyncio.get_running_loop()
    protocol_factory = cast("Callable[[], asyncio.Protocol]", factory)
    return await loop.create_server(protocol_factory, sock=sock, backlog=backlog)

"""Connections that the supervisor hands to a worker.

A listener of HTTP is the supervisor's; what comes to `/mqtt` of it is a worker's. The supervisor reads the beginning of
the first request (`vmq.http.guard`), then the worker gets the socket itself, with what was read, over a pair of sockets
that the two alone have: no byte of such a client passes through the supervisor after that.
"""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from vmq.listeners.sockets import AcceptedSocket

#: Bytes that may have been read of a connection, and those of the longest message.
MOST_BEGUN: Final = 131_072
_LONGEST: Final = MOST_BEGUN + 4096
#: Connections that are taken in one turn of the event loop.
_BATCH: Final = 32


class Handed(Struct, frozen=True, array_like=True):
    """What goes with a connection: the listener that it came to, its address family, and what was read."""

    listener: str
    family: int
    begun: bytes


_decoder: Final = msgspec.msgpack.Decoder(Handed)


def pair() -> tuple[socket.socket, socket.socket]:
    """The supervisor's end, and the worker's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    return ours, theirs


def hand_over(sock: socket.socket, handed: Handed, file: int) -> bool:
    """Gives a connection to the worker at the other end; False: it takes none now, or is gone."""
    if len(handed.begun) > MOST_BEGUN:
        return False
    try:
        socket.send_fds(sock, [msgspec.msgpack.encode(handed)], [file])
    except OSError:
        return False
    return True


class Receiver:
    """The worker's end.

    Args:
        sock: of `pair`; closed by `close`.
        take: is given each connection, and owns its socket.
    """

    def __init__(self, sock: socket.socket, take: Callable[[Handed, AcceptedSocket], None]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._take = take
        #: How many came so far, by listener; also those whose descriptor was lost on the way, for want of files here.
        self.taken: Counter[str] = Counter()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(sock.fileno(), self._ready)

    def close(self) -> None:
        """Takes none any more."""
        if self._sock.fileno() >= 0:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()

    def _ready(self) -> None:
        for _ in range(_BATCH):
            try:
                data, files, _, _ = socket.recv_fds(self._sock, _LONGEST, 1)
            except BlockingIOError:
                return
            except OSError:
                data, files = b"", []
            if not data:
                self.close()  # the supervisor is gone
                return
            handed = _decoder.decode(data)
            self.taken[handed.listener] += 1
            for file in files:
                os.set_inheritable(file, False)  # `recv_fds` passes no flags on that would say so
                self._take(handed, AcceptedSocket(handed.family, 0, file))

"""uvloop's own server, for clients that come one by one.

It makes a transport for less than `connect_accepted_socket` takes. But it knows no pause; it takes one client a turn
of the event loop, however many wait; and where there is no file left it closes everybody who waits, and tells nobody.
So it is used only while there is nothing to decide, and gives the socket back at the first sign of anything else. That
a next client can have a file is looked at each time, and that some are left for what opens others before it comes.
"""

import asyncio
import logging
import os
import resource
import select
import sys
from collections.abc import Callable
from socket import socket
from typing import Any, Final

from vmq.core.context import Core

log = logging.getLogger("vmq.listeners")

#: Files that clients leave to the broker itself: to store and streams, the log, its operator.
SPARE: Final = 16
#: After so many clients it looks whether another one waits.
LOOK: Final = 8


def end_of_files() -> int:
    """The first number of a file that no client is to have: who opens a file gets the lowest free one."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return sys.maxsize if most == resource.RLIM_INFINITY else most - SPARE


def has_file(file: int, end: int) -> bool:
    """Whether the next client can have one below `end`; `file` is an open one."""
    try:
        found = os.dup(file)
    except OSError:
        return False
    os.close(found)
    return found < end


class SingleServer:
    """Takes clients off a listening socket, between `start` and the moment when it gives that back.

    Args:
        sock: the listening socket, and how many may wait there; the server has a descriptor of its own.
        core: clock, counters, and how late the loop was lately.
        max_drift: seconds that the loop may be late.
        offer: makes what takes the bytes of a client that is in already.
        may_offer: whether the next client may come in without having been looked at.
        gave_back: called when it takes nobody any more.
    """

    def __init__(
        self,
        sock: socket,
        backlog: int,
        core: Core,
        max_drift: float,
        offer: Callable[[], Any],
        may_offer: Callable[[], bool],
        gave_back: Callable[[], None],
    ) -> None:
        self.sock = sock
        self.file = sock.fileno()
        self.backlog = backlog
        self.core = core
        self.max_drift = max_drift
        self.offer = offer
        self.may_offer = may_offer
        self.gave_back = gave_back
        self.server: Any = None
        #: From this one on too few are left.
        self.end: int = end_of_files()
        #: Clients since the start.
        self.taken: int = 0
        self.waiting: Any = select.poll()
        self.waiting.register(sock, select.POLLIN)

    def start(self) -> bool:
        """Takes clients from now on; False if that is not safe now."""
        if self.server is not None or not self.may_offer() or not self.is_safe():
            return False
        try:
            own = self.sock.dup()
        except OSError:
            return False
        loop = asyncio.get_running_loop()
        # It has a socket already, so that nothing in there waits: the first step is the last.
        making = loop.create_server(self.take, sock=own, backlog=self.backlog).__await__()
        try:
            next(making)
        except StopIteration as done:
            self.server = done.value
        except OSError:
            own.close()
        self.taken = 0
        return self.server is not None

    def is_safe(self) -> bool:
        """Whether the loop is in time, and the next client can have a file."""
        return self.core.loop_lag <= self.max_drift and has_file(self.file, self.end)

    def take(self) -> Any:
        """A client is in: returns what takes its bytes."""
        self.taken += 1
        try:
            protocol = self.offer()
        except Exception:
            # Raised into uvloop it would have the server take nobody any more, and say that it does.
            log.exception("internal error: a client cannot be let in")
            return Nobody()
        if (
            not self.may_offer()
            or not self.is_safe()
            or (self.taken % LOOK == 0 and self.waiting.poll(0))
        ):
            # The client is the server's until this call is over.
            asyncio.get_running_loop().call_soon(self.give_back)
        return protocol

    def give_back(self) -> None:
        """Takes nobody any more, and says so. Not within `take`."""
        if self.server is not None:
            self.stop()
            self.gave_back()

    def stop(self) -> None:
        """Takes nobody any more; who is in stays."""
        server = self.server
        self.server = None
        if server is not None:
            server.close()


class Nobody:
    """What takes the bytes of a client that could not be let in: none."""

    def connection_made(self, transport: Any) -> None:
        transport.abort()

    def data_received(self, _data: bytes) -> None:
        """Nothing is read."""

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        """Nobody is told."""

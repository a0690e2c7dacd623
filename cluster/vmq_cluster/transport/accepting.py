"""Takes connections off a listening socket, and none is left open when that closes.

asyncio's own server forgets one that it has accepted and not handed on yet when it is closed.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

#: Seconds until it is tried again where there are no files or no memory left.
_PAUSE = 0.5


class Accepting:
    """From its making until `close`.

    Args:
        listening: the socket, which is listening and does not block; closed by `close`.
        connection: makes the protocol of each connection.
        warn: told when nobody can be accepted.
    """

    def __init__(
        self, listening: socket.socket, connection: Callable[[], Any], warn: Callable[[str], object]
    ) -> None:
        self._listening = listening
        self._connection = connection
        self._warn = warn
        self._loop = asyncio.get_running_loop()
        self._making: set[asyncio.Task[Any]] = set()
        self._is_closed = False
        self._begin()

    def _begin(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        try:
            accepted, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as error:
            self._warn(f"cannot accept a node of this machine: {error.strerror}")
            self._loop.remove_reader(self._listening.fileno())
            self._loop.call_later(_PAUSE, self._begin)
            return
        accepted.setblocking(False)
        making = self._loop.connect_accepted_socket(self._connection, accepted)
        task = self._loop.create_task(making)
        self._making.add(task)
        task.add_done_callback(self._made)

    def _made(self, task: "asyncio.Task[Any]") -> None:
        self._making.discard(task)
        if not task.cancelled():
            task.exception()  # it is gone already

    def close(self) -> None:
        """Who was accepted before has a protocol soon, which is to close it."""
        if not self._is_closed:
            self._is_closed = True
            self._loop.remove_reader(self._listening.fileno())
            self._listening.close()

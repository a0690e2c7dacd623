"""The one loop of the load generator: sockets that are ready, and publishers that may go on."""

import gc
import select
import selectors
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic_ns
from typing import Final, Protocol

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE
#: Bytes of one read. All connections share one buffer.
BUFFER: Final = 256 * 1024

_NANO: Final = 1_000_000_000
#: selectors rounds to milliseconds; shorter waits go by select(), which takes descriptors below 1024 only.
_PRECISE: Final = 0.02
_SELECTABLE: Final = 1024
#: Connections of the crowd that are served before the measured ones have their turn again.
_CROWD_TURN: Final = 8


class SocketReady(Protocol):
    """A connection that the loop tells about its socket."""

    def on_ready(self, events: int) -> None:
        """The socket can be read, written, or both."""


class Pumped(Protocol):
    """Something that may have more to send."""

    kicked: bool

    def pump(self) -> None:
        """Sends what it may."""


class Loop:
    """Waits for sockets and serves them.

    Connections come in two sorts: the measured ones, and a crowd that must not keep those waiting. A few of the crowd
    are served at a time, and between them all of the measured ones that are ready.
    """

    def __init__(self, buffer_size: int = BUFFER) -> None:
        self.buffer = bytearray(buffer_size)
        self.view = memoryview(self.buffer)
        self.now = monotonic_ns()
        self.up = 0
        self.ended = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.reads = 0
        self.writes = 0
        self.protocol_errors = 0
        #: Why the first connection ended before its time, or the first packet was wrong.
        self.first_problem = ""
        self._selector = selectors.DefaultSelector()
        self._crowd = selectors.DefaultSelector()
        self._crowd_ready: deque[tuple[SocketReady, int]] = deque()
        self._kicked: list[Pumped] = []
        self._selector.register(self._crowd_fd(), READ, None)

    def _crowd_fd(self) -> int:
        descriptor = self._crowd.fileno()
        assert isinstance(descriptor, int)
        return descriptor

    def problem(self, text: str) -> None:
        """Remembers the first thing that went wrong."""
        self.first_problem = self.first_problem or text

    def protocol_error(self, text: str) -> None:
        """The broker sent what it must not send."""
        self.protocol_errors += 1
        self.problem(text)

    def register(self, descriptor: int, events: int, client: SocketReady, crowd: bool) -> None:
        """Has the loop call `client.on_ready`."""
        (self._crowd if crowd else self._selector).register(descriptor, events, client)

    def modify(self, descriptor: int, events: int, client: SocketReady, crowd: bool) -> None:
        """Changes what `client` waits for."""
        (self._crowd if crowd else self._selector).modify(descriptor, events, client)

    def unregister(self, descriptor: int, crowd: bool) -> None:
        """Forgets a descriptor, before it is closed."""
        (self._crowd if crowd else self._selector).unregister(descriptor)

    def kick(self, pumped: Pumped) -> None:
        """Has a publisher look, at the end of this step, whether it may send."""
        if not pumped.kicked:
            pumped.kicked = True
            self._kicked.append(pumped)

    def step(self, timeout: float) -> None:
        """Waits for up to `timeout` seconds, and serves what is ready."""
        if self._kicked or self._crowd_ready:
            timeout = 0
        elif 0 < timeout < _PRECISE:
            self._wait(timeout)
            timeout = 0
        for key, events in self._selector.select(timeout):
            if key.data is None:
                self._refill_crowd()
            else:
                key.data.on_ready(events)
        for _ in range(min(_CROWD_TURN, len(self._crowd_ready))):
            client, events = self._crowd_ready.popleft()
            client.on_ready(events)
        self._pump()

    def _wait(self, timeout: float) -> None:
        descriptor: int = self._selector.fileno()
        if descriptor < _SELECTABLE:
            select.select([descriptor], [], [], timeout)

    def _refill_crowd(self) -> None:
        if not self._crowd_ready:
            self._crowd_ready.extend((key.data, events) for key, events in self._crowd.select(0))

    def _pump(self) -> None:
        kicked, self._kicked = self._kicked, []
        self.now = monotonic_ns()
        for each in kicked:
            each.kicked = False
            each.pump()

    def run_for(self, seconds: float) -> None:
        """Serves connections for some time."""
        end = monotonic_ns() + int(seconds * _NANO)
        while (left := end - monotonic_ns()) > 0:
            self.step(left / _NANO)

    def close(self) -> None:
        """Gives the descriptors back. Every connection was closed before."""
        self._selector.close()
        self._crowd.close()


@contextmanager
def quiet_memory() -> Iterator[None]:
    """Keeps the garbage collector out of a measurement; what lives now is not looked at again.

    What somebody else has kept from it stays so.
    """
    was_enabled = gc.isenabled()
    others = gc.get_freeze_count()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        if not others:
            gc.unfreeze()
        if was_enabled:
            gc.enable()

"""The network between the nodes of a cluster, byte by byte: it cuts, holds, delays and heals.

Each node listens on a socket of its own and tells the others a socket here, from where its bytes go on. Who is at the
other end of a connection the kernel says: its process id.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from enum import Enum, auto
from typing import Any, Final

TIMEOUT: Final = 20.0
#: Seconds between two looks whether a node listens again.
KNOCK: Final = 0.02


class Fault(Enum):
    """What is wrong with the way between two nodes."""

    #: Connections end, and new ones do not come about.
    CUT = auto()
    #: Connections stay, and nothing comes through any more.
    HELD = auto()


class End(asyncio.Protocol):
    """One end of a connection; what comes here leaves at the other."""

    def __init__(self, links: Links, name: str, pid: int = 0) -> None:
        #: The node that listens.
        self.name = name
        #: The process that connected.
        self.pid = pid
        self.other: End | None = None
        self.transport: asyncio.Transport
        self._links = links
        #: What has come and is to leave in its turn, and when the last of it does: no bytes overtake others.
        self._waiting: deque[bytes] = deque()
        self._last = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._links.connections.add(self)
        self.follow()

    def follow(self) -> None:
        """Does what the fault between its nodes demands."""
        fault = self._links.fault_of(self)
        if fault is Fault.CUT:
            self.transport.abort()
        elif fault is Fault.HELD or self.other is None or self._links.is_deaf(self):
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        assert self.other is not None
        loop = asyncio.get_running_loop()
        self._last = max(self._last, loop.time() + self._links.seconds)
        # Of what is due at one time a loop does not say what comes first.
        self._waiting.append(data)
        loop.call_at(self._last, self._pass_on)

    def _pass_on(self) -> None:
        assert self.other is not None
        self.other.write(self._waiting.popleft())

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._links.connections.discard(self)
        if self.other is not None:
            self.other.transport.abort()


class Links:
    """Runs in a thread of its own. Where a node does not listen, nobody does here.

    Args:
        pids: the nodes that run, and their process ids; asked at each connection.
    """

    def __init__(self, pids: Callable[[], Mapping[str, int]]) -> None:
        self.faults: dict[frozenset[str], Fault] = {}
        #: Nodes of which the second hears nothing that the first says; connections stay.
        self.silences: set[tuple[str, str]] = set()
        self.connections: set[End] = set()
        #: How long everything takes from one node to another.
        self.seconds = 0.0
        self._pids = pids
        self._is_closing = False
        #: Where others reach nodes, by the path at which these listen.
        self._servers: dict[str, asyncio.Server] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def open(self, name: str, path: str) -> str:
        """The address where others reach the node that listens at a path."""

        asyncio.run_coroutine_threadsafe(self._serve(name, path), self._loop).result(TIMEOUT)
        return f"ipc://{path}.link"

    async def _serve(self, name: str, path: str) -> None:
        def accept() -> End:
            return _Accepted(self, name, path)

        self._servers[path] = await self._loop.create_unix_server(accept, f"{path}.link")

    async def _refuse(self, name: str, path: str) -> None:
        """The node's process has ended: connections are refused here as they are there, until it is back."""
        server = self._servers.pop(path, None)
        if server is None:
            return
        await self._shut(server)
        while not self._is_closing:
            try:
                _, writer = await asyncio.open_unix_connection(path)
            except OSError:
                await asyncio.sleep(KNOCK)
            else:
                writer.close()
                await self._serve(name, path)
                return

    def part(self, fault: Fault, one: Iterable[str], others: Iterable[str]) -> None:
        """Between each of these nodes and each of the others there is a fault."""
        pairs = [frozenset((a, b)) for a in one for b in others if a != b]
        self._do(lambda: self.faults.update(dict.fromkeys(pairs, fault)))

    def silence(self, one: str, for_others: Iterable[str]) -> None:
        """What a node says does not reach these others any more; what they say reaches it."""
        pairs = {(one, other) for other in for_others}
        self._do(lambda: self.silences.update(pairs))

    def heal(self) -> None:
        """Everything gets through again."""

        def change() -> None:
            self.faults.clear()
            self.silences.clear()

        self._do(change)

    def delay(self, seconds: float) -> None:
        """Everything takes so long, each way."""

        def change() -> None:
            self.seconds = seconds

        self._do(change)

    def close(self) -> None:
        """Ends all connections, and the thread."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(TIMEOUT)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT)
        self._loop.close()

    async def _close(self) -> None:
        self._is_closing = True
        await self._shut(*self._servers.values())
        await asyncio.gather(*self._tasks)
        await self._shut(*self._servers.values())  # a node may just have come back
        for _ in range(5):  # some may be accepted, and are told of their transport in the next turn
            while self.connections:
                for end in list(self.connections):
                    end.transport.abort()
                await asyncio.sleep(0)
            await asyncio.sleep(0)

    async def _shut(self, *servers: asyncio.Server) -> None:
        """Accepts nothing more. A server that is closed has no transports for what it has just accepted."""
        for server in servers:
            for each in server.sockets:
                self._loop.remove_reader(each.fileno())
        await asyncio.sleep(0)
        for server in servers:
            server.close()

    def _do(self, change: Callable[[], object]) -> None:
        async def carry_out() -> None:
            change()
            for end in list(self.connections):
                end.follow()

        asyncio.run_coroutine_threadsafe(carry_out(), self._loop).result(TIMEOUT)

    def fault_of(self, end: End) -> Fault | None:
        """What is wrong between the nodes of a connection."""
        if not self.faults:
            return None
        return self.faults.get(frozenset((end.name, self._peer_of(end))))

    def is_deaf(self, end: End) -> bool:
        """Whether what comes in at an end does not go on to whom it is for."""
        if not self.silences:
            return False
        way = (end.name, self._peer_of(end))
        return (way[::-1] if isinstance(end, _Accepted) else way) in self.silences

    def _peer_of(self, end: End) -> str:
        """The node that connected; "" if it runs no more, or is none that is known."""
        # Not sooner: a node connects before the tests know its process.
        return next((name for name, pid in self._pids().items() if pid == end.pid), "")

    def go_on(self, end: End, path: str) -> None:
        """Connects what came in to the node that it is for."""
        self._do_later(self._go_on(end, path))

    def _do_later(self, what: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _go_on(self, end: End, path: str) -> None:
        onward = End(self, end.name, end.pid)
        try:
            await self._loop.create_unix_connection(lambda: onward, path)
        except OSError as error:
            end.transport.abort()
            if isinstance(error, ConnectionRefusedError | FileNotFoundError):
                self._do_later(self._refuse(end.name, path))
            return
        if end.transport.is_closing() or onward.transport.is_closing():
            # Neither knows of the other yet: who is left would wait for an answer until it loses its patience.
            end.transport.abort()
            onward.transport.abort()
            return
        end.other, onward.other = onward, end
        end.follow()
        onward.follow()


class _Accepted(End):
    """An end that another node has connected to."""

    def __init__(self, links: Links, name: str, path: str) -> None:
        super().__init__(links, name)
        self._path = path

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.pid = pid_of(transport.get_extra_info("socket"))
        super().connection_made(transport)
        if not transport.is_closing():
            self._links.go_on(self, self._path)


def pid_of(connection: socket.socket) -> int:
    """The process at the other end of a connection of this machine."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", raw)[0]
    return pid

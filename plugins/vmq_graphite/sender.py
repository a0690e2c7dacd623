"""A connection to Graphite that comes back, and what waits for it meanwhile."""

import asyncio
import random
from collections import deque
from collections.abc import Callable

from vmq_hooks import Broker


class Sender:
    """Sends snapshots in order. While Graphite is away the newest of them are kept.

    The protocol has no acknowledgements: what the operating system took when the connection broke is
    lost. A snapshot that was not sent as a whole is sent again as a whole; Graphite takes the same
    figure of the same second twice without harm.

    Args:
        broker: for the log.
        host, port: Graphite.
        timeout: seconds for a connection, and for a snapshot to be taken.
        max_delay: the longest time between two attempts.
        max_bytes: of what waits; the oldest goes first.
        on_drop: called for each snapshot that goes.
        first_delay: seconds until the first new attempt; each further one waits twice as long.
    """

    def __init__(
        self,
        broker: Broker,
        host: str,
        port: int,
        *,
        timeout: float,
        max_delay: float,
        max_bytes: int,
        on_drop: Callable[[], None],
        first_delay: float = 1.0,
    ) -> None:
        self._broker = broker
        self._address = (host, port)
        self._timeout = timeout
        self._first_delay = first_delay
        self._max_delay = max_delay
        self._max_bytes = max_bytes
        self._on_drop = on_drop
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._arrived = asyncio.Event()

    def put(self, snapshot: bytes) -> None:
        """Adds a snapshot to what is to be sent."""
        self._waiting.append(snapshot)
        self._bytes += len(snapshot)
        while self._bytes > self._max_bytes and self._waiting:
            self._bytes -= len(self._waiting.popleft())
            self._on_drop()
        self._arrived.set()

    async def run(self) -> None:
        """Connects and sends, for ever."""
        host, port = self._address
        delay = self._first_delay
        complaint = ""
        while True:
            await self._wait_for_work()
            try:
                async with asyncio.timeout(self._timeout):
                    reader, writer = await asyncio.open_connection(host, port)
                self._broker.log.info("connected to Graphite at %s:%d", host, port)
                self._broker.set_problem("Graphite", "")
                delay, complaint = self._first_delay, ""
                try:
                    await self._send_until_closed(reader, writer)
                finally:
                    # Not closed: that would wait until a server that has stalled takes the rest.
                    writer.transport.abort()
                problem = "it closed the connection"
            except OSError as error:  # TimeoutError is one of them
                problem = str(error) or type(error).__name__
            text = f"no connection to Graphite at {host}:{port}: {problem}"
            self._broker.set_problem("Graphite", text)
            if text != complaint:
                complaint = text
                self._broker.log.warning(text)
            # Not all brokers of a cluster at the same moment.
            await asyncio.sleep(delay * random.uniform(0.5, 1.0))
            delay = min(delay * 2, self._max_delay)

    async def _wait_for_work(self) -> None:
        while not self._waiting:
            self._arrived.clear()
            await self._arrived.wait()

    async def _send_until_closed(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Sends what waits and what comes; returns when the far side has closed."""
        closed = asyncio.ensure_future(_wait_closed(reader))
        sending = asyncio.ensure_future(self._send(writer))
        try:
            await asyncio.wait({closed, sending}, return_when=asyncio.FIRST_COMPLETED)
            for task in (closed, sending):
                if task.done():
                    task.result()
        finally:
            for task in (closed, sending):
                task.cancel()
            await asyncio.gather(closed, sending, return_exceptions=True)

    async def _send(self, writer: asyncio.StreamWriter) -> None:
        while True:
            await self._wait_for_work()
            snapshot = self._waiting.popleft()
            self._bytes -= len(snapshot)
            try:
                writer.write(snapshot)
                async with asyncio.timeout(self._timeout):
                    await writer.drain()
            except BaseException:  # also when the far side closes, which cancels this
                self._waiting.appendleft(snapshot)
                self._bytes += len(snapshot)
                raise


async def _wait_closed(reader: asyncio.StreamReader) -> None:
    """Graphite says nothing, so the end of its stream is all that can come."""
    while await reader.read(4096):
        pass

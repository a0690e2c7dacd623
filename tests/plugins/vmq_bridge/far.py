"""The far side of a bridge: a real mosquitto that can be stopped, a link that can be cut, a scripted broker."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Any

from vmq_bridge import packets

from tests.support import servers
from vmq.testing.ports import lasting_port

START_TIMEOUT = 15.0
SUBSCRIBE = 8


class Mosquitto:
    """A mosquitto on loopback that remembers its sessions."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = lasting_port()
        folder.mkdir(exist_ok=True)
        self.log = folder / "mosquitto.log"
        lines = ["persistence true", f"persistence_location {folder}/"]
        lines += ["log_type all", "max_queued_messages 0", *options]
        if not any(each.startswith(("allow_anonymous", "require")) for each in options):
            lines.append("allow_anonymous true")
        self._lines = lines
        self._running = ExitStack()

    async def start(self) -> None:
        server = servers.mosquitto(self.log.parent, *self._lines, port=self.port)
        await asyncio.to_thread(self._running.enter_context, server)

    async def wait_log(self, text: str) -> None:
        deadline = monotonic() + START_TIMEOUT
        while text not in self.log.read_text():
            assert monotonic() < deadline, self.log.read_text()
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Stops it; it writes its sessions to disk first."""
        await asyncio.to_thread(self._running.close)


@asynccontextmanager
async def mosquitto(folder: Path, *options: str) -> AsyncIterator[Mosquitto]:
    """A mosquitto that runs, for as long as the context lasts."""
    far = Mosquitto(folder / "far", *options)
    await far.start()
    try:
        yield far
    finally:
        await far.stop()


class Link:
    """A TCP proxy. `cut` resets what goes through it, perhaps in the middle of a packet."""

    def __init__(self, to_port: int) -> None:
        self.port = lasting_port()
        #: Bytes that pass before it cuts by itself; None: it does not.
        self.budget: int | None = None
        self.accepted = 0
        self._to = to_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Accepts, on the port of before if it was open before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def close(self) -> None:
        """Accepts no more, and cuts."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()
        self._writers.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            # Cancelled at the end of the test, which the streams would log.
            with suppress(OSError, asyncio.CancelledError):
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
                self._writers.add(far_writer)
                await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            if self.budget is not None:
                data = data[: max(self.budget, 0)]
                self.budget -= len(data)
            writer.write(data)
            if self.budget == 0:
                self.budget = None
                self.cut()
                return
            await writer.drain()
        self.cut()


@asynccontextmanager
async def link(to_port: int) -> AsyncIterator[Link]:
    found = Link(to_port)
    await found.open()
    try:
        yield found
    finally:
        await found.close()


class Scripted:
    """A far broker of which a test says each step."""

    def __init__(self) -> None:
        self.port = 0
        self._connections: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = (
            asyncio.Queue()
        )
        self._transports: list[asyncio.WriteTransport] = []
        #: Topics of the PUBLISH packets that came.
        self.published: list[str] = []
        #: SUBSCRIBE packets that came.
        self.subscribed = 0

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._transports.append(writer.transport)
        self._connections.put_nowait((reader, writer))

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for each in self._transports:
                each.abort()
            await asyncio.sleep(0)  # the sockets are closed in the next turn

    async def welcome(self, *, knows: bool) -> None:
        """Takes the next connection; `knows` says session present."""
        self._reader, self._writer = await self._connections.get()
        assert (await packets.read_packet(self._reader, 1000)).kind == 1
        self._writer.write(bytes((0x20, 2, int(knows), 0)))

    def send(self, *data: bytes) -> None:
        self._writer.write(b"".join(data))

    async def expect(self, kind: int) -> packets.Packet:
        """The next packet of this kind; subscriptions in between are granted."""
        while True:
            packet = await packets.read_packet(self._reader, 1000)
            if packet.kind == SUBSCRIBE:
                self.subscribed += 1
                self.send(b"\x90\x03", packet.body[:2], b"\x02")
            if packet.kind == packets.PUBLISH:
                self.published.append(packets.read_publish(packet).topic)
            if packet.kind == kind:
                return packet

    def close(self) -> None:
        self._writer.transport.abort()

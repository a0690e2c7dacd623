"""The far side of a bridge: a real mosquitto that can be stopped and started, and a link that can be cut."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import IO, Any

from vmq.testing.ports import lasting_port

START_TIMEOUT = 15.0


class Mosquitto:
    """A mosquitto on loopback that remembers its sessions."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.port = lasting_port()
        folder.mkdir(exist_ok=True)
        self.log = folder / "mosquitto.log"
        self._config = folder / "mosquitto.conf"
        # As root it would become the user mosquitto, who cannot read a test's folder.
        lines = [f"listener {self.port} 127.0.0.1", "user root", "persistence true"]
        lines += [f"persistence_location {folder}/", "log_type all", "max_queued_messages 0"]
        if not any(each.startswith(("allow_anonymous", "require")) for each in options):
            lines.append("allow_anonymous true")
        self._config.write_text("\n".join([*lines, *options]) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def _run(self, output: IO[bytes]) -> subprocess.Popen[bytes]:
        command = ["mosquitto", "-c", str(self._config)]
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    async def start(self) -> None:
        with self.log.open("ab") as output:
            self._process = self._run(output)
        deadline = monotonic() + START_TIMEOUT
        while True:
            assert self._process.poll() is None, self.log.read_text()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                assert monotonic() < deadline, self.log.read_text()
                await asyncio.sleep(0.02)  # nothing tells when it listens
                continue
            writer.close()
            return

    async def wait_log(self, text: str) -> None:
        """Waits until it has logged this."""
        deadline = monotonic() + START_TIMEOUT
        while text not in self.log.read_text():
            assert monotonic() < deadline, self.log.read_text()
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Stops it; it writes its sessions to disk first."""
        if self._process is not None:
            self._process.terminate()
            await asyncio.to_thread(self._process.wait)
            self._process = None


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
    """A link that is open at first."""
    found = Link(to_port)
    await found.open()
    try:
        yield found
    finally:
        await found.close()

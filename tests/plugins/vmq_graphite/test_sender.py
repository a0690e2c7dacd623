"""The connection to Graphite: a real TCP server that comes and goes."""

import asyncio
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from vmq_graphite.sender import Sender
from vmq_hooks.testing import FakeBroker

from vmq.testing.ports import lasting_port

TIMEOUT = 30.0


class Graphite:
    """A server on a port of its own that collects lines."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[str] = asyncio.Queue()
        self.port = lasting_port()
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    async def start(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, reuse_address=True
        )

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            async for line in reader:
                self.lines.put_nowait(line.decode())
        except OSError:
            pass

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self.cut()
            await self._server.wait_closed()
            self._server = None

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def next(self, count: int = 1) -> list[str]:
        async with asyncio.timeout(TIMEOUT):
            return [await self.lines.get() for _ in range(count)]


@asynccontextmanager
async def graphite() -> AsyncIterator[Graphite]:
    server = Graphite()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def sender(
    broker: FakeBroker, port: int, drops: Mock, *, max_bytes: int = 1000, timeout: float = 5.0
) -> Sender:
    return Sender(
        broker,
        "127.0.0.1",
        port,
        timeout=timeout,
        max_delay=0.05,
        max_bytes=max_bytes,
        on_drop=drops,
        first_delay=0.01,
    )


async def test_it_comes_back_after_a_cut(tmp_path: Path, heard: asyncio.Queue[str]) -> None:
    async with graphite() as server, FakeBroker(tmp_path) as broker:
        sending = sender(broker, server.port, Mock())
        broker.spawn(sending.run())
        for index in range(3):
            sending.put(b"%d\n" % index)
            assert await server.next() == [f"{index}\n"]
            assert "connected to Graphite" in await heard.get()
            assert not broker.problems
            server.cut()
            line = await heard.get()
            assert "no connection to Graphite" in broker.problems["Graphite"] in line


async def test_what_came_while_graphite_was_away_is_sent_then(
    tmp_path: Path, heard: asyncio.Queue[str]
) -> None:
    async with graphite() as server, FakeBroker(tmp_path) as broker:
        sending = sender(broker, server.port, Mock())
        broker.spawn(sending.run())
        sending.put(b"0\n")
        assert await server.next() == ["0\n"]
        await server.stop()
        while "no connection" not in await heard.get():
            pass
        sending.put(b"1\n")
        while "Connect call failed" not in await heard.get():
            pass
        sending.put(b"2\n")
        await server.start()
        assert await server.next(2) == ["1\n", "2\n"]


async def test_the_newest_are_kept(tmp_path: Path) -> None:
    drops = Mock()
    async with graphite() as server, FakeBroker(tmp_path) as broker:
        sending = sender(broker, server.port, drops, max_bytes=10)
        for index in range(6):
            sending.put(b"%d__\n" % index)
        assert drops.call_count == 4
        broker.spawn(sending.run())
        assert await server.next(2) == ["4__\n", "5__\n"]


async def test_a_snapshot_larger_than_the_buffer_is_dropped(tmp_path: Path) -> None:
    drops = Mock()
    async with graphite() as server, FakeBroker(tmp_path) as broker:
        sending = sender(broker, server.port, drops, max_bytes=10)
        broker.spawn(sending.run())
        sending.put(b"much too long\n")
        sending.put(b"short\n")
        assert await server.next() == ["short\n"]
        assert drops.call_count == 1


async def test_a_server_that_takes_nothing_is_given_up(
    tmp_path: Path, heard: asyncio.Queue[str]
) -> None:
    """It accepts, by the kernel's backlog, and never reads. What it was to get, the next one gets."""
    lines = [f"{index:059999}\n" for index in range(280)]  # more than the kernel buffers
    data = "".join(lines).encode()
    server = Graphite()
    async with FakeBroker(tmp_path) as broker, asyncio.timeout(TIMEOUT):
        with socket.socket() as deaf:
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            deaf.bind(("127.0.0.1", server.port))
            deaf.listen()
            sending = sender(broker, server.port, Mock(), max_bytes=len(data), timeout=0.1)
            broker.spawn(sending.run())
            sending.put(data)
            while "TimeoutError" not in await heard.get():
                pass
            sending._timeout = TIMEOUT  # the next one reads, however slowly
        try:
            await server.start()
            assert await server.next(len(lines)) == lines
        finally:
            await server.stop()


async def test_attempts_are_further_and_further_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = lasting_port()  # where nobody listens
    delays: asyncio.Queue[float] = asyncio.Queue()
    sleep = asyncio.sleep

    async def remember(delay: float) -> None:
        delays.put_nowait(delay)
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", remember)
    monkeypatch.setattr(random, "uniform", lambda low, high: high)
    async with FakeBroker(tmp_path) as broker, asyncio.timeout(TIMEOUT):
        sending = sender(broker, port, Mock())
        broker.spawn(sending.run())
        sending.put(b"x\n")
        assert [await delays.get() for _ in range(5)] == [0.01, 0.02, 0.04, 0.05, 0.05]

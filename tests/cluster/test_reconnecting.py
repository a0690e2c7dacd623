"""Connections that die without a word: the link gives them up, and makes new ones."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
import zmq
from zmq.utils.monitor import parse_monitor_message

from tests.cluster.test_link import KEY, LOOPBACK, End

#: Seconds that the links of these tests bear with silence; and the tests, where that is borne with ten times.
PATIENCE = 0.4
TIMEOUT = 20.0

#: Bytes of a handshake, at least, each way: what is said after that is said to one that has been greeted.
HANDSHAKE = {None: 80, KEY: 200}


@dataclass
class Swallower:
    """What lies between two nodes: of the first connections it swallows all behind some byte, and says nothing."""

    target: str
    #: How many bytes of each of these get through: of the one that connects, of the one that listens.
    limits: list[tuple[int, int]]
    connections: int = 0

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carries the bytes of one connection."""
        limits: tuple[int | None, int | None] = (None, None)
        if self.connections < len(self.limits):
            limits = self.limits[self.connections]
        self.connections += 1
        host, _, port = self.target.removeprefix("tcp://").rpartition(":")
        there = await asyncio.open_connection(host, int(port))
        ways = (_pump(reader, there[1], limits[0]), _pump(there[0], writer, limits[1]))
        try:
            # Who is swallowed hears of the end of the other, which is the end of both.
            await asyncio.wait([asyncio.ensure_future(way) for way in ways])
        finally:
            for each in (writer, there[1]):
                each.close()


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None
) -> None:
    """Carries bytes one way, or as many as may pass."""
    try:
        while data := await reader.read(4096):
            writer.write(data if limit is None else data[:limit])
            if limit is not None:
                limit -= len(data[:limit])
    except OSError:
        pass
    writer.close()


@asynccontextmanager
async def swallowing(swallower: Swallower) -> AsyncIterator[str]:
    """The address to connect to."""
    with closing(await asyncio.start_server(swallower.carry, "127.0.0.1", 0)) as server:
        yield f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@pytest.mark.parametrize("key", [None, KEY], ids=["open", "curve"])
async def test_a_handshake_that_stops_half_way_is_begun_anew(
    ends: list[End], key: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever it stops, and however often: the first attempt that nothing is wrong with links. Nobody is accused."""
    random = Random(5)
    inside, outside = End("inside", key, PATIENCE), End("outside", key, PATIENCE)
    ends += [inside, outside]
    most = HANDSHAKE[key]
    lost = [random.choice([(random.randrange(most), most), (most, random.randrange(most))])]
    lost += [(random.randrange(most), random.randrange(most)) for _ in range(2)]
    swallower = Swallower(await inside.link.start(LOOPBACK), lost)
    await outside.link.start(LOOPBACK)
    async with swallowing(swallower) as address:
        outside.link.set_members({"inside": address})
        outside.link.send("inside", outside.frame())
        assert (await asyncio.wait_for(inside.frames.get(), TIMEOUT)).sender == "outside"
        # A few more, if this machine has so much to do that a greeting takes longer than that.
        assert len(lost) < swallower.connections <= len(lost) + 5
        await outside.link.stop()
    assert "refused" not in caplog.text


async def next_event(monitor: Any, wanted: int) -> Any:
    while True:
        assert await asyncio.to_thread(monitor.poll, 1000 * TIMEOUT), "no such event"
        event = parse_monitor_message(monitor.recv_multipart())
        if event["event"] == wanted:
            return event


async def test_an_attempt_that_nobody_answers_is_given_up(ends: list[End]) -> None:
    """The kernel's own limit is minutes: each of its repetitions takes as long as all before."""
    one = End("one", None, PATIENCE)
    ends.append(one)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        where = full.getsockname()
        # Whoever comes after this one is not answered: the kernel keeps no more for who does not accept.
        with socket.create_connection(where):
            dealer = one.link._dealer()
            monitor = dealer.get_monitor_socket(zmq.EVENT_CONNECT_RETRIED)
            try:
                dealer.connect(f"tcp://127.0.0.1:{where[1]}")
                for _ in range(2):
                    await next_event(monitor, zmq.EVENT_CONNECT_RETRIED)
            finally:
                dealer.disable_monitor()
                monitor.close()
                dealer.close(0)


async def test_a_connection_whose_bytes_nobody_acknowledges_is_given_up(ends: list[End]) -> None:
    """By the kernel, which knows of it: here, whether it was told how long to bear with that."""
    one = End("one", None, PATIENCE)
    ends.append(one)
    address = await one.link.start(LOOPBACK)
    dealer = one.link._dealer()
    monitor = dealer.get_monitor_socket(zmq.EVENT_CONNECTED)
    try:
        dealer.connect(address)
        event = await next_event(monitor, zmq.EVENT_CONNECTED)
        with socket.socket(fileno=os.dup(event["value"])) as connection:
            told = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert told == int(1000 * PATIENCE)
    finally:
        dealer.disable_monitor()
        monitor.close()
        dealer.close(0)

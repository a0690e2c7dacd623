"""A listener on a real socket, with the core in memory."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.support.until import until
from tests.support.wire import connect_packet
from tests.vmq.support import House
from vmq.config.options import Config, ListenerOptions
from vmq.listeners.listener import Listener
from vmq.protocol.connection import Connection

TIMEOUT = 30.0


class Opened:
    """A listener, and what it told of its connections."""

    def __init__(self, **options: Any) -> None:
        self.house = House()
        self.made: list[Connection] = []
        self.closed = asyncio.Event()
        config = Config(listeners={"a": ListenerOptions(url="tcp://127.0.0.1:0", **options)})
        new_id: Callable[[], str] = lambda: "id"  # noqa: E731
        self.listener = Listener(
            "a", config, self.house.registry, self.on_opened, self.on_closed, new_id
        )

    def on_opened(self, connection: Connection, listener: Listener) -> None:
        assert listener is self.listener
        self.made.append(connection)

    def on_closed(self, _connection: Connection) -> None:
        self.closed.set()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = self.listener.url.partition("://")[2].rpartition(":")
        return await asyncio.open_connection(host, int(port))

    async def session(self, client_id: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.connect()
        writer.write(connect_packet(client_id))
        assert await reader.readexactly(4) == b"\x20\x02\0\0"
        return reader, writer

    async def turns_away(self) -> bool:
        """Whether one more client is closed unanswered."""
        reader, writer = await self.connect()
        try:
            return await reader.read() == b""
        except ConnectionError:
            return True
        finally:
            await hang_up(writer)


@asynccontextmanager
async def listening(**options: Any) -> AsyncIterator[Opened]:
    """It takes connections, and is closed in the end."""
    opened = Opened(**options)
    await opened.listener.open()
    opened.listener.listen()
    async with asyncio.timeout(TIMEOUT):
        yield opened
    opened.listener.close()


async def hang_up(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


@pytest.mark.parametrize("proxied", [False, True])
async def test_a_connection_is_opened_counted_and_closed(proxied: bool) -> None:
    async with listening(proxy_protocol=proxied) as opened:
        assert opened.listener.is_open
        reader, writer = await opened.connect()
        header = b"PROXY TCP4 192.0.2.1 192.0.2.2 7 8\r\n" if proxied else b""
        writer.write(header + connect_packet("c"))
        assert await reader.readexactly(4) == b"\x20\x02\0\0"
        [connection] = opened.made
        host, port = writer.get_extra_info("sockname")
        assert connection.describe() == ("192.0.2.1:7" if proxied else f"{host}:{port}")
        assert opened.listener.connections == 1
        # What the transport is told: the session counts on it.
        assert connection.transport.get_write_buffer_limits()[1] == 262_144
        inner = connection.transport.get_extra_info("socket")
        assert inner.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await hang_up(writer)
        await opened.closed.wait()
    assert opened.listener.connections == 0
    assert opened.house.registry.subscribers == {}
    assert opened.house.core.counters.socket_error == 0


async def test_a_closed_listener_can_be_opened_again_and_keeps_its_connections() -> None:
    async with listening() as opened:
        reader, writer = await opened.session("c")
        opened.listener.close()
        assert not opened.listener.is_open
        with pytest.raises(ConnectionError):
            await opened.connect()
        writer.write(b"\xc0\0")
        assert await reader.readexactly(2) == b"\xd0\0"
        await opened.listener.open()
        opened.listener.listen()
        _, other = await opened.connect()
        await hang_up(other)
        await hang_up(writer)
        await opened.closed.wait()


async def test_closing_ends_those_in_a_handshake() -> None:
    opened = Opened(proxy_protocol=True)
    await opened.listener.open()
    opened.listener.listen()
    async with asyncio.timeout(TIMEOUT):
        reader, writer = await opened.connect()
        # Another that is refused has come after it.
        other, further = await opened.connect()
        further.write(b"none")
        with suppress(ConnectionError):
            assert await other.read() == b""
        await hang_up(further)
        assert opened.listener.connections == 1
        opened.listener.close()
        with suppress(ConnectionError):
            assert await reader.read() == b""
        await hang_up(writer)
    assert opened.made == []
    assert opened.listener.connections == 0


async def test_one_that_is_closed_before_it_is_made_leaves_the_others_theirs() -> None:
    listener = Opened().listener
    ended: list[str] = []

    def making(name: str, error: Exception | None) -> Iterator[None]:
        yield
        if error is not None:
            raise error
        ended.append(name)

    made = asyncio.get_running_loop().create_future()
    made.set_result(None)
    later = asyncio.get_running_loop().create_future()
    for name, error, waiter in (
        ("first", None, made),
        ("later", None, later),
        ("closed", RuntimeError("closed Transport handle and unset waiter"), made),
        ("last", None, made),
    ):
        each = making(name, error)
        next(each)
        listener._making.append((each, waiter))
    listener._end_made()
    assert ended == ["first", "last"]
    later.set_result(None)
    await until(lambda: ended == ["first", "last", "later"])
    assert listener._making == []


async def test_what_came_in_time_is_read_although_the_loop_was_late() -> None:
    async with listening(proxy_protocol=True) as opened:
        listener = opened.listener
        reader, writer = await opened.connect()
        await until(lambda: listener._limits.pending)
        (arrival,) = listener._limits.pending
        writer.write(b"PROXY TCP4 192.0.2.1 192.0.2.2 7 8\r\n" + connect_packet("c"))
        # The time is over before the loop has looked at the socket.
        listener._limits.read_first([arrival])
        assert await reader.readexactly(4) == b"\x20\x02\0\0"
        await hang_up(writer)
        await opened.closed.wait()
    assert listener._limits.pending == {}


async def test_those_over_the_limit_are_counted_as_errors() -> None:
    async with listening(max_connections=1) as opened:
        _, writer = await opened.session("c")
        assert await opened.turns_away()
        assert opened.listener.connections == 1
        assert opened.house.core.counters.socket_error == 1
        await hang_up(writer)
        await opened.closed.wait()

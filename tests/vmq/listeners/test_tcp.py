"""The TCP listener."""

import asyncio
import socket

import pytest

from tests.support.wire import connect_packet
from tests.vmq.support import House, MemoryTransport
from vmq.connection import Connection
from vmq.listeners.tcp import bind, listen, prepare

TIMEOUT = 10.0


@pytest.mark.parametrize(
    ("host", "family"),
    (
        ("127.0.0.1", socket.AF_INET),
        ("::1", socket.AF_INET6),
        ("localhost", None),
    ),
)
def test_binding_gives_a_socket_that_listens(host: str, family: int | None) -> None:
    with bind(host, 0, 16) as sock:
        assert family in (None, sock.family)
        assert sock.getsockname()[1] > 0
        assert not sock.getblocking()
        with socket.create_connection(sock.getsockname()[:2], timeout=TIMEOUT):
            """It is accepted into the backlog."""


def test_all_ipv6_addresses_leave_the_port_to_ipv4() -> None:
    with bind("::", 0, 16) as sock, bind("0.0.0.0", sock.getsockname()[1], 16) as other:
        assert other.getsockname()[1] == sock.getsockname()[1]


def test_a_port_that_is_taken_is_refused_and_nothing_stays_open() -> None:
    with bind("127.0.0.1", 0, 16) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            bind("127.0.0.1", port, 16)
    with bind("127.0.0.1", port, 16):
        """Free again."""


@pytest.mark.parametrize("host", ("192.0.2.7", "no-such-host.invalid"))
def test_an_address_of_somebody_else_is_refused(host: str) -> None:
    with pytest.raises(OSError, match=r".+"):
        bind(host, 0, 16)


def test_the_high_water_mark_is_set() -> None:
    transport = MemoryTransport()
    prepare(transport, 4096)
    assert transport.high_water == 4096


async def test_each_connection_gets_its_own_protocol() -> None:
    house = House()
    made: list[Connection] = []
    closed = asyncio.Event()

    def make() -> Connection:
        return Connection(house.registry, True, "id", made.append, lambda connection: closed.set())

    with bind("127.0.0.1", 0, 16) as sock:
        address = sock.getsockname()[:2]
        server = await listen(sock, make, 16)
        async with asyncio.timeout(TIMEOUT):
            reader, writer = await asyncio.open_connection(*address)
            writer.write(connect_packet("c"))
            assert await reader.readexactly(4) == b"\x20\x02\0\0"
            [connection] = made
            host, port = writer.get_extra_info("sockname")
            assert connection.describe() == f"{host}:{port}"
            writer.close()
            await writer.wait_closed()
            await closed.wait()
        server.close()
        await server.wait_closed()
    assert house.registry.subscribers == {}


async def test_replies_leave_without_delay() -> None:
    """Both event loops switch Nagle's algorithm off; `prepare` relies on it."""
    house = House()
    opened: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

    def make() -> Connection:
        return Connection(house.registry, True, "id", opened.set_result, lambda connection: None)

    with bind("127.0.0.1", 0, 16) as sock:
        address = sock.getsockname()[:2]
        server = await listen(sock, make, 16)
        async with asyncio.timeout(TIMEOUT):
            _, writer = await asyncio.open_connection(*address)
            connection = await opened
            inner = connection.transport.get_extra_info("socket")
            assert inner.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            writer.close()
            await writer.wait_closed()
            connection.abort()
        server.close()
        await server.wait_closed()

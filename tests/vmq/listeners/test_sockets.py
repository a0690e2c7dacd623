"""Listening sockets."""

import asyncio
import os
import socket
import stat
from pathlib import Path

import pytest
import uvloop

from vmq.broker import Broker
from vmq.config.options import BrokerOptions, Config, LimitOptions, ListenerOptions
from vmq.listeners.sockets import bind

TIMEOUT = 30.0


def listening(host: str, port: int) -> socket.socket:
    sock = bind(host, port)
    try:
        sock.listen(16)
    except BaseException:
        sock.close()
        raise
    return sock


@pytest.mark.parametrize(
    ("host", "family"),
    (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6), ("localhost", None)),
)
def test_binding_gives_a_socket_that_listens(host: str, family: int | None) -> None:
    with listening(host, 0) as sock:
        assert family in (None, sock.family)
        assert sock.getsockname()[1] > 0
        assert not sock.getblocking()
        with socket.create_connection(sock.getsockname()[:2], timeout=TIMEOUT):
            """It is accepted into the backlog."""


def test_all_ipv6_addresses_leave_the_port_to_ipv4() -> None:
    # Others of this machine listen on IPv4: the port is one that they leave.
    with listening("0.0.0.0", 0) as sock, listening("::", sock.getsockname()[1]) as other:
        assert other.getsockname()[1] == sock.getsockname()[1]


def test_a_port_that_is_taken_is_refused_and_nothing_stays_open() -> None:
    # An address that nobody else uses: the port is still free when it is wanted again.
    host = "127.11.7.3"
    with listening(host, 0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(OSError, match="in use"):
            listening(host, port)
    with listening(host, port):
        """Free again."""


def test_nobody_gets_in_before_the_socket_listens() -> None:
    with bind("127.0.0.1", 0) as sock:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(sock.getsockname(), timeout=TIMEOUT)
        sock.listen(16)
        with socket.create_connection(sock.getsockname(), timeout=TIMEOUT):
            """Now."""


@pytest.mark.parametrize("host", ("192.0.2.7", "no-such-host.invalid"))
def test_an_address_of_somebody_else_is_refused(host: str) -> None:
    with pytest.raises(OSError, match=r".+"):
        listening(host, 0)


def is_connection(file: int) -> bool:
    """Whether it is a socket, and none that listens."""
    if not stat.S_ISSOCK(os.fstat(file).st_mode):
        return False
    sock = socket.socket(fileno=file)
    try:
        return not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    finally:
        sock.detach()


@pytest.mark.parametrize("most", [0, 100])
def test_the_event_loop_does_not_close_a_descriptor_twice(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvloop closes the descriptor itself; what it closes as well may be another's file."""
    closed: list[int] = []
    close = os.close

    def close_file(fd: int) -> None:
        """The broker's other threads close files of theirs meanwhile, as they should."""
        if is_connection(fd):
            closed.append(fd)
        else:
            close(fd)

    async def come_and_go() -> None:
        config = Config(
            broker=BrokerOptions(data_dir=str(tmp_path)),
            listeners={"tcp": ListenerOptions(url="tcp://127.0.0.1:0")},
            # With a limit by address all come through our own accepting.
            limits=LimitOptions(max_connections_per_ip=most),
        )
        async with Broker(config) as broker:
            port = int(broker.addresses[0].rpartition(":")[2])
            monkeypatch.setattr(os, "close", close_file)
            for _ in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"\xff\x00")
                assert await reader.read() == b""
                writer.close()
                await writer.wait_closed()
            monkeypatch.undo()

    uvloop.run(come_and_go())
    assert closed == []

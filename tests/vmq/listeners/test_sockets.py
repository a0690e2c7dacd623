"""Listening sockets."""

import socket

import pytest

from vmq.listeners.sockets import bind

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

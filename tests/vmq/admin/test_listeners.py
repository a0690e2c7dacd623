"""Listeners that open and close while the broker runs."""

import socket

import pytest
from vmq_hooks import Refuse

from tests.support.peer import Peer
from vmq.admin.errors import NotFoundError, RefusedError
from vmq.admin.listeners import list_listeners, start_listener, stop_listener
from vmq.broker import Broker


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def test_a_listener_stops_and_starts(node: Broker) -> None:
    row = list_listeners(node)[0]
    assert (row.name, row.status, row.allow_anonymous) == ("tcp", "running", True)
    assert [row.url] == node.addresses
    peer = Peer(node.registry(), "me")

    stopped = stop_listener(node, "tcp")
    assert (stopped.status, stopped.url) == ("stopped", "tcp://127.0.0.1:0")
    assert node.addresses == []
    assert peer.is_open
    with pytest.raises(RefusedError, match="stopped already"):
        stop_listener(node, "tcp")

    started = await start_listener(node, "tcp")
    assert started.status == "running"
    assert [started.url] == node.addresses
    with pytest.raises(RefusedError, match="runs already"):
        await start_listener(node, "tcp")


async def test_an_address_that_is_taken_refuses(node: Broker) -> None:
    stop_listener(node, "tcp")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = node.config.listeners["tcp"]
        node.config.listeners["tcp"] = type(options)(url=f"tcp://127.0.0.1:{port}")
        with pytest.raises(RefusedError, match="cannot listen"):
            await start_listener(node, "tcp")


async def test_an_unknown_name_names_the_known_ones(node: Broker) -> None:
    with pytest.raises(NotFoundError, match="no listener 'x'; accepted: tcp"):
        stop_listener(node, "x")
    with pytest.raises(NotFoundError):
        await start_listener(node, "x")


async def test_loopback_is_shown_as_open_until_a_plugin_knows_clients(node: Broker) -> None:
    assert list_listeners(node)[0].allow_anonymous is True
    node.hooks.auth_on_register = lambda *_given: Refuse("no")
    assert list_listeners(node)[0].allow_anonymous is False
    node.hooks.auth_on_register = None
    assert list_listeners(node)[0].allow_anonymous is True

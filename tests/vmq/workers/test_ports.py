import socket
from urllib.parse import urlsplit

import pytest

from vmq.config.options import Config, ListenerOptions
from vmq.listeners.sockets import bind
from vmq.workers.ports import PortError, Ports

CONFIG = Config(
    listeners={
        "tcp": ListenerOptions(url="tcp://127.0.0.1:0"),
        "ws": ListenerOptions(url="ws://127.0.0.1:0/mqtt"),
        "unix": ListenerOptions(url="unix:///tmp/none.sock"),
        "http": ListenerOptions(url="http://127.0.0.1:0"),
    }
)


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port
    return port


def test_ports_are_found_for_what_workers_share_and_let_go_at_the_end() -> None:
    ports = Ports()
    urls = ports.reserve(CONFIG)
    assert set(urls) == {"tcp", "ws"}
    assert urls["ws"].endswith("/mqtt")
    port = port_of(urls["tcp"])
    with bind("127.0.0.1", port, shared=True), bind("127.0.0.1", port, shared=True):
        pass
    ports.close()
    bind("127.0.0.1", port).close()


def test_a_port_is_for_nobody_else_who_shares() -> None:
    ports = Ports()
    port = port_of(ports.reserve(CONFIG)["tcp"])
    taken = Config(listeners={"mine": ListenerOptions(url=f"tcp://127.0.0.1:{port}")})
    with bind("127.0.0.1", port, shared=True) as sock:
        sock.listen(1)
        with pytest.raises(PortError, match=rf"listeners\.mine: cannot listen on .*:{port}: "):
            Ports().reserve(taken)
        with pytest.raises(OSError, match="in use"):
            bind("127.0.0.1", port)
    ports.close()


def test_nobody_connects_to_what_is_only_reserved() -> None:
    ports = Ports()
    port = port_of(ports.reserve(CONFIG)["tcp"])
    with bind("127.0.0.1", port, shared=True) as listening:
        listening.listen(8)
        for _ in range(8):
            with socket.create_connection(("127.0.0.1", port), 5):
                listening.accept()[0].close()
    ports.close()

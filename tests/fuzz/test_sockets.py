"""A live broker under attack, and what the fuzzer says when it finds something."""

import contextlib
import socket

import pytest

from tests.conftest import BrokerFactory
from tests.fuzz.sockets import campaign
from tests.support.streams import connect_tcp
from tests.support.wire import connect_packet

ATTACKS = 250


@pytest.mark.timeout(300)
def test_attacks_harm_nobody_but_the_attacker() -> None:
    """One connection closes, a healthy pair exchanges every message, memory stays bounded."""
    with campaign(first=1) as found:
        for _ in range(ATTACKS):
            found.attack()
    assert found.pair.sent >= ATTACKS


UPGRADE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)
CONNECT = connect_packet("c", clean=False)
CONNECT_FRAME = bytes([0x82, 0x80 | len(CONNECT)]) + bytes(4) + CONNECT
#: Bytes that come in one read, and at which the WebSocket library raises.
HASTY_UPGRADES = {
    "wrong path and a bad frame": UPGRADE.replace(b"/mqtt", b"/other") + b"\xff\xff",
    "header that is no text": UPGRADE.replace(b"Upgrade: websocket", b"Upgrade: w \xad"),
    "close without waiting for the answer": UPGRADE + CONNECT_FRAME + b"\x88\x80\0\0\0\0",
}


def test_a_hasty_upgrade_is_no_error_of_the_broker(fresh_broker: BrokerFactory) -> None:
    broker = fresh_broker(listen=("ws://127.0.0.1:0/mqtt",))
    for each in HASTY_UPGRADES.values():
        with connect_tcp(broker.ws) as sock:
            sock.sendall(each)
            sock.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionError):
                while sock.recv(4096):
                    pass
    assert broker.terminate() == 0
    assert "Traceback" not in broker.stderr_text()

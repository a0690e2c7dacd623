"""A program with a link that does nothing for a moment, while a peer sends much and goes away."""

import asyncio
import socket
import struct
import sys
from threading import Event
from urllib.parse import urlsplit

from vmq_cluster.link import Link
from vmq_cluster.transport.sockets import FRAMES

#: Milliseconds instead of ten seconds, for whatever libzmq does at intervals.
SOON = 300
GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\0" + b"NULL".ljust(20, b"\0") + b"\0" * 32
READY = b"\x05READY\x0bSocket-Type\0\0\0\x06DEALER"


def flood_and_go(address: str) -> None:
    """Sends more than is kept for a connection, and resets it."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=10) as peer:
        peer.sendall(GREETING + b"\x04" + bytes([len(READY)]) + READY)
        answer = b""
        while b"READY" not in answer:
            answer += peer.recv(1000)
        peer.sendall(b"\0\x01x" * 2 * FRAMES)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def main() -> None:
    heard: asyncio.Queue[str] = asyncio.Queue()
    link = Link(lambda _: None, lambda _, why: heard.put_nowait(why), patience=SOON / 1000)
    flood_and_go(await link.start("tcp://127.0.0.1:0"))
    Event().wait(4 * SOON / 1000)  # the loop stands still, libzmq's thread does not
    await asyncio.wait_for(heard.get(), 10)
    await link.stop()
    sys.stdout.write("went on")


if __name__ == "__main__":
    asyncio.run(main())

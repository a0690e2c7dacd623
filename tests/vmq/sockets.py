"""A broker in this process, and clients of it on real sockets."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

import msgspec

from tests.support.wire import ConnectFields, Packet, connect_packet, split_packets
from tests.vmq.support import check_packet
from vmq.broker import Broker
from vmq.config.options import Config, ListenerOptions
from vmq.embedded import ReceivedMessage

TIMEOUT = 30.0
TCP = {"tcp": ListenerOptions(url="tcp://127.0.0.1:0")}


def config_in(folder: Path, listeners: dict[str, ListenerOptions] | None = None) -> Config:
    return Config(
        broker=msgspec.structs.replace(Config().broker, data_dir=str(folder / "data")),
        listeners=TCP if listeners is None else listeners,
    )


class Peer:
    """A client on a real socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._buffer = bytearray()
        self._packets: deque[Packet] = deque()

    def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))

    async def packet(self) -> Packet:
        """The next packet. Raises asyncio.IncompleteReadError at the end of the stream."""
        if not self._packets:
            async with asyncio.timeout(TIMEOUT):
                await self._read()
        found = self._packets.popleft()
        check_packet(found)
        return found

    async def _read(self) -> None:
        """Reads until there is a whole packet, with all that has come behind it."""
        while not self._packets:
            data = await self.reader.read(65_536)
            if not data:
                raise asyncio.IncompleteReadError(bytes(self._buffer), None)
            self._buffer += data
            self._packets.extend(split_packets(self._buffer))

    async def expect(self, *wanted: bytes) -> None:
        for each in wanted:
            assert (await self.packet()).raw == each

    async def ask(self, data: bytes, *answers: bytes) -> Packet:
        """Sends bytes; these packets must come next. Returns the last of them, or what comes."""
        self.send(data)
        await self.expect(*answers[:-1])
        found = await self.packet()
        assert not answers or found.raw == answers[-1]
        return found

    async def rest(self) -> bytes:
        """What comes until the end of the stream."""
        whole = b"".join(each.raw for each in self._packets) + self._buffer
        async with asyncio.timeout(TIMEOUT):
            return whole + await self.reader.read()

    async def connect(self, client_id: str, **fields: Unpack[ConnectFields]) -> Packet:
        self.send(connect_packet(client_id, **fields))
        return await self.packet()


@asynccontextmanager
async def peer_of(broker: Broker, listener: int = 0) -> AsyncIterator[Peer]:
    host, port = broker.addresses[listener].split("://")[1].split("/")[0].rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def session_of(
    broker: Broker, client_id: str = "c", *, listener: int = 0, **fields: Unpack[ConnectFields]
) -> AsyncIterator[Peer]:
    """A client whose CONNECT is accepted."""
    async with peer_of(broker, listener) as peer:
        assert (await peer.connect(client_id, **fields)).return_code == 0
        yield peer


async def login(
    broker: Broker, client_id: str = "c", *, listener: int = 0, **fields: Unpack[ConnectFields]
) -> int:
    """The return code that a CONNECT is answered with."""
    async with peer_of(broker, listener) as peer:
        return (await peer.connect(client_id, **fields)).return_code


async def take(messages: AsyncIterator[ReceivedMessage], count: int) -> list[bytes]:
    """The payloads of the next messages."""
    async with asyncio.timeout(TIMEOUT):
        return [(await anext(messages)).payload for _ in range(count)]

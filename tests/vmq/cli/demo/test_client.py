"""What a durable client publishes arrives once, however often the broker is killed."""

import asyncio

from tests.support.until import until
from vmq.cli.demo.client import DurableClient


async def test_a_broker_that_refuses_is_asked_again() -> None:
    calls = 0
    client = DurableClient("me", lambda: ("127.0.0.1", 0))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal calls
        calls += 1
        await reader.readexactly(2)
        writer.write(b"\x20\x02\x00\x03" if calls == 1 else b"\x20\x02\x00\x00")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client.address = lambda: server.sockets[0].getsockname()[:2]
    async with server:
        task = asyncio.create_task(client.run())
        await until(lambda: client.is_up)
        assert calls == 2
        task.cancel()
        await asyncio.wait([task])

"""What a durable client publishes arrives once, however often the broker is killed."""

import asyncio
from functools import partial
from pathlib import Path

from tests.conftest import BrokerFactory
from tests.support.until import until
from vmq.cli.demo.client import WINDOW, DurableClient
from vmq.testing.process import BrokerProcess


async def test_each_message_arrives_once_over_the_deaths_of_a_broker(
    fresh_broker: BrokerFactory, tmp_path: Path
) -> None:
    def started(port: int = 0) -> BrokerProcess:
        return fresh_broker((f"tcp://127.0.0.1:{port}",), data_dir=tmp_path / "data")

    broker = started()
    address = broker.tcp
    arrived: list[bytes] = []
    watch = DurableClient("watch", lambda: address, ("a/#",), lambda _, data: arrived.append(data))
    device = DurableClient("device", lambda: address)

    def has_arrived(count: int) -> bool:
        return len(arrived) > count

    work = [asyncio.create_task(each.run()) for each in (watch, device)]
    await until(lambda: watch.is_subscribed)
    sent = 0
    for _ in range(3):
        for _ in range(5 * WINDOW):
            device.publish("a/b", b"%d" % sent)
            sent += 1
        await until(partial(has_arrived, sent - 4 * WINDOW))
        await asyncio.to_thread(broker.kill)
        await until(lambda: not device.is_up and not watch.is_up)
        device.publish("a/b", b"%d" % sent)
        sent += 1
        broker = await asyncio.to_thread(started, address[1])
    await until(lambda: len(arrived) >= sent and not device.open)
    for each in work:
        each.cancel()
    await asyncio.wait(work)
    assert arrived == [b"%d" % number for number in range(sent)]
    assert device.done == sent


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

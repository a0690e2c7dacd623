"""What clients of jobs send and leave unread takes neither memory nor the time of others."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from tests.support.until import until
from tests.vmq.jobs.serving import Guard, client_of, config_of, port_of, raw
from vmq.broker import Broker
from vmq.resources.memory import MemoryWatch


@pytest.mark.parametrize(
    "data",
    [
        b"*1000000000\r\n",
        b"*1\r\n:1\r\n",
        b"x" * 100_000,
        b'"QLEN\r\n',
        b"\x16\x03\x01\x02\x00\x01\x00\n",
    ],
)
async def test_what_is_no_command_ends_that_connection_with_an_error(
    broker: Broker, redis: Any, data: bytes
) -> None:
    reply = await raw(broker, data)
    assert reply.startswith(
        (b"-ERR Protocol error", b"-ERR unknown command", b"-ERR a command has")
    )
    assert await redis.execute_command("PING") is True


async def test_strangers_may_not_send_much(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path), plugins={"guard": Guard()}) as broker:
        reply = await raw(broker, b"*2\r\n$4\r\nAUTH\r\n$100000\r\n")
        assert reply.startswith(b"-NOAUTH ")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["ADDJOB", "q", "x" * 20_000_000, 0], r"^TOOBIG .*limits\.max_job_size"),
        (["ACKJOB", *["D-" + "x" * 38] * 100_000], "at most 1024 arguments"),
    ],
)
async def test_who_writes_a_command_that_is_too_large_hears_why_and_goes_on(
    broker: Broker, redis: Any, words: list[Any], reason: str
) -> None:
    with pytest.raises(ResponseError, match=reason):
        await redis.execute_command(*words)
    [connection] = broker.jobs.open().listeners[0].clients
    assert await redis.execute_command("PING") is True
    assert [connection] == list(broker.jobs.open().listeners[0].clients)


@pytest.mark.parametrize("guard", [None, Guard()])
async def test_replies_that_nobody_reads_take_no_memory_however_short_they_are(
    tmp_path: Path, guard: Guard | None
) -> None:
    plugins = {} if guard is None else {"guard": guard}
    async with Broker(config_of(tmp_path), plugins=plugins) as broker:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(broker), limit=1)
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        await until(lambda: broker.jobs.open().listeners[0].clients)
        [connection] = broker.jobs.open().listeners[0].clients
        writer.write(b"INFO\r\n" * 1_000_000)
        await until(lambda: connection.is_paused and connection.socket_full)
        assert connection.reader.kept() < 1_000_000
        assert connection.transport.get_write_buffer_size() < 1_000_000
        writer.transport.abort()


async def test_a_peer_that_does_not_read_its_replies_is_not_served_on(
    broker: Broker, redis: Any
) -> None:
    await redis.execute_command("ADDJOB", "q", "x" * 1_000_000, 0)
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(broker), limit=1)
    assert isinstance(writer.transport, asyncio.Transport)
    writer.transport.pause_reading()
    writer.write(b"QPEEK q 1\r\n" * 5000)
    service = broker.jobs.open()
    sent = broker.monitor.core.counters
    await until(lambda: sent.bytes_sent > 2_000_000)
    for _ in range(50):
        await redis.execute_command("PING")
    assert sent.bytes_sent < 100_000_000  # what the system's buffers take, not 5 GB
    assert len(service.listeners[0].clients) == 2
    writer.transport.abort()


SCAN = b"JSCAN 0 QUEUE none BUSYLOOP\r\n"


LONG = b"GETJOB NOHANG FROM " + b" ".join(b"q%d" % each for each in range(500)) + b"\r\n"


@pytest.mark.parametrize(
    ("command", "done"), [(b"PING\r\n", 500), (b"QSCAN\r\n", 1), (SCAN, 1), (LONG, 8)]
)
async def test_what_makes_much_work_leaves_others_their_turn(
    broker: Broker, command: bytes, done: int
) -> None:
    async with client_of(broker):
        [connection] = broker.jobs.open().listeners[0].clients
        connection.data_received(command * (done + 10))
        assert connection.reader.kept() == len(command) * 10
        await until(lambda: connection.reader.kept() == 0)


async def test_who_sends_more_than_is_done_is_read_no_further(broker: Broker) -> None:
    async with client_of(broker):
        [connection] = broker.jobs.open().listeners[0].clients
        flood = b"PING\r\n" * 50_000
        connection.data_received(flood)
        assert connection.is_paused
        await until(lambda: not connection.is_paused)
        assert 0 < connection.reader.kept() <= 65_536
        # A command that is cut is no such case: the rest of it is wanted.
        await until(lambda: connection.reader.kept() == 0)
        connection.data_received(b"*2\r\n$4\r\nECHO\r\n$200000\r\n" + b"x" * 150_000)
        assert not connection.is_paused


async def test_above_max_memory_a_large_command_that_is_not_whole_goes_at_once(
    broker: Broker, redis: Any
) -> None:
    service = broker.jobs.open()
    async with client_of(broker):
        other, connection = service.listeners[0].clients
        watch = service.core.memory
        assert isinstance(watch, MemoryWatch)
        watch.measure = lambda: 1 << 60
        service.core.memory_room = 100_000
        connection.data_received(b"*3\r\n$6\r\nADDJOB\r\n$1\r\nq\r\n$200000\r\n" + b"x" * 150_000)
        assert (connection.closing, other.closing) == (True, False)
        assert service.core.counters.memory_ended == 1
    assert await redis.execute_command("PING") is True

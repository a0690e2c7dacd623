"""The tasks that own what takes time. Their clock stands still; wakes take the place of waiting."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.wire import (
    PINGREQ_BYTES,
    PUBLISH,
    Will,
    connect_packet,
    publish_packet,
    subscribe_packet,
)
from tests.vmq.support import Client, House, stored_house
from vmq.queue import Queue
from vmq.tasks import QueueTasks, SessionTask

LONG = 3600.0
#: Seconds to wait for what must happen.
TIMEOUT = 10.0


@pytest.fixture
def house() -> House:
    return House()


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[House]:
    """A house with a store."""
    with stored_house(tmp_path) as house:
        yield house


async def turns() -> None:
    """Lets every task run that can."""
    for _ in range(5):
        await asyncio.sleep(0)


async def end_of(client: Client) -> None:
    """Waits until the broker has closed a client's transport."""
    closed = asyncio.Event()
    client.transport.on_close = closed.set
    if not client.is_closed():
        async with asyncio.timeout(TIMEOUT):
            await closed.wait()


@asynccontextmanager
async def watched(client: Client, connect_timeout: float = LONG) -> AsyncIterator[SessionTask]:
    """A client whose connection has a session task."""
    task = SessionTask(client.connection, connect_timeout)
    await turns()
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task.task])


# --- connect timeout


async def test_a_connection_without_connect_is_closed(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    client = Client(house)
    with caplog.at_level(logging.INFO, "vmq.session"):
        async with watched(client, 5.0) as task:
            house.clock.advance(4.9)
            task.wake()
            await turns()
            assert not client.is_closed()
            house.clock.advance(0.1)
            task.wake()
            await turns()
            assert client.is_closed()
    assert "no CONNECT within mqtt_connect_timeout" in caplog.text


async def test_bytes_without_a_whole_connect_do_not_help(house: House) -> None:
    client = Client(house)
    async with watched(client, 5.0) as task:
        house.clock.advance(4)
        client.send(connect_packet("c")[:-1])
        house.clock.advance(1)
        task.wake()
        await turns()
        assert client.is_closed()


async def test_the_timeout_ends_with_connect(house: House) -> None:
    client = Client(house)
    async with watched(client, 5.0) as task:
        client.connect("c", keep_alive=0)
        await turns()
        house.clock.advance(LONG)
        task.wake()
        await turns()
        client.ping()


async def test_the_timeout_needs_no_wake(house: House) -> None:
    loop = asyncio.get_running_loop()
    house.core.clock = loop.time
    client = Client(house)
    started = loop.time()
    async with watched(client, 0.05):
        await end_of(client)
        assert loop.time() - started >= 0.05


# --- keep alive


async def test_the_next_look_is_when_one_and_a_half_keep_alives_are_over(house: House) -> None:
    client = house.client("c", keep_alive=10)
    async with watched(client) as task:
        assert task.watch() == 15.0
        house.clock.advance(6)
        assert task.watch() == 9.0
        client.send(PINGREQ_BYTES)
        assert task.watch() == 15.0


async def test_silence_ends_the_connection_as_a_failure_would(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    watcher = house.client("w")
    watcher.subscribe(("will", 0))
    client = house.client("c", keep_alive=10, will=Will("will", b"gone"))
    async with watched(client) as task:
        house.clock.advance(14.9)
        task.wake()
        await turns()
        assert not client.is_closed()
        house.clock.advance(0.1)
        with caplog.at_level(logging.INFO, "vmq.session"):
            task.wake()
            await end_of(client)
    assert watcher.payloads() == [b"gone"]
    assert "keep alive expired [MQTT-3.1.2-24]" in caplog.text


async def test_bytes_that_wait_unread_when_the_keep_alive_is_over_are_a_sign_of_life(
    house: House,
) -> None:
    client = house.client("c", keep_alive=10)
    async with watched(client) as task:
        house.clock.advance(15)
        soon = task.watch()
        assert soon is not None
        assert 0 < soon < 1, "the loop may have been late: one more look"
        assert not client.is_closed()
        client.send(PINGREQ_BYTES)
        assert task.watch() == 15.0
        house.clock.advance(15)
        task.watch()
        task.watch()
        assert client.is_closed()


async def test_without_keep_alive_nothing_is_due(house: House) -> None:
    client = house.client("c", keep_alive=0)
    async with watched(client) as task:
        house.clock.advance(1e9)
        assert task.watch() is None
        client.ping()


# --- retry


async def test_a_retry_is_due_after_its_interval(house: House) -> None:
    house.options.retry_interval = 20.0
    client = house.client("c", keep_alive=60)
    client.subscribe(("a", 1))
    house.publish("a", b"x", 1)
    assert not client.take_one(PUBLISH).dup
    async with watched(client) as task:
        assert task.watch() == 20.0
        client.expect()
        house.clock.advance(20)
        task.wake()
        await turns()
        assert client.take_one(PUBLISH).dup
        house.clock.advance(60)
        assert task.watch() == 10.0, "the keep alive comes first"


# --- the end of a connection


async def test_a_close_that_hangs_is_cut_short(house: House) -> None:
    client = house.client("c")
    async with watched(client) as task:
        client.send(b"\xff\x00")
        assert client.is_closed()
        await turns()
        assert not client.transport.aborted
        task.wake()  # the time to take what was written is over
        await turns()
        assert client.transport.aborted


async def test_a_cancelled_task_is_told_nothing_more(house: House) -> None:
    client = house.client("c")
    async with watched(client) as task:
        task.cancel()
        assert client.connection.wake_task is None
        client.lose()
        await asyncio.wait([task.task])
        assert task.task.cancelled()


# --- the tasks of queues


def slow_backlog(house: House, count: int, step: int) -> tuple[Client, Queue]:
    """A client whose queue asked for its first drain step."""
    house.options.max_msgs_per_drain_step = step
    house.options.max_inflight_messages = 0
    house.client("c", clean=False).subscribe(("a", 1))
    house.client("c", clean=False).lose()
    for number in range(count):
        house.publish("a", b"%d" % number, 1)
    house.patient = True
    client = Client(house)
    client.send(connect_packet("c", clean=False))
    house.commit()
    client.take()
    [queue] = house.woken
    house.woken = []
    return client, queue


async def finished(tasks: QueueTasks) -> None:
    async with asyncio.timeout(TIMEOUT):
        while tasks.tasks:
            await asyncio.wait(tasks.tasks.values())


async def test_a_queue_drains_to_its_end(durable: House) -> None:
    client, queue = slow_backlog(durable, 25, 10)
    tasks = QueueTasks(durable.core)
    tasks.wake(queue)
    tasks.wake(queue)
    assert len(tasks.tasks) == 1
    await finished(tasks)
    durable.commit()
    assert client.payloads() == [b"%d" % number for number in range(25)]
    assert tasks.tasks == {}


async def test_other_work_goes_on_between_two_steps(durable: House) -> None:
    _, queue = slow_backlog(durable, 50, 10)
    tasks = QueueTasks(durable.core)
    tasks.wake(queue)
    seen: set[int] = set()
    async with asyncio.timeout(TIMEOUT):
        while tasks.tasks:
            await asyncio.sleep(0)
            seen.add(len(queue.inflight))
    assert len(seen) >= 5


async def test_a_queue_whose_client_left_stops(durable: House) -> None:
    client, queue = slow_backlog(durable, 25, 10)
    tasks = QueueTasks(durable.core)
    tasks.wake(queue)
    await asyncio.sleep(0)
    client.lose()
    await finished(tasks)
    assert queue.waiting() == 15


class BrokenDatabase:
    """Stands for a database that cannot be read any more."""

    def get(self, *_arguments: Any, **_options: Any) -> bytes:
        raise OSError("read error")

    def close(self) -> None:
        """Nothing to close."""


async def test_a_queue_that_cannot_be_read_ends_its_own_connection(
    durable: House, caplog: pytest.LogCaptureFixture
) -> None:
    client, queue = slow_backlog(durable, 5, 10)
    assert durable.store is not None
    good = durable.store.db
    durable.store.db = BrokenDatabase()
    tasks = QueueTasks(durable.core)
    tasks.wake(queue)
    await finished(tasks)
    durable.store.db = good
    durable.commit()
    assert client.is_closed()
    assert "cannot drain the queue of client=c" in caplog.text


async def test_the_two_kinds_of_tasks_end_to_end(durable: House) -> None:
    """A subscriber drains while its publisher goes on."""
    client, queue = slow_backlog(durable, 15, 10)
    tasks = QueueTasks(durable.core)
    async with watched(client):
        tasks.wake(queue)
        publisher = Client(durable)
        publisher.send(connect_packet("p"), publish_packet("a", b"15", qos=1, packet_id=1))
        publisher.send(subscribe_packet(2, ("b", 0)))
        await finished(tasks)
        durable.commit()
        assert client.payloads() == [b"%d" % number for number in range(16)]

"""The tasks of queues that drain."""

import asyncio
from typing import Any

import pytest

from tests.support import wire as mqtt
from tests.vmq.support import Client, House
from vmq.core.queue import Queue
from vmq.runtime.draining import QueueTasks

#: Seconds to wait for what must happen.
TIMEOUT = 30.0


def slow_backlog(house: House, count: int) -> tuple[Client, Queue, QueueTasks]:
    """A client whose queue asked for its first drain step, of ten messages, and what is to drain it."""
    house.options.max_msgs_per_drain_step = 10
    house.options.max_inflight_messages = 0
    house.subscriber("c", ("a", 1), clean=False).lose()
    for number in range(count):
        house.publish("a", b"%d" % number, 1)
    house.patient = True
    client = Client(house)
    client.send(mqtt.connect_packet("c", clean=False))
    house.commit()
    client.take()
    [queue] = house.woken
    house.woken = []
    return client, queue, QueueTasks(house.core)


async def finished(tasks: QueueTasks) -> None:
    async with asyncio.timeout(TIMEOUT):
        while tasks.tasks:
            await asyncio.wait(tasks.tasks.values())


async def test_a_queue_drains_to_its_end(durable: House) -> None:
    client, queue, tasks = slow_backlog(durable, 25)
    tasks.wake(queue)
    tasks.wake(queue)
    assert len(tasks.tasks) == 1
    await finished(tasks)
    durable.commit()
    assert client.payloads() == [b"%d" % number for number in range(25)]
    assert tasks.tasks == {}


async def test_other_work_goes_on_between_two_steps(durable: House) -> None:
    _, queue, tasks = slow_backlog(durable, 50)
    tasks.wake(queue)
    seen: set[int] = set()
    async with asyncio.timeout(TIMEOUT):
        while tasks.tasks:
            await asyncio.sleep(0)
            seen.add(len(queue.inflight))
    assert len(seen) >= 5


async def test_a_queue_whose_client_left_stops(durable: House) -> None:
    client, queue, tasks = slow_backlog(durable, 25)
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
    client, queue, tasks = slow_backlog(durable, 5)
    assert durable.store is not None
    good = durable.store.db
    durable.store.db = BrokenDatabase()
    tasks.wake(queue)
    await finished(tasks)
    durable.store.db = good
    durable.commit()
    assert client.is_closed()
    assert "cannot drain the queue of client=c" in caplog.text


async def test_a_subscriber_drains_while_its_publisher_goes_on(durable: House) -> None:
    client, queue, tasks = slow_backlog(durable, 15)
    tasks.wake(queue)
    publisher = Client(durable)
    publisher.send(mqtt.connect_packet("p"), mqtt.publish_packet("a", b"15", qos=1, packet_id=1))
    publisher.send(mqtt.subscribe_packet(2, ("b", 0)))
    await finished(tasks)
    durable.commit()
    assert client.payloads() == [b"%d" % number for number in range(16)]

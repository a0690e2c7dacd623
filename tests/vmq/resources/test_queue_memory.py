import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.support import Client, House, take_numbers
from vmq.resources.queue_memory import QueueMemory, height_for

SIZE = 1000 + 1


def slow_client(house: House, name: str, qos: int = 1) -> Client:
    client = house.subscriber(name, (f"{name}", qos))
    client.block()
    return client


def send(house: House, name: str, count: int, qos: int = 1) -> None:
    for number in range(count):
        house.publish(name, (b"%d" % number).ljust(1000), qos)


class Memory:
    """What the process has, as the test says, and the watch over it."""

    def __init__(self, house: House, limit: int) -> None:
        self.used = 0
        self.watch = QueueMemory(
            house.core, lambda: [house.registry], lambda: limit, lambda: self.used
        )

    def look(self, used: int) -> None:
        self.used = used
        asyncio.run(self.watch.look())


def test_the_largest_queues_lose_their_oldest(house: House) -> None:
    large, small = slow_client(house, "l"), slow_client(house, "s")
    send(house, "l", 30)
    send(house, "s", 10)
    memory = Memory(house, 100_000)
    memory.look(80_000)
    assert large.queue.dropped == small.queue.dropped == 0
    memory.look(80_000 + 5 * SIZE)
    assert large.queue.dropped == 5
    assert small.queue.dropped == 0
    large.unblock()
    assert take_numbers(large) == list(range(5, 25))
    (lost,) = house.core.losses.take()
    assert (lost.client_id, lost.reason, lost.messages) == ("l", "memory_full", 5)


def test_from_then_on_the_queues_may_not_grow_until_the_process_has_less(house: House) -> None:
    """It keeps what was freed, and so does not get smaller: dropping on and on would help nobody."""
    client = slow_client(house, "l")
    send(house, "l", 40)
    waiting = client.queue.waiting()
    memory = Memory(house, 100_000)
    for used, more, left in (
        (80_000 + 5 * SIZE, 0, waiting - 5),
        (80_000 + 5 * SIZE, 0, waiting - 5),
        (80_000 + 5 * SIZE, 3, waiting - 5),
        (80_000 + 7 * SIZE, 0, waiting - 7),
        (80_000 + 6 * SIZE, 1, waiting - 7),
        (70_000, 10, waiting + 3),
        (80_000 + 3 * SIZE, 0, waiting),
    ):
        send(house, "l", more)
        memory.look(used)
        assert client.queue.waiting() == left


def test_qos_0_goes_first_and_what_is_in_the_store_stays(durable: House) -> None:
    client = durable.subscriber("d", ("d", 1), clean=False)
    client.block()
    send(durable, "d", 10)
    send(durable, "d", 5, 0)
    memory = Memory(durable, 1000)
    memory.look(10**9)
    assert client.queue.dropped == 5
    assert client.queue.droppable_bytes() == 0
    client.unblock()
    assert take_numbers(client) == list(range(10))


def test_without_a_limit_nothing_is_dropped(house: House) -> None:
    client = slow_client(house, "l")
    send(house, "l", 3)
    Memory(house, -1).look(1 << 60)
    assert client.queue.dropped == 0


@pytest.mark.parametrize("excess", (0, 1, 10**9))
def test_nothing_falls_to_nothing(excess: int) -> None:
    assert height_for([], excess) == 0


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=50), st.integers(0, 60_000))
def test_the_height_is_that_at_which_enough_falls(sizes: list[int], excess: int) -> None:
    height = height_for(sizes, excess)
    assert height >= 0

    def falls(height: int) -> int:
        return sum(max(0, size - height) for size in sizes)

    assert falls(height) >= min(excess, sum(sizes))
    assert falls(height + 1) < max(1, excess)

"""How long a queue takes to send a QoS 1 message and take its acknowledgement."""

from pathlib import Path

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.vmq.support import House, acknowledge_all, stored_house
from vmq.mqtt.message import Message

MESSAGES = 100


def deliver_and_acknowledge(house: House) -> None:
    """A round of messages, each with its own object, as a publisher brings them."""
    queue = house.queue("c")
    for _ in range(MESSAGES):
        queue.deliver(Message(b"sensors/7", b"x" * 64, 1, False), 1, False, "", house.core.nobody)
    house.settle()
    acknowledge_all(queue)
    house.settle()


@pytest.mark.parametrize("stored", (False, True), ids=("clean", "durable"))
def test_delivering_and_acknowledging(
    benchmark: BenchmarkFixture, tmp_path: Path, stored: bool
) -> None:
    with stored_house(tmp_path) as house:
        house.options.max_inflight_messages = 0
        client = house.client("c", clean=not stored)
        benchmark(deliver_and_acknowledge, house)
        assert not client.queue.inflight


def test_waiting_for_the_window(benchmark: BenchmarkFixture) -> None:
    house = House()
    house.options.max_inflight_messages = 1
    house.client("c")
    queue = house.queue("c")

    def through_the_window() -> None:
        for _ in range(MESSAGES):
            queue.deliver(
                Message(b"sensors/7", b"x" * 64, 1, False), 1, False, "", house.core.nobody
            )
        for _ in range(MESSAGES):
            acknowledge_all(queue)
        house.settle()

    benchmark(through_the_window)
    assert not queue.inflight
    assert queue.waiting() == 0


def test_filling_and_draining_a_stored_queue(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    with stored_house(tmp_path) as house:
        house.options.max_inflight_messages = 0
        house.client("c", clean=False).subscribe(("t", 1))
        house.client("c", clean=False).lose()

        def fill_and_drain() -> int:
            house.patient = True
            for _ in range(MESSAGES):
                house.publish("t", b"x" * 64, 1)
            house.patient = False
            client = house.client("c", clean=False)
            count = len(client.queue.inflight)
            acknowledge_all(client.queue)
            client.lose()
            return count

        assert benchmark(fill_and_drain) == MESSAGES

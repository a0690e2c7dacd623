"""How long it takes to find and send 10,000 retained messages."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.support.wire import subscribe_packet
from tests.vmq.support import House

MESSAGES = 10_000


@pytest.fixture(scope="module")
def house() -> House:
    """A core with so many retained messages."""
    house = House()
    for number in range(MESSAGES):
        house.publish(f"devices/{number % 100}/{number}/state", b"x" * 64, retain=True)
    return house


def test_matching_every_message(benchmark: BenchmarkFixture, house: House) -> None:
    assert len(benchmark(house.registry.retained.match, "devices/+/+/state")) == MESSAGES


def test_matching_one_message_among_many(benchmark: BenchmarkFixture, house: House) -> None:
    assert len(benchmark(house.registry.retained.match, "devices/7/7/state")) == 1


def test_a_subscription_that_brings_every_message(
    benchmark: BenchmarkFixture, house: House
) -> None:
    client = house.client("c")
    raw = subscribe_packet(1, ("devices/#", 0))

    def subscribe() -> int:
        client.send(raw)
        size = len(client.transport.written)
        client.transport.written.clear()
        return size

    assert benchmark(subscribe) > MESSAGES * 64

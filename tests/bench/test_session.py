"""How long a chunk of PUBLISH packets takes on its way from one connection to another."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from vmq_hooks import Accept, Cache, Next

from tests.support.wire import puback_packet, publish_packet
from tests.vmq.support import Client, House
from vmq.plugins.chains import VerdictChain
from vmq.plugins.guard import PluginGuard
from vmq.plugins.steps import VerdictStep

#: What one read of a busy connection brings.
PACKETS = 64
PAYLOAD = b"x" * 64


def pass_of(publisher: Client, readers: list[Client], chunk: bytes) -> Callable[[], None]:
    """One chunk handled, and everything that was written thrown away."""
    receive = publisher.connection.data_received
    outputs = [client.transport.written for client in (publisher, *readers)]

    def work() -> None:
        receive(chunk)
        for output in outputs:
            output.clear()

    return work


def scene(subscribers: int, qos: int) -> tuple[House, Client, list[Client]]:
    house = House()
    house.options.max_inflight_messages = 0
    readers = [house.client(f"s{number}") for number in range(subscribers)]
    for reader in readers:
        reader.subscribe(("t/#", qos))
    return house, house.client("p"), readers


@pytest.mark.parametrize("subscribers", (1, 50))
def test_a_run_at_qos_0(benchmark: BenchmarkFixture, subscribers: int) -> None:
    house, publisher, readers = scene(subscribers, 0)
    benchmark(pass_of(publisher, readers, publish_packet("t/a", PAYLOAD) * PACKETS))
    counters = house.core.counters
    assert counters.mqtt_publish_sent == subscribers * counters.mqtt_publish_received > 0


@pytest.mark.parametrize("subscribers", (1, 50))
def test_alternating_topics_at_qos_0(benchmark: BenchmarkFixture, subscribers: int) -> None:
    house, publisher, readers = scene(subscribers, 0)
    pair = publish_packet("t/a", PAYLOAD) + publish_packet("t/b", PAYLOAD)
    benchmark(pass_of(publisher, readers, pair * (PACKETS // 2)))
    counters = house.core.counters
    assert counters.mqtt_publish_sent == subscribers * counters.mqtt_publish_received > 0


def test_one_packet_at_qos_0(benchmark: BenchmarkFixture) -> None:
    _, publisher, readers = scene(1, 0)
    benchmark(pass_of(publisher, readers, publish_packet("t/a", PAYLOAD)))


def test_publishes_at_qos_1_that_nobody_wants(benchmark: BenchmarkFixture) -> None:
    house, publisher, _ = scene(0, 0)
    packets = [publish_packet("t/a", PAYLOAD, qos=1, packet_id=1 + n) for n in range(PACKETS)]
    benchmark(pass_of(publisher, [], b"".join(packets)))
    assert house.core.counters.mqtt_publish_received % PACKETS == 0


def test_a_whole_exchange_at_qos_1(benchmark: BenchmarkFixture) -> None:
    """PUBLISH in, PUBLISH and PUBACK out, PUBACK in."""
    _, publisher, [reader] = scene(1, 1)
    packets = [publish_packet("t/a", PAYLOAD, qos=1, packet_id=1 + n) for n in range(PACKETS)]
    publish = pass_of(publisher, [reader], b"".join(packets))
    answers = b"".join(puback_packet(1 + number) for number in range(PACKETS))
    acknowledge = reader.connection.data_received
    queue = reader.queue

    def work() -> None:
        publish()
        acknowledge(answers)
        queue.inflight.last_packet_id = 0

    benchmark(work)
    assert not queue.inflight


def plugins(count: int, cache: Cache | None) -> VerdictChain:
    """So many plugins on auth_on_publish, of which the last one accepts."""

    def ask_on(message: Any) -> Next:
        return Next(cache)

    def accept(message: Any) -> Accept:
        return Accept(cache=cache)

    given = ("username", "subscriber_id", "message")
    steps = [
        VerdictStep("auth_on_publish", PluginGuard(f"p{number}"), function, ("message",), given)
        for number, function in enumerate([ask_on] * (count - 1) + [accept])
    ]
    return VerdictChain("auth_on_publish", steps, time.monotonic)


@pytest.mark.parametrize("qos", (0, 1))
@pytest.mark.parametrize(
    ("count", "cache"),
    ((0, None), (1, None), (5, None), (1, Cache(3600.0)), (5, Cache(3600.0))),
    ids=("none", "1 asked", "5 asked", "1 kept", "5 kept"),
)
def test_a_run_that_plugins_judge(
    benchmark: BenchmarkFixture, count: int, cache: Cache | None, qos: int
) -> None:
    """A kept verdict is to cost at most 1.3 times what none costs."""
    house, publisher, readers = scene(1, 0)
    if count:
        house.core.hooks.auth_on_publish = plugins(count, cache)
        house.core.hooks.resolve()
    packets = [
        publish_packet("t/a", PAYLOAD, qos=qos, packet_id=1 + number if qos else None)
        for number in range(PACKETS)
    ]
    benchmark(pass_of(publisher, readers, b"".join(packets)))
    counters = house.core.counters
    assert counters.mqtt_publish_sent == counters.mqtt_publish_received > 0

"""How long a walk of the trie takes, alone and among 100,000 filters of others."""

from collections.abc import Callable

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.vmq.support import House
from vmq.core.queue import Queue
from vmq.core.subscription_set import Subscription
from vmq.core.trie import Route, Trie

OTHERS = 100_000
TOPIC = "sensors/building-7/floor-3/temperature"
FILTERS = ("sensors/+/floor-3/temperature", "sensors/#", TOPIC)


def make_queue(client_id: str) -> Queue:
    return Queue(client_id, House().core, b"", lambda queue: None)


def make_trie(others: int) -> Trie:
    """A trie in which three filters match the topic, and so many do not."""
    trie = Trie()
    mine, theirs = make_queue("mine"), make_queue("theirs")
    for topic_filter in FILTERS:
        trie.subscribe(topic_filter, Subscription(mine, 1, ""))
    for number in range(others):
        trie.subscribe(f"devices/{number}/+/state", Subscription(theirs, 1, ""))
    return trie


@pytest.fixture(scope="module")
def tries() -> Callable[[int], Trie]:
    """Tries by their number of other filters, each made once."""
    made: dict[int, Trie] = {}

    def trie(others: int) -> Trie:
        if others not in made:
            made[others] = make_trie(others)
        return made[others]

    return trie


@pytest.mark.parametrize("others", (0, OTHERS))
def test_matching_a_topic(
    benchmark: BenchmarkFixture, tries: Callable[[int], Trie], others: int
) -> None:
    trie = tries(others)
    route = Route(TOPIC.encode(), TOPIC)
    benchmark(trie.resolve, route)
    assert len(route.targets) == 1


@pytest.mark.parametrize("others", (0, OTHERS))
def test_finding_a_route_that_is_known(benchmark: BenchmarkFixture, others: int) -> None:
    house = House()
    client = house.client("c")
    client.subscribe(*((topic_filter, 1) for topic_filter in FILTERS))
    other = house.registry.subscribers["c"]
    for number in range(others):
        house.registry.add_subscription(other, f"devices/{number}/+/state", 1)
    topic = TOPIC.encode()
    route = house.registry.route(topic)
    assert benchmark(house.registry.routes.find, topic) is route


@pytest.mark.parametrize("others", (0, OTHERS))
def test_subscribing_and_unsubscribing(
    benchmark: BenchmarkFixture, tries: Callable[[int], Trie], others: int
) -> None:
    trie = tries(others)
    subscription = Subscription(make_queue("comes and goes"), 1, "")
    before = trie.count

    def come_and_go() -> None:
        trie.subscribe("devices/new/+/state", subscription)
        trie.unsubscribe("devices/new/+/state", "comes and goes")

    benchmark(come_and_go)
    assert trie.count == before

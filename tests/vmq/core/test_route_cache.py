"""The cache of routes against naive routing: none of them is ever a stale one."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.wire import publish_packet
from tests.vmq.core.test_trie import (
    CLIENTS,
    Book,
    groups_of,
    naive_groups,
    naive_targets,
    targets_of,
)
from tests.vmq.mqtt.strategies import ANY_FILTER, TOPICS
from tests.vmq.support import Client, House
from vmq.core.route_cache import RouteCache
from vmq.core.subscriber import Subscriber
from vmq.core.trie import Route, Trie
from vmq.mqtt.topics import has_wildcard, split_shared


class RouteMachine(RuleBasedStateMachine):
    """A registry whose cache holds a few routes: none of them is ever a stale one."""

    LIMIT = 4

    def __init__(self) -> None:
        super().__init__()
        self.house = House(change=lambda options: setattr(options, "topic_cache", self.LIMIT))
        self.registry = self.house.registry
        self.book: Book = {}
        self.subscribers: dict[str, Subscriber] = {}
        self.clients: dict[str, Client] = {}
        self.publisher = self.house.client("publisher")
        for client_id in CLIENTS:
            self.session_ends(client_id)

    @rule(client=st.sampled_from(CLIENTS), topic_filter=ANY_FILTER, qos=st.integers(0, 2))
    def subscribe(self, client: str, topic_filter: str, qos: int) -> None:
        self.registry.subscribe(self.subscribers[client], topic_filter, qos)
        self.book[client, topic_filter] = qos

    @precondition(lambda self: bool(self.book))
    @rule(data=st.data(), qos=st.integers(0, 2))
    def subscribe_again(self, data: st.DataObject, qos: int) -> None:
        client, topic_filter = data.draw(st.sampled_from(sorted(self.book)))
        self.subscribe(client, topic_filter, qos)

    @precondition(lambda self: bool(self.book))
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        client, topic_filter = data.draw(st.sampled_from(sorted(self.book)))
        assert self.registry.unsubscribe(self.subscribers[client], topic_filter)
        del self.book[client, topic_filter]

    @rule(client=st.sampled_from(CLIENTS))
    def session_ends(self, client: str) -> None:
        """Takes over with clean session 1: the old session's subscriptions are gone."""
        self.clients[client] = self.house.client(client)
        self.subscribers[client] = self.registry.subscribers[client]
        self.book = {key: qos for key, qos in self.book.items() if key[0] != client}

    @rule(topics=st.lists(TOPICS, min_size=1, max_size=6))
    def route(self, topics: list[str]) -> None:
        for topic in topics:
            route = self.registry.route(topic.encode())
            assert (route.text, route.topic) == (topic, topic.encode())
            assert targets_of(route) == naive_targets(self.book, topic)
            assert groups_of(route) == naive_groups(self.book, topic)

    @rule(topics=st.lists(TOPICS, min_size=1, max_size=4), qos=st.integers(0, 1))
    def publish(self, topics: list[str], qos: int) -> None:
        """What real connections get, which is what a naive router would send them."""
        self.house.choice = 0
        packets = [
            publish_packet(topic, b"%d" % index, qos=qos, packet_id=1 if qos else None)
            for index, topic in enumerate(topics)
        ]
        self.publisher.send(*packets)
        self.publisher.take()
        expected: dict[str, list[tuple[str, int]]] = {client_id: [] for client_id in CLIENTS}
        for topic in topics:
            for client_id, granted in naive_targets(self.book, topic).items():
                expected[client_id].append((topic, min(qos, granted)))
            for members in naive_groups(self.book, topic).values():
                client_id, granted = next(iter(members.items()))
                expected[client_id].append((topic, min(qos, granted)))
        for client_id, client in self.clients.items():
            received = client.take()
            client.acknowledge(*received)
            assert sorted((each.topic, each.qos) for each in received) == sorted(
                expected[client_id]
            )

    @precondition(lambda self: bool(self.book))
    @rule(data=st.data())
    def route_of_a_plain_filter(self, data: st.DataObject) -> None:
        filters = [split_shared(topic_filter)[1] for _, topic_filter in sorted(self.book)]
        plain = [topic_filter for topic_filter in filters if not has_wildcard(topic_filter)]
        if plain:
            self.route([data.draw(st.sampled_from(plain))])

    @invariant()
    def the_cache_is_bounded(self) -> None:
        cache = self.registry.routes
        assert len(cache.young) + len(cache.old) <= self.LIMIT

    @invariant()
    def the_trie_holds_what_is_subscribed(self) -> None:
        assert self.registry.trie.count == len(self.book)
        held = {
            (client_id, topic_filter): subscription.qos
            for client_id, subscriber in self.subscribers.items()
            for topic_filter, subscription in subscriber.subscriptions.items()
        }
        assert held == self.book


RouteMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30)
TestRouteMachine = RouteMachine.TestCase


def test_a_route_is_found_again_until_the_cache_has_moved_on() -> None:
    cache = RouteCache(Trie(), 4)
    routes = [Route(b"%d" % number, str(number)) for number in range(5)]
    for route in routes:
        cache.keep(route)
    assert cache.find(b"0") is None, "two halves of two: the oldest is gone"
    assert cache.find(b"4") is routes[4]


def test_a_route_in_use_stays_in_the_cache() -> None:
    cache = RouteCache(Trie(), 4)
    used = Route(b"used", "used")
    cache.keep(used)
    for number in range(50):
        cache.keep(Route(b"%d" % number, str(number)))
        assert cache.find(b"used") is used


def test_long_topics_are_not_kept(house: House) -> None:
    for size, kept in ((512, True), (513, False)):
        topic = b"x" * size
        route = house.registry.route(topic)
        assert (house.registry.routes.find(topic) is route) == kept


def test_a_plain_subscription_leaves_other_routes_alone(house: House, client: Client) -> None:
    other = house.registry.route(b"other")
    before = house.registry.trie.generation
    client.subscribe(("mine", 0))
    client.unsubscribe("mine")
    assert house.registry.trie.generation == before
    assert house.registry.routes.find(b"other") is other


def test_a_wildcard_subscription_makes_every_route_resolve_again_in_place(
    house: House, client: Client
) -> None:
    route = house.registry.route(b"topic")
    client.subscribe(("+", 1))
    assert house.registry.routes.find(b"topic") is route
    assert targets_of(route) == {"c": 1}

"""The subscription trie against a naive matcher, and the route cache against none."""

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.wire import publish_packet
from tests.vmq.mqtt.strategies import ANY_FILTER, FILTERS, TOPICS
from tests.vmq.mqtt.test_topics import naive_matches
from tests.vmq.support import Client, House
from vmq.core.context import Core
from vmq.core.queue import Queue
from vmq.core.registry import Subscriber
from vmq.core.trie import (
    NODE_SIZE,
    SUBSCRIPTION_SIZE,
    Node,
    Route,
    RouteCache,
    Subscription,
    Trie,
    content_of,
    keep_best,
)
from vmq.mqtt.topics import has_wildcard, matches, split_shared

#: Subscriptions as the naive twin keeps them: (client id, filter) -> QoS.
Book = dict[tuple[str, str], int]

CLIENTS = ("one", "two", "three")


def make_queue(client_id: str, core: Core, session: bytes = b"") -> Queue:
    return Queue(client_id, core, session, lambda queue: None)


def subscription(queue: Queue, topic_filter: str, qos: int) -> Subscription:
    shared = split_shared(topic_filter)[0]
    return Subscription(queue, qos, topic_filter if shared else "")


def resolved(trie: Trie, topic: str) -> Route:
    route = Route(topic.encode(), topic)
    trie.resolve(route)
    return route


def targets_of(route: Route) -> dict[str, int]:
    targets = {target.queue.client_id: target.qos for target in route.targets}
    assert len(targets) == len(route.targets), "two targets for one client"
    return targets


def groups_of(route: Route) -> dict[str, dict[str, int]]:
    for group in route.groups:
        assert list(group.members.values()) == group.order
    return {
        group.name: {client_id: member.qos for client_id, member in group.members.items()}
        for group in route.groups
    }


def naive_targets(book: Book, topic: str) -> dict[str, int]:
    """Who gets a topic and at which QoS, without groups."""
    found: dict[str, int] = {}
    for (client_id, topic_filter), qos in book.items():
        group, plain = split_shared(topic_filter)
        assert matches(plain, topic) == naive_matches(plain, topic)
        if not group and matches(plain, topic):
            found[client_id] = max(qos, found.get(client_id, 0))
    return found


def naive_groups(book: Book, topic: str) -> dict[str, dict[str, int]]:
    """The groups that get a topic, and the members' QoS."""
    found: dict[str, dict[str, int]] = {}
    for (client_id, topic_filter), qos in book.items():
        group, plain = split_shared(topic_filter)
        if group and matches(plain, topic):
            found.setdefault(topic_filter, {})[client_id] = qos
    return found


def node_count(node: Node) -> int:
    """Nodes below and with this one, each of which serves some subscription."""
    children: list[Node] = [] if node.children is None else list(node.children.values())
    children += [each for each in (node.child, node.plus, node.hash) if each is not None]
    assert all(not child.is_empty() for child in children), "a node that nobody needs"
    return 1 + sum(node_count(child) for child in children)


def prefixes(filters: Iterable[str]) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for topic_filter in filters:
        words = tuple(split_shared(topic_filter)[1].split("/"))
        found.update(words[: length + 1] for length in range(len(words)))
    return found


# --- the trie


@given(
    st.dictionaries(st.tuples(st.sampled_from(CLIENTS), ANY_FILTER), st.integers(0, 2)),
    st.lists(TOPICS, min_size=1, max_size=5),
)
@settings(max_examples=200)
def test_the_trie_finds_what_a_naive_matcher_finds(book: Book, topics: list[str]) -> None:
    core = House().core
    queues = {client_id: make_queue(client_id, core) for client_id in CLIENTS}
    trie = Trie()
    for (client_id, topic_filter), qos in book.items():
        trie.subscribe(topic_filter, subscription(queues[client_id], topic_filter, qos))
    assert trie.count == len(book)
    assert trie.nodes <= 3 * len(book)
    for topic in topics:
        route = resolved(trie, topic)
        assert targets_of(route) == naive_targets(book, topic)
        assert groups_of(route) == naive_groups(book, topic)
    for client_id, topic_filter in book:
        trie.unsubscribe(topic_filter, client_id)
    assert trie.root.is_empty()
    assert trie.size() == 0


class TrieMachine(RuleBasedStateMachine):
    """Subscriptions come, change and go in any order; the trie and the naive book agree."""

    def __init__(self) -> None:
        super().__init__()
        core = House().core
        self.queues = {client_id: make_queue(client_id, core) for client_id in CLIENTS}
        self.trie = Trie()
        self.book: Book = {}

    @rule(client=st.sampled_from(CLIENTS), topic_filter=ANY_FILTER, qos=st.integers(0, 2))
    def subscribe(self, client: str, topic_filter: str, qos: int) -> None:
        self.trie.subscribe(topic_filter, subscription(self.queues[client], topic_filter, qos))
        self.book[client, topic_filter] = qos

    @rule(client=st.sampled_from(CLIENTS), topic_filter=ANY_FILTER)
    def unsubscribe_perhaps_in_vain(self, client: str, topic_filter: str) -> None:
        self.trie.unsubscribe(topic_filter, client)
        self.book.pop((client, topic_filter), None)

    @precondition(lambda self: bool(self.book))
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        client, topic_filter = data.draw(st.sampled_from(sorted(self.book)))
        self.trie.unsubscribe(topic_filter, client)
        del self.book[client, topic_filter]

    @precondition(lambda self: bool(self.book))
    @rule(data=st.data())
    def other_client(self, data: st.DataObject) -> None:
        """A second subscriber at the same node."""
        _, topic_filter = data.draw(st.sampled_from(sorted(self.book)))
        self.subscribe(data.draw(st.sampled_from(CLIENTS)), topic_filter, 1)

    @rule(topic=TOPICS)
    def match(self, topic: str) -> None:
        route = resolved(self.trie, topic)
        assert targets_of(route) == naive_targets(self.book, topic)
        assert groups_of(route) == naive_groups(self.book, topic)

    @invariant()
    def only_needed_nodes_are_there(self) -> None:
        needed = prefixes(topic_filter for _, topic_filter in self.book)
        assert node_count(self.trie.root) - 1 == self.trie.nodes <= len(needed)

    @invariant()
    def the_size_is_that_of_what_is_there(self) -> None:
        filters = [topic_filter for _, topic_filter in self.book]
        content = sum(content_of(each, split_shared(each)[0]) for each in filters)
        assert self.trie.count == len(filters)
        nodes = NODE_SIZE * self.trie.nodes
        assert self.trie.size() == content + nodes + SUBSCRIPTION_SIZE * len(filters)

    @rule(client=st.sampled_from(CLIENTS), topic_filter=ANY_FILTER)
    def it_knows_how_large_it_may_become(self, client: str, topic_filter: str) -> None:
        limit = self.trie.size_with(topic_filter)
        self.subscribe(client, topic_filter, 0)
        assert self.trie.size() <= limit

    @invariant()
    def groups_are_found_by_name(self) -> None:
        for _, topic_filter in self.book:
            if split_shared(topic_filter)[0]:
                group = self.trie.find_group(topic_filter)
                assert group is not None
                assert group.name == topic_filter
        assert self.trie.find_group("$share/nobody/a") is None


TrieMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25)
TestTrieMachine = TrieMachine.TestCase


def test_the_count_is_that_of_the_subscriptions_whatever_is_repeated() -> None:
    trie = Trie()
    core = House().core
    one, two = make_queue("one", core), make_queue("two", core)
    trie.subscribe("a", subscription(one, "a", 0))
    trie.subscribe("a", subscription(one, "a", 1))
    assert trie.count == 1
    trie.unsubscribe("a", two.client_id)
    assert trie.count == 1


def test_deep_filters_have_a_node_each_and_one_where_they_part() -> None:
    trie = Trie()
    queue = make_queue("one", House().core)
    deep = "/".join("x" for _ in range(100))
    filters = [f"{deep}/{number}/+/{deep}/#" for number in range(50)]
    for each in filters:
        trie.subscribe(each, subscription(queue, each, 0))
    assert trie.nodes == 1 + 2 * len(filters)  # where they part; what is in front of #, and #
    for number in range(50):
        found = resolved(trie, f"{deep}/{number}/y/{deep}/z")
        assert targets_of(found) == {"one": 0}
        assert targets_of(resolved(trie, f"{deep}/{number}/y/{deep}")) == {"one": 0}
        assert targets_of(resolved(trie, f"{deep}/{number}/y/{deep[:-2]}")) == {}


def test_a_node_with_one_child_goes_over_to_a_dict_and_back_to_nothing() -> None:
    trie = Trie()
    queue = make_queue("one", House().core)
    for word in ("a", "b", "c"):
        trie.subscribe(word, subscription(queue, word, 0))
    assert trie.root.child is None
    assert trie.root.children is not None
    for word in ("b", "a", "c"):
        assert targets_of(resolved(trie, word)) == {"one": 0}
        trie.unsubscribe(word, "one")
        assert targets_of(resolved(trie, word)) == {}
    assert trie.root.is_empty()


def test_a_topic_of_32768_levels_is_walked_without_recursion() -> None:
    trie = Trie()
    queue = make_queue("one", House().core)
    deep = "/" * 32_767
    trie.subscribe(deep, subscription(queue, deep, 1))
    trie.subscribe("#", subscription(queue, "#", 2))
    assert targets_of(resolved(trie, deep)) == {"one": 2}
    trie.unsubscribe(deep, "one")
    trie.unsubscribe("#", "one")
    assert trie.root.is_empty()


def test_the_higher_qos_of_overlapping_subscriptions_wins() -> None:
    core = House().core
    queue = make_queue("one", core)
    best: dict[str, Subscription] = {}
    for qos in (1, 2, 0):
        keep_best(best, subscription(queue, "a", qos))
    assert best["one"].qos == 2


def test_stored_copies_counts_durable_targets_above_qos_0_and_groups() -> None:
    house = House()
    trie = Trie()
    for index, qos in enumerate((0, 1, 2)):
        queue = make_queue(str(index), house.core)
        queue.durable = index != 1
        trie.subscribe("a", subscription(queue, "a", qos))
    assert resolved(trie, "a").stored_copies == 1
    queue = make_queue("member", house.core)
    trie.subscribe("$share/g/a", subscription(queue, "$share/g/a", 1))
    assert resolved(trie, "a").stored_copies == 2


def test_a_route_knows_the_topic_as_a_publish_has_it() -> None:
    route = Route("ä/b".encode(), "ä/b")
    assert route.field == b"\0\4" + "ä/b".encode()
    assert route.generation == -1


# --- the cache of routes


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


RouteMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
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


@given(st.integers(1, 9), st.lists(st.integers(0, 20), max_size=60))
def test_the_cache_never_grows_beyond_its_limit(limit: int, topics: list[int]) -> None:
    cache = RouteCache(Trie(), limit)
    for number in topics:
        topic = b"%d" % number
        if cache.find(topic) is None:
            cache.keep(Route(topic, str(number)))
        assert len(cache.young) + len(cache.old) <= max(2, limit)


def test_long_topics_are_not_kept() -> None:
    house = House()
    for size, kept in ((512, True), (513, False)):
        topic = b"x" * size
        route = house.registry.route(topic)
        assert (house.registry.routes.find(topic) is route) == kept


def test_a_plain_subscription_leaves_other_routes_alone() -> None:
    house = House()
    client = house.client("c")
    other = house.registry.route(b"other")
    before = house.registry.trie.generation
    client.subscribe(("mine", 0))
    client.unsubscribe("mine")
    assert house.registry.trie.generation == before
    assert house.registry.routes.find(b"other") is other


def test_a_plain_subscription_concerns_a_route_in_either_half_of_the_cache() -> None:
    for others in range(5):
        house = House(change=lambda options: setattr(options, "topic_cache", 8))
        client = house.client("c")
        house.registry.route(b"mine")
        for number in range(others):
            house.registry.route(b"%d" % number)
        client.subscribe(("mine", 1))
        assert targets_of(house.registry.route(b"mine")) == {"c": 1}
        client.unsubscribe("mine")
        assert targets_of(house.registry.route(b"mine")) == {}


def test_a_wildcard_subscription_makes_every_route_resolve_again_in_place() -> None:
    house = House()
    client = house.client("c")
    route = house.registry.route(b"topic")
    client.subscribe(("+", 1))
    assert house.registry.routes.find(b"topic") is route
    assert targets_of(route) == {"c": 1}


@given(st.lists(FILTERS, min_size=1, max_size=8, unique=True))
def test_a_subscriber_leaves_nothing_behind(filters: list[str]) -> None:
    house = House()
    client = house.client("c")
    client.subscribe(*((each, 1) for each in filters))
    client.disconnect()
    assert house.registry.trie.root.is_empty()
    assert house.registry.trie.count == 0
    assert house.registry.subscribers == {}

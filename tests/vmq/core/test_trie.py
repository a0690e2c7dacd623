"""The subscription trie against a naive matcher, and the route cache against none."""

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.vmq.mqtt.strategies import ANY_FILTER, TOPICS
from tests.vmq.mqtt.test_topics import naive_matches
from tests.vmq.support import House
from vmq.core.context import Core
from vmq.core.queue import Queue
from vmq.core.subscription_set import NODE_SIZE, SUBSCRIPTION_SIZE, Subscription, content_of
from vmq.core.trie import End, Node, Route, Trie
from vmq.mqtt.topics import matches, split_shared

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


def node_count(node: End) -> int:
    """Nodes below and with this one, each of which serves some subscription."""
    if not isinstance(node, Node):
        return 1
    children: list[End] = [] if node.children is None else list(node.children.values())
    children += [each for each in (node.child, node.plus, node.hash) if each is not None]
    assert all(not child.is_empty() for child in children), "a node that nobody needs"
    return 1 + sum(node_count(child) for child in children)


def prefixes(filters: Iterable[str]) -> set[tuple[str, ...]]:
    found: set[tuple[str, ...]] = set()
    for topic_filter in filters:
        words = tuple(split_shared(topic_filter)[1].split("/"))
        found.update(words[: length + 1] for length in range(len(words)))
    return found


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


def test_deep_filters_have_a_node_each_and_one_where_they_part() -> None:
    trie = Trie()
    queue = make_queue("one", House().core)
    deep = "/".join("x" for _ in range(100))
    filters = [f"{deep}/{number}/+/{deep}/#" for number in range(50)]
    for each in filters:
        trie.subscribe(each, subscription(queue, each, 0))
    assert trie.nodes == 1 + len(filters)
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


def test_stored_copies_counts_durable_targets_above_qos_0_and_groups(house: House) -> None:
    trie = Trie()
    for index, qos in enumerate((0, 1, 2)):
        queue = make_queue(str(index), house.core)
        queue.durable = index != 1
        trie.subscribe("a", subscription(queue, "a", qos))
    assert resolved(trie, "a").stored_copies == 1
    queue = make_queue("member", house.core)
    trie.subscribe("$share/g/a", subscription(queue, "$share/g/a", 1))
    assert resolved(trie, "a").stored_copies == 2


def test_a_route_of_a_topic_that_nobody_wants_has_no_lists_of_its_own() -> None:
    trie = Trie()
    one, other = resolved(trie, "a"), resolved(trie, "b")
    assert one.targets is other.targets
    assert one.groups is other.groups
    assert not one.targets
    assert not one.groups

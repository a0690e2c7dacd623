"""The retained store against a dict with a matcher."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.vmq.mqtt.strategies import FILTERS, TOPICS
from vmq.core.retained import MOST_NEW_NODES, NODE_SIZE, RetainedMessages, RetainNode, size_of
from vmq.mqtt.message import Message
from vmq.mqtt.topics import matches


def retained(topic: str, payload: bytes = b"x", qos: int = 0) -> Message:
    return Message(topic.encode(), payload, qos, True)


def found(store: RetainedMessages, topic_filter: str) -> dict[str, Message]:
    messages = store.match(topic_filter)
    by_topic = {message.topic.decode(): message for message in messages}
    assert len(by_topic) == len(messages), "a topic twice"
    return by_topic


def node_count(node: RetainNode) -> int:
    """Nodes below this one, each of which serves some message."""
    below = list((node.children or {}).values())
    assert all(each.message is not None or each.children for each in below)
    return len(below) + sum(node_count(each) for each in below)


class RetainMachine(RuleBasedStateMachine):
    """Messages are kept, replaced and cleared in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.store = RetainedMessages()
        self.book: dict[str, Message] = {}

    @rule(topic=TOPICS, payload=st.binary(min_size=1, max_size=9))
    def keep(self, topic: str, payload: bytes) -> None:
        message = retained(topic, payload)
        self.store.keep(topic, message)
        self.book[topic] = message

    @rule(topic=TOPICS)
    def clear(self, topic: str) -> None:
        assert self.store.clear(topic) == (topic in self.book)
        self.book.pop(topic, None)

    @rule(topic_filter=FILTERS)
    def match(self, topic_filter: str) -> None:
        expected = {
            topic: message for topic, message in self.book.items() if matches(topic_filter, topic)
        }
        assert found(self.store, topic_filter) == expected

    @invariant()
    def it_counts_messages_nodes_and_bytes(self) -> None:
        store = self.store
        assert store.count == len(self.book)
        assert store.nodes == node_count(store.root)
        content = sum(size_of(topic, len(each.payload)) for topic, each in self.book.items())
        assert store.content == content
        assert store.size() == content + NODE_SIZE * store.nodes

    @rule(topic=TOPICS, size=st.integers(1, 9))
    def it_knows_how_large_it_may_become(self, topic: str, size: int) -> None:
        limit = self.store.size_with(topic, size, self.book.get(topic))
        self.keep(topic, bytes(size))
        assert limit - MOST_NEW_NODES * NODE_SIZE <= self.store.size() <= limit

    @rule(topic=TOPICS)
    def get(self, topic: str) -> None:
        assert self.store.get(topic) is self.book.get(topic)

    def teardown(self) -> None:
        for topic in self.book:
            assert self.store.clear(topic)
        assert self.store.root.children is None, "nodes that nobody needs"
        assert self.store.size() == 0


def test_deep_topics_have_a_node_each_and_one_where_they_part() -> None:
    store = RetainedMessages()
    deep = "/".join("x" for _ in range(100))
    for number in range(50):
        topic = f"{deep}/{number}/{deep}"
        store.keep(topic, retained(topic))
    assert store.nodes == 1 + 50
    assert set(found(store, f"{deep}/7/#")) == {f"{deep}/7/{deep}"}
    assert len(found(store, f"{deep}/+/{deep}")) == 50
    assert len(found(store, "#")) == 50
    assert found(store, f"{deep}/+/{deep[:-2]}") == {}


RetainMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30)
TestRetainMachine = RetainMachine.TestCase


# --- a walk


def kept(topics: list[str]) -> RetainedMessages:
    messages = RetainedMessages()
    for topic in topics:
        messages.keep(topic, retained(topic))
    return messages


@given(st.lists(TOPICS, unique=True), FILTERS, st.integers(1, 5))
def test_a_walk_in_steps_finds_what_the_filter_matches(
    topics: list[str], topic_filter: str, most: int
) -> None:
    messages = kept(topics)
    walk = messages.walk(topic_filter)
    found: list[str] = []
    while not walk.is_over():
        found.extend(each.topic.decode() for each in walk.take(most))
        assert walk.visited <= most
    assert sorted(found) == sorted(each for each in topics if matches(topic_filter, each))


@given(st.lists(TOPICS, unique=True), st.lists(TOPICS, unique=True), FILTERS, st.integers(1, 3))
def test_what_comes_and_goes_during_a_walk_does_no_harm(
    before: list[str], after: list[str], topic_filter: str, most: int
) -> None:
    messages = kept(before)
    walk = messages.walk(topic_filter)
    found = [each.topic.decode() for each in walk.take(most)]
    for topic in set(before) - set(after):
        messages.clear(topic)
    for topic in after:
        messages.keep(topic, retained(topic, b"y"))
    found += [each.topic.decode() for each in walk.rest()]
    assert len(found) == len(set(found))
    stayed = {each for each in set(before) & set(after) if matches(topic_filter, each)}
    assert stayed <= set(found) <= set(before) | set(after)

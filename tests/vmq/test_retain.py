"""The retained store against a dict with a matcher."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.vmq.mqtt.strategies import FILTERS, TOPICS
from tests.vmq.support import House
from vmq.message import Message
from vmq.mqtt.topics import matches
from vmq.retain import RetainedMessages


def retained(topic: str, payload: bytes = b"x", qos: int = 0) -> Message:
    return Message(topic.encode(), payload, qos, True)


def found(store: RetainedMessages, topic_filter: str) -> dict[str, Message]:
    messages = store.match(topic_filter)
    by_topic = {message.topic.decode(): message for message in messages}
    assert len(by_topic) == len(messages), "a topic twice"
    return by_topic


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
    def it_counts_messages_and_bytes(self) -> None:
        assert self.store.count == len(self.book)
        sizes = (len(each.topic) + len(each.payload) for each in self.book.values())
        assert self.store.bytes == sum(sizes)

    def teardown(self) -> None:
        for topic in self.book:
            assert self.store.clear(topic)
        assert self.store.root.children is None, "nodes that nobody needs"


RetainMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestRetainMachine = RetainMachine.TestCase


@given(st.sets(TOPICS, max_size=8), st.lists(FILTERS, min_size=1, max_size=4))
@settings(max_examples=200)
def test_matching_finds_what_a_naive_matcher_finds(topics: set[str], filters: list[str]) -> None:
    store = RetainedMessages()
    for topic in topics:
        store.keep(topic, retained(topic))
    for topic_filter in filters:
        assert set(found(store, topic_filter)) == {
            topic for topic in topics if matches(topic_filter, topic)
        }


def test_the_latest_message_of_a_topic_takes_the_place_of_the_older() -> None:
    store = RetainedMessages()
    store.keep("t", retained("t", b"old", 2))
    latest = retained("t", b"newer", 0)
    store.keep("t", latest)
    assert store.match("t") == [latest]
    assert (store.count, store.bytes) == (1, 6)


def test_clearing_a_topic_leaves_those_above_and_below() -> None:
    store = RetainedMessages()
    for topic in ("a", "a/b", "a/b/c"):
        store.keep(topic, retained(topic))
    assert store.clear("a/b")
    assert not store.clear("a/b")
    assert not store.clear("a/b/c/d")
    assert set(found(store, "#")) == {"a", "a/b/c"}
    assert store.clear("a/b/c")
    assert set(found(store, "#")) == {"a"}


def test_system_topics_are_hidden_from_leading_wildcards_only() -> None:
    store = RetainedMessages()
    for topic in ("$SYS/a", "$SYS", "b/$c"):
        store.keep(topic, retained(topic))
    assert set(found(store, "#")) == {"b/$c"}
    assert set(found(store, "+/a")) == set()
    assert set(found(store, "+")) == set()
    assert set(found(store, "$SYS/#")) == {"$SYS/a", "$SYS"}
    assert set(found(store, "b/+")) == {"b/$c"}


def test_topics_of_many_levels_are_walked_without_recursion() -> None:
    store = RetainedMessages()
    deep = "/" * 32_767
    store.keep(deep, retained(deep))
    assert list(found(store, "#")) == [deep]
    assert list(found(store, deep)) == [deep]
    assert store.clear(deep)
    assert store.root.children is None


@given(st.sets(TOPICS, max_size=6), FILTERS)
def test_a_new_subscription_brings_each_matching_topic_once(
    topics: set[str], topic_filter: str
) -> None:
    house = House()
    for topic in topics:
        house.publish(topic, topic.encode(), retain=True)
    client = house.client("c")
    client.subscribe((topic_filter, 0))
    packets = client.take()
    assert all(packet.retain for packet in packets)
    assert sorted(packet.topic for packet in packets) == sorted(
        topic for topic in topics if matches(topic_filter, topic)
    )

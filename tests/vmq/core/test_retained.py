"""The retained store against a dict with a matcher."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.vmq.mqtt.strategies import FILTERS, TOPICS
from vmq.core.retained import MESSAGE_SIZE, MOST_IN_BLOCK, RetainedMessages
from vmq.mqtt.message import Message
from vmq.mqtt.topics import matches


def retained(topic: str, payload: bytes = b"x", qos: int = 0) -> Message:
    return Message(topic.encode(), payload, qos, True)


def found(store: RetainedMessages, topic_filter: str) -> dict[str, Message]:
    messages = store.match(topic_filter)
    by_topic = {message.topic.decode(): message for message in messages}
    assert len(by_topic) == len(messages), "a topic twice"
    return by_topic


def check_order(store: RetainedMessages) -> None:
    """Every list holds what its bound says, and none is empty or too long."""
    bounds = store.bounds
    assert bounds[0] == b""
    assert len(bounds) == len(store.blocks)
    for bound, block, above in zip(bounds, store.blocks, [*bounds[1:], None], strict=True):
        topics = [each.topic for each in block]
        assert topics == sorted(set(topics))
        assert all(bound <= each and (above is None or each < above) for each in topics)
        assert len(topics) <= store.longest
        assert topics or store.count == 0


class RetainMachine(RuleBasedStateMachine):
    """Messages are kept, replaced and cleared in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.store = RetainedMessages(longest=4)
        self.book: dict[str, Message] = {}

    @rule(topic=TOPICS, payload=st.binary(min_size=1, max_size=9))
    def keep(self, topic: str, payload: bytes) -> None:
        message = retained(topic, payload)
        self.store.keep(message)
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
        store = self.store
        check_order(store)
        assert store.count == len(self.book)
        content = sum(len(topic.encode()) + len(each.payload) for topic, each in self.book.items())
        assert store.content == content
        assert store.size() == content + MESSAGE_SIZE * store.count

    @rule(topic=TOPICS, size=st.integers(1, 9))
    def it_knows_how_large_it_will_become(self, topic: str, size: int) -> None:
        expected = self.store.size_with(topic, size, self.book.get(topic))
        self.keep(topic, bytes(size))
        assert self.store.size() == expected

    @rule(topic=TOPICS)
    def get(self, topic: str) -> None:
        assert self.store.get(topic) is self.book.get(topic)

    def teardown(self) -> None:
        for topic in self.book:
            assert self.store.clear(topic)
        assert self.store.blocks == [[]], "lists that nobody needs"
        assert self.store.size() == 0


def test_many_topics_in_any_order() -> None:
    store = RetainedMessages()
    topics = [f"{site}/{number}/x" for number in range(2 * MOST_IN_BLOCK) for site in "ab"]
    random.Random(7).shuffle(topics)
    for topic in topics:
        store.keep(retained(topic))
    check_order(store)
    assert len(store.blocks) > 4
    assert set(found(store, "#")) == set(topics)
    assert set(found(store, "+/7/+")) == {"a/7/x", "b/7/x"}
    assert set(found(store, "b/#")) == {each for each in topics if each[0] == "b"}
    walk = store.walk("+/7/x")
    walk.rest()
    assert walk.visited < 10, "a walk leaps over what it cannot match"
    for topic in topics[8:]:
        store.clear(topic)
        check_order(store)
    assert len(store.blocks) <= 2, "lists that are short are put together"


RetainMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=30)
TestRetainMachine = RetainMachine.TestCase


def test_words_that_go_on_with_what_is_in_front_of_a_slash() -> None:
    """Of topics in order, those below a word do not follow it at once."""
    store = kept(["a/b", "a/b x/c", "a/b-x/c", "a/b.x/c", "a/b/c", "a/b0/c"])
    assert list(found(store, "a/+/c")) == ["a/b x/c", "a/b-x/c", "a/b.x/c", "a/b/c", "a/b0/c"]
    assert list(found(store, "+/b/#")) == ["a/b", "a/b/c"]


def test_text_that_no_topic_has_finds_nothing() -> None:
    """A client cannot send it; an operator can ask for it."""
    store = kept(["a"])
    assert store.get("\ud800") is None
    assert store.match("\ud800/+") == []
    assert not store.clear("\ud800")


def kept(topics: list[str]) -> RetainedMessages:
    messages = RetainedMessages(longest=4)
    for topic in topics:
        messages.keep(retained(topic))
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
        messages.keep(retained(topic, b"y"))
    found += [each.topic.decode() for each in walk.rest()]
    assert len(found) == len(set(found))
    stayed = {each for each in set(before) & set(after) if matches(topic_filter, each)}
    assert stayed <= set(found) <= set(before) | set(after)

"""Retained messages: list, show, delete."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.peer import Peer
from vmq.admin.errors import AdminError, NotFoundError
from vmq.admin.listing import SLICE, Selection
from vmq.admin.retained import delete_retained, list_retained, show_retained, walk
from vmq.broker import Broker
from vmq.config.options import Config
from vmq.core.retained import RetainedMessages
from vmq.mqtt.message import Message

ALL = Selection(limit=0)


class OneTree:
    """What `walk` needs of a registry."""

    def __init__(self, topics: set[str]) -> None:
        self.retained = RetainedMessages()
        for topic in topics:
            self.retained.keep(Message(topic.encode(), b"x", 0, True))


def walked(registry: OneTree, topic_filter: str) -> Iterator[str]:
    for message in walk(registry, topic_filter):  # type: ignore[arg-type]
        if message is not None:
            yield message.topic.decode()


WORDS = st.sampled_from(["a", "b", "", "$x"])
TOPICS = st.lists(WORDS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.tuples(
    st.lists(st.one_of(WORDS, st.just("+")), max_size=4), st.sampled_from([[], ["#"]])
).map(lambda parts: "/".join([*parts[0], *parts[1]]))


@given(st.sets(TOPICS), FILTERS.filter(bool))
def test_the_walk_finds_what_a_subscription_would(topics: set[str], topic_filter: str) -> None:
    registry = OneTree(topics)
    expected = sorted(each.topic.decode() for each in registry.retained.match(topic_filter))
    assert sorted(walked(registry, topic_filter)) == expected


def test_without_a_filter_all_are_found() -> None:
    topics = {"a", "a/b", "$SYS/x", "/", "c//d"}
    assert set(walked(OneTree(topics), "")) == topics


def test_the_tree_may_change_during_a_walk() -> None:
    registry = OneTree({f"t/{number}" for number in range(100)})
    steps = walked(registry, "t/+")
    first = next(steps)
    gone = "t/50" if first != "t/50" else "t/51"
    registry.retained.clear(gone)
    for number in range(100, 200):
        registry.retained.keep(Message(f"t/{number}".encode(), b"x", 0, True))
    assert gone not in [first, *steps]


def test_topics_may_come_on_the_way_that_a_walk_goes() -> None:
    topics = {f"t/{number}/x/y" for number in range(100)}
    registry = OneTree(topics)
    steps = walked(registry, "t/+/x/+")
    first = next(steps)
    for topic in topics:
        other = topic.replace("x/y", "z")
        registry.retained.keep(Message(other.encode(), b"x", 0, True))
    assert {first, *steps} == topics


async def test_rows(node: Broker) -> None:
    peer = Peer(node.registry(), "me")
    peer.publish("a/1", b"one", retain=True)
    peer.publish("a/2", b"\xff" * 100, qos=1, retain=True)
    rows = await list_retained(node, Selection(sort="topic"), "a/+").rows()
    found = [(row.topic, row.qos, row.size, row.payload) for row in rows]
    assert found == [("a/1", 0, 3, "one"), ("a/2", 1, 100, "ff" * 64)]
    assert show_retained(node, "a/2").payload == "ff" * 100
    chosen = Selection(where="size > 50 and encoding = 'hex'")
    assert [row.topic for row in await list_retained(node, chosen).rows()] == ["a/2"]


async def test_delete_reaches_the_store(config: Config) -> None:
    async with Broker(config) as node:
        peer = Peer(node.registry(), "me")
        for number in range(SLICE + 10):
            peer.publish(f"a/{number}", retain=True)
        peer.publish("b", retain=True)
        watcher = Peer(node.registry(), "watcher", ("a/0", 0))
        watcher.received.clear()
        assert (await delete_retained(node, "a/#")).deleted == SLICE + 10
        assert not watcher.received
        assert node.registry().retained.count == 1
    async with Broker(config) as node:
        assert [row.topic for row in await list_retained(node, ALL).rows()] == ["b"]


async def test_what_was_deleted_of_another_topic_tree_does_not_come_back(config: Config) -> None:
    async with Broker(config) as node:
        await node.publish("a", b"x", retain=True, mountpoint="m")
        assert (await delete_retained(node, "a", "m")).deleted == 1
    async with Broker(config) as node:
        assert node.registry("m").retained.count == 0


async def test_errors(node: Broker) -> None:
    with pytest.raises(NotFoundError, match="'a' has no retained message"):
        show_retained(node, "a")
    with pytest.raises(NotFoundError, match="no retained message matches 'a/#'"):
        await delete_retained(node, "a/#")
    with pytest.raises(AdminError, match="misplaced #"):
        list_retained(node, ALL, "a/#/b")
    with pytest.raises(AdminError, match="shared subscription"):
        await delete_retained(node, "$share/g/a")
    with pytest.raises(AdminError, match="missing"):
        await delete_retained(node, "")

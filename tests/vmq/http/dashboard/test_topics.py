import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.peer import Peer
from vmq.broker import Broker
from vmq.core.trie import Route
from vmq.http.dashboard import topics
from vmq.http.dashboard.topics import MOST_ROWS, TOP, RouteSums, TopicTree, _add_up

LEVELS = st.lists(st.sampled_from(["", "a", "b", "<img>"]), min_size=1, max_size=4)


def route(topic: str, messages: int) -> Route:
    found = Route(topic.encode(), topic)
    found.messages = messages
    return found


@given(st.dictionaries(LEVELS.map("/".join), st.integers(0, 5), max_size=12), st.data())
def test_sums_are_those_of_all_topics_below(known: dict[str, int], data: st.DataObject) -> None:
    """Against sums over all topics, one level after the other."""
    known.pop("", None)
    path = data.draw(st.sampled_from([TOP, *sorted(known)]))
    sums: topics.Sums = {TOP: {}}
    parts = [] if path == TOP else path.split("/")
    for number in range(len(parts)):
        sums["/".join(parts[: number + 1])] = {}
    _add_up(sums, [route(topic, count) for topic, count in known.items()])
    wanted: dict[str, list[int]] = {}
    for topic, count in known.items():
        levels = topic.split("/")
        if count and len(levels) > len(parts) and levels[: len(parts)] == parts:
            one = wanted.setdefault(levels[len(parts)], [0, 0, 0])
            one[0] += 1
            one[1] += count
            one[2] += len(levels) == len(parts) + 1
    found = {
        name: [each.topics, each.messages, int(each.is_topic)] for name, each in sums[path].items()
    }
    assert found == wanted


async def test_each_message_counts_at_its_topic(broker: Broker) -> None:
    now = [0.0]
    tree = TopicTree(RouteSums(broker), lambda: now[0])
    peer = Peer(broker.registry(), "me")
    peer.publish("a/b")
    peer.publish("a/b", qos=1)
    peer.publish("a/b", qos=2)
    peer.publish("a/b/c", retain=True)
    peer.publish("<img src=x onerror=alert(1)>")
    top, below = await tree.branches([TOP, "a"])
    found = [(row.name, row.topics, row.messages) for row in top.rows]
    assert found == [("<img src=x onerror=alert(1)>", 1, 1), ("a", 2, 4)]
    (row,) = below.rows
    assert (row.name, row.messages, row.is_topic, row.has_more) == ("b", 4, True, True)
    now[0] += 2
    for _ in range(10):
        peer.publish("a/b")
    top, _ = await tree.branches([TOP, "a"])
    assert [row.rate for row in top.rows] == [0.0, 5.0]


async def test_all_pages_share_one_look_a_second(broker: Broker) -> None:
    now = [0.0]
    tree = TopicTree(RouteSums(broker), lambda: now[0])
    Peer(broker.registry(), "me").publish("a")
    await asyncio.gather(*(tree.branches([TOP]) for _ in range(50)))
    assert tree.looks <= 2
    looks = tree.looks
    now[0] += 0.9
    await tree.branches([TOP])
    assert tree.looks == looks
    now[0] += 0.2
    await tree.branches([TOP])
    assert tree.looks == looks + 1


async def test_rows_are_bounded_and_told_of(broker: Broker) -> None:
    registry = broker.registry()
    peer = Peer(registry, "me")
    for number in range(2000):
        peer.publish(f"t{number}")
        peer.publish(f"u/{number}")
    tree = TopicTree(RouteSums(broker), lambda: 0.0)
    top, below = await tree.branches([TOP, "u"])
    assert len(top.rows) + len(below.rows) <= MOST_ROWS
    assert (len(top.rows) + top.hidden, len(below.rows) + below.hidden) == (2001, 2000)
    assert "u" in {row.name for row in top.rows}, "what has most messages is shown"


async def test_what_nobody_asks_for_is_summed_up_no_more(broker: Broker) -> None:
    now = [0.0]
    sums = RouteSums(broker)
    tree = TopicTree(sums, lambda: now[0])
    peer = Peer(broker.registry(), "me")
    peer.publish("a/b")
    await tree.branches([TOP, "a"])
    assert [path for path in (TOP, "a", "b") if path in sums] == [TOP, "a"]
    now[0] += topics.KEPT + 1
    await tree.branches([TOP])
    assert [path for path in (TOP, "a") if path in sums] == [TOP]


async def test_it_looks_less_often_where_a_look_takes_long(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(topics, "perf_counter", lambda: float(next(clock)))
    Peer(broker.registry(), "me").publish("a")
    tree = TopicTree(RouteSums(broker), lambda: 0.0)
    await tree.branches([TOP])
    assert tree._pause == topics.PAUSE

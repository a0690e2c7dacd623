"""The subscriptions of other nodes, against a naive twin."""

from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.mqtt.strategies import ANY_FILTER, TOPICS
from tests.vmq.mqtt.test_topics import naive_matches
from vmq.clustering.directory.records import Record
from vmq.clustering.routing.remotes import RemoteSubscriptions
from vmq.mqtt.topics import split_shared

RECORDS = st.none() | st.builds(
    Record,
    st.sampled_from(["own", "b", "c"]),
    st.just(0),
    st.booleans(),
    st.dictionaries(ANY_FILTER, st.integers(0, 2), max_size=4),
    st.booleans(),
)
#: What becomes of the records of a few clients.
CHANGES = st.lists(st.tuples(st.integers(0, 3), RECORDS), max_size=12)

#: QoS by node; for each share group with members elsewhere, by node: how many are online and away.
Found = tuple[dict[str, int], dict[str, dict[str, int]]]


def naive(records: dict[int, Record | None], topic: str) -> Found:
    nodes: dict[str, int] = {}
    groups: dict[str, dict[str, int]] = {}
    for record in records.values():
        if record is None:
            continue
        for topic_filter, qos in record.subscriptions.items():
            group, plain = split_shared(topic_filter)
            if not naive_matches(plain, topic):
                continue
            if group:
                members = groups.setdefault(topic_filter, {})
                members[record.node] = members.get(record.node, 0) + 1
            elif record.node != "own":
                nodes[record.node] = max(qos, nodes.get(record.node, 0))
    return nodes, {name: members for name, members in groups.items() if members.keys() - {"own"}}


def found(remotes: RemoteSubscriptions, topic: str) -> Found:
    targets = remotes.find(topic)
    return targets.nodes, {
        name: {node: each.total for node, each in members.items()}
        for name, members in targets.groups.items()
    }


@given(CHANGES, st.lists(TOPICS, min_size=1, max_size=4))
def test_targets_are_those_of_the_naive_twin(
    changes: list[tuple[int, Record | None]], topics: list[str]
) -> None:
    remotes = RemoteSubscriptions("own")
    records: dict[int, Record | None] = {}
    for client, record in changes:
        before = {topic: found(remotes, topic) for topic in topics}
        changed = remotes.change(records.get(client), record)
        records[client] = record
        for topic in topics:
            now = found(remotes, topic)
            assert now == naive(records, topic)
            # Who keeps routes forgets enough of them.
            if (now[0], now[1].keys()) != (before[topic][0], before[topic][1].keys()):
                assert any(naive_matches(split_shared(each)[1], topic) for each in changed)
    for client, record in records.items():
        remotes.change(record, None)
        records[client] = None
    assert remotes._root.is_empty, "something is left of what is gone"


def test_a_second_subscriber_of_a_node_changes_nothing() -> None:
    remotes = RemoteSubscriptions("own")
    assert remotes.change(None, Record("b", 0, True, {"t/#": 1})) == ["t/#"]
    assert remotes.change(None, Record("b", 0, True, {"t/#": 0})) == []
    assert remotes.find("t/1").nodes == {"b": 1}
    assert remotes.change(Record("b", 0, True, {"t/#": 1}), None) == ["t/#"]
    assert remotes.find("t/1").nodes == {"b": 0}

"""What the leader of the meta group proposes, step by step, until nothing is left to be decided."""

from collections import Counter
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmq.clustering.raft import decisions
from vmq.clustering.raft.decisions import Known, WantedStream, meta_voters, next_commands
from vmq_cluster.raft import meta

THREE, FOUR = ("a", "b", "c"), ("a", "b", "c", "d")


def settle(decided: meta.Definitions, known: Known) -> int:
    """Decides what is proposed until nothing is; returns in how many steps."""
    for step in range(100):
        commands = next_commands(decided, known, lambda: "id")
        if not commands:
            return step
        for command in commands:
            decided.apply(meta.encode(command))
    raise AssertionError("it never ends")


@pytest.fixture
def decided() -> meta.Definitions:
    """Nothing yet."""
    return meta.Definitions()


def test_a_stream_is_placed_once_there_are_hosts(decided: meta.Definitions) -> None:
    streams = {"s": WantedStream(4, 3)}
    settle(decided, Known(("a", "b"), streams))
    assert not decided.streams
    settle(decided, Known(THREE, streams))
    assert all(each.first == each.voters for each in decided.groups.values())
    assert [len(set(each.voters)) for each in decided.groups.values()] == [3] * 4
    settle(decided, Known(THREE, {"s": WantedStream(6, 3)}))
    assert len(decided.groups) == 6


def test_who_is_gone_is_replaced_and_nobody_else_moves(decided: meta.Definitions) -> None:
    streams = {"s": WantedStream(8, 3)}
    settle(decided, Known(FOUR, streams))
    before = {group: each.voters for group, each in decided.groups.items()}
    settle(decided, Known(THREE, streams))
    for group, each in decided.groups.items():
        assert "d" not in each.wanted
        if "d" not in before[group]:
            assert each.wanted == before[group]


def test_a_few_groups_move_at_a_time(decided: meta.Definitions) -> None:
    streams = {"s": WantedStream(40, 3)}
    settle(decided, Known(FOUR, streams))
    settle(decided, Known(THREE, streams))
    moving = decided.moving()
    assert 0 < len(moving) <= 8
    news = {group: (voters, 1) for group, voters in moving.items()}
    settle(decided, Known(THREE, streams, members=news))
    assert not set(moving) & set(decided.moving())


def test_old_news_of_members_is_passed_over(decided: meta.Definitions) -> None:
    streams = {"s": WantedStream(1, 3)}
    settle(decided, Known(THREE, streams))
    decided.apply(meta.encode(meta.Moved("id/0", ("a", "b"), 5)))
    assert not next_commands(decided, Known(THREE, streams, members={"id/0": (("c",), 4)}))


def test_a_deleted_stream_goes_by_its_id(decided: meta.Definitions) -> None:
    settle(decided, Known(THREE, {"s": WantedStream(1, 3)}))
    settle(decided, Known(THREE, {}, frozenset({"another"})))
    assert "s" in decided.streams
    settle(decided, Known(THREE, {}, frozenset({"id"})))
    assert (decided.streams, decided.groups) == ({}, {})


def test_an_operator_moves_a_group(decided: meta.Definitions) -> None:
    streams = {"s": WantedStream(1, 2)}
    settle(decided, Known(THREE, streams))
    wanted = tuple(each for each in "abc" if each != decided.groups["id/0"].voters[0])
    settle(decided, Known(THREE, streams, moves={"id/0": wanted}))
    assert decided.groups["id/0"].wanted == wanted


def test_what_was_missing_is_made_when_there_is_a_host_again(decided: meta.Definitions) -> None:
    """A node is removed where there is none to spare; another one joins later."""
    streams = {"s": WantedStream(4, 3)}
    settle(decided, Known(THREE, streams))
    settle(decided, Known(("a", "b"), streams))
    assert {each.wanted for each in decided.groups.values()} <= {("a", "b"), ("b", "a")}
    news = {group: (voters, 1) for group, voters in decided.moving().items()}
    settle(decided, Known(("a", "b", "d"), streams, members=news))
    assert {frozenset(each.wanted) for each in decided.groups.values()} == {frozenset("abd")}


def test_voters_of_the_meta_group_stay_while_they_are_hosts() -> None:
    assert meta_voters(("a",), ("a",)) == ("a",)
    assert set(meta_voters(("a",), THREE)) == {"a", "b", "c"}
    assert meta_voters(THREE, FOUR) == THREE
    assert set(meta_voters(THREE, ("b", "c", "d"))) == {"b", "c", "d"}
    assert len(meta_voters(THREE, tuple("abcdefg"))) == 5
    assert meta_voters(("a",), ()) == ("a",)


def hosts_of(known: Known, voters: tuple[str, ...]) -> list[str]:
    return sorted(known.labels.get(each, each) for each in voters)


def test_nodes_of_one_host_have_no_two_copies_of_a_partition() -> None:
    labels = {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c": "c"}
    two = Known(("a1", "a2", "b1", "b2"), {"s": WantedStream(8, 3)}, labels=labels)
    decided = meta.Definitions()
    settle(decided, two)
    assert not decided.streams, "four nodes on two hosts have room for two copies"
    three = Known((*two.hosts, "c"), two.streams, labels=labels)
    settle(decided, three)
    assert [hosts_of(three, each.wanted) for each in decided.groups.values()] == [[*"abc"]] * 8
    news = {group: (each.wanted, 1) for group, each in decided.groups.items()}
    settle(decided, Known(("a2", "b1", "b2", "c"), two.streams, members=news, labels=labels))
    gone = [each.wanted for each in decided.groups.values() if "a1" in each.voters]
    assert gone
    assert {frozenset(hosts_of(three, each)) for each in gone} == {frozenset("abc")}
    assert not any("a1" in each for each in gone)
    assert hosts_of(three, meta_voters(("a1",), three.hosts, labels)) == [*"abc"]


def test_nodes_that_turn_out_to_share_a_host_part_with_a_copy(decided: meta.Definitions) -> None:
    streams = {"s": WantedStream(1, 2)}
    settle(decided, Known(THREE, streams))
    one, two = decided.groups["id/0"].wanted
    known = Known(THREE, streams, labels={one: "same", two: "same"})
    settle(decided, known)
    assert len(set(hosts_of(known, decided.groups["id/0"].wanted))) == 2


def test_a_group_begins_with_who_has_the_only_copy_and_gets_others(
    decided: meta.Definitions,
) -> None:
    streams = {"s": WantedStream(2, 3, ("b", ""))}
    settle(decided, Known(THREE, streams))
    first, second = decided.groups["id/0"], decided.groups["id/1"]
    assert (first.first, first.voters, first.wanted[0]) == (("b",), ("b",), "b")
    assert sorted(first.wanted) == ["a", "b", "c"]
    assert sorted(second.first) == ["a", "b", "c"]


def test_a_stream_gets_more_replicas_and_fewer(decided: meta.Definitions) -> None:
    settle(decided, Known(FOUR, {"s": WantedStream(4, 2)}))
    before = {group: each.wanted for group, each in decided.groups.items()}
    settle(decided, Known(FOUR, {"s": WantedStream(4, 3)}))
    for group, each in decided.groups.items():
        assert each.wanted[:2] == before[group]
        assert len(each.wanted) == 3
    news = {group: (each.wanted, 1) for group, each in decided.groups.items()}
    settle(decided, Known(FOUR, {"s": WantedStream(4, 2)}, members=news))
    assert {group: each.wanted for group, each in decided.groups.items()} == before


def test_nothing_is_proposed_that_nodes_have_no_room_for(decided: meta.Definitions) -> None:
    hosts = THREE
    streams = {"big": WantedStream(7, 3), "small": WantedStream(4, 3)}
    known = Known(hosts, streams, limits={"a": 5, "b": 6, "c": 0})
    settle(decided, known)
    assert list(decided.streams) == ["small"]
    known = Known(hosts, {"small": WantedStream(6, 3)}, limits=known.limits)
    settle(decided, known)
    assert len(decided.groups) == 4
    settle(decided, Known(hosts, known.streams))  # no limits any more
    assert len(decided.groups) == 6


def test_who_is_gone_is_replaced_by_nodes_that_have_room(decided: meta.Definitions) -> None:
    hosts, streams = THREE, {"s": WantedStream(6, 3)}
    settle(decided, Known(hosts, streams))
    settle(decided, Known(("a", "b", "d"), streams, limits={"d": 2}))
    assert sum("d" in each.wanted for each in decided.groups.values()) == 2
    assert not any("c" in each.wanted for each in decided.groups.values())


HOSTS = "abcd"
NODES = st.lists(st.sampled_from(HOSTS), unique=True, min_size=1).map(tuple)
NAMES = st.sampled_from("st")
GROUPS = st.builds(lambda name, number: f"{name}/{number}", NAMES, st.integers(0, 2))
LABELS = st.sampled_from(["abcd", "aacd", "abcc"])
COMMANDS = st.one_of(
    st.builds(
        lambda hosts, labels, limit: meta.SetHosts(
            hosts, tuple(labels[HOSTS.index(each)] for each in hosts), (limit,) * len(hosts)
        ),
        NODES,
        LABELS,
        st.sampled_from([0, 2, 4]),
    ),
    st.builds(
        lambda name, copies: meta.MakeStream(name, name, 3, copies), NAMES, st.integers(1, 3)
    ),
    st.builds(lambda name: meta.DeleteStream(name, name), NAMES),
    st.builds(meta.SetReplicas, NAMES, st.integers(1, 3)),
    st.builds(meta.Move, GROUPS, NODES),
    st.builds(meta.Moved, GROUPS, NODES, st.integers(0, 3)),
)


def is_settled(decided: meta.Definitions, known: Known) -> bool:
    """The naive way: whether no group of all is to be elsewhere."""
    full = {node for node, left in decided.free().items() if left <= 0}
    counts = {each.id: each.replicas for each in decided.streams.values()}
    for group, placed in decided.groups.items():
        asked = known.moves.get(group)
        wanted = decisions._better(group, placed, decided, counts[group[0]], full)
        if asked is not None and set(asked) <= set(decided.hosts):
            wanted = asked
        if wanted != placed.wanted:
            return False
    return True


@settings(deadline=None)
@given(st.lists(COMMANDS, max_size=12), st.dictionaries(GROUPS, NODES, max_size=2))
def test_what_is_kept_of_groups_is_what_all_of_them_give(
    commands: list[Any], moves: dict[str, tuple[str, ...]]
) -> None:
    decided, changed = meta.Definitions(), set()
    for command in commands:
        before = dict(decided.groups)
        try:
            decided.apply(meta.encode(command))
        except meta.RefusedError:
            continue
        changed = decided.take_changed()
        both = before.keys() | decided.groups.keys()
        assert {each for each in both if before.get(each) != decided.groups.get(each)} <= changed
        assert changed <= both
        assert decided.moving() == {
            name: each.wanted for name, each in decided.groups.items() if each.wanted != each.voters
        }
        had = Counter(node for each in decided.groups.values() for node in each.wanted)
        assert decided.free() == {host: most - had[host] for host, most in decided.limits.items()}
        found = {(group, nodes) for (_, nodes), groups in decided.sets() for group in groups}
        assert found == {(group, each.wanted) for group, each in decided.groups.items()}
        known = Known(moves=moves)
        if len(decided.moving()) < decisions.MOVING:
            assert (not list(decisions._moves(decided, known))) == is_settled(decided, known)


def test_of_thousands_of_groups_those_are_looked_at_that_may_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    better = Mock(wraps=decisions._better)
    decided = meta.Definitions()
    streams = {"s": WantedStream(2000, 3)}
    hosts = FOUR
    settle(decided, Known(hosts, streams))
    monkeypatch.setattr(decisions, "_better", better)
    assert not next_commands(decided, Known(hosts, streams))
    better.assert_not_called()
    asked = {"id/7": decided.groups["id/7"].wanted[::-1]}
    assert next_commands(decided, Known(hosts, streams, moves=asked)) == [
        meta.Move("id/7", asked["id/7"])
    ]
    assert [each.args[0] for each in better.call_args_list] == ["id/7"]
    better.reset_mock()
    # One node leaves: its groups move a few at a time, and no more of them are looked at.
    decided.apply(meta.encode(meta.SetHosts(hosts[:3])))
    assert len(next_commands(decided, Known(hosts[:3], streams))) == decisions.MOVING
    assert better.call_count == decisions.MOVING
    # There is nobody else any more: one of those that have the same nodes says so for all.
    decided = meta.Definitions()
    settle(decided, Known(hosts[:3], streams))
    decided.apply(meta.encode(meta.SetHosts(hosts[:2])))
    for group in [*decided.groups]:
        decided.apply(meta.encode(meta.Move(group, ("a", "b"))))
        decided.apply(meta.encode(meta.Moved(group, ("a", "b"), 1)))
    better.reset_mock()
    assert not next_commands(decided, Known(hosts[:2], streams))
    assert better.call_count == 1

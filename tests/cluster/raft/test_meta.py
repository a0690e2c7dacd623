"""What the meta group decides, on each replica alike."""

import pytest

from vmq_cluster.raft import meta

HOSTS = ("h1", "h2", "h3", "h4", "h5")


def after(*commands: meta.Command) -> meta.Definitions:
    found = meta.Definitions()
    for command in (meta.SetHosts(HOSTS), *commands):
        found.apply(meta.encode(command))
    return found


def test_a_stream_gets_groups_whose_members_are_hosts() -> None:
    found = after(meta.MakeStream("s", "id1", 10, 3))
    assert len(found.groups) == 10
    assert all(len(set(each.voters)) == 3 for each in found.groups.values())
    leads = [each.voters[0] for each in found.groups.values()]
    assert max(leads.count(host) for host in HOSTS) <= 2 + 1
    assert found.moving() == {}


def test_a_name_is_given_once() -> None:
    found = after(meta.MakeStream("s", "id1", 1, 1))
    with pytest.raises(meta.RefusedError):
        found.apply(meta.encode(meta.MakeStream("s", "id2", 1, 1)))
    assert found.streams["s"].id == "id1"


@pytest.mark.parametrize(
    "command",
    [
        meta.MakeStream("t", "id", 0, 1),
        meta.MakeStream("t", "id", 1, 6),
        meta.AddPartitions("s", 1),
        meta.AddPartitions("none", 5),
        meta.DeleteStream("s", "another"),
        meta.Move("none", ("h1",)),
        meta.Move("id1/0", ()),
        meta.Move("id1/0", ("h1", "h1")),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(command: meta.Command) -> None:
    found = after(meta.MakeStream("s", "id1", 1, 1))
    before = (dict(found.streams), dict(found.groups))
    with pytest.raises(meta.RefusedError):
        found.apply(meta.encode(command))
    assert (found.streams, found.groups) == before


def test_partitions_are_added_and_the_others_stay_where_they_are() -> None:
    found = after(meta.MakeStream("s", "id1", 2, 2))
    before = {name: each.voters for name, each in found.groups.items()}
    found.apply(meta.encode(meta.AddPartitions("s", 5)))
    assert len(found.groups) == 5
    assert {name: found.groups[name].voters for name in before} == before
    found.apply(meta.encode(meta.DeleteStream("s", "id1")))
    assert found.groups == {}


def test_a_group_moves_by_its_own_log_and_old_news_of_it_counts_no_more() -> None:
    found = after(meta.MakeStream("s", "id1", 1, 1), meta.Move("id1/0", ("h1", "h2")))
    assert found.moving() == {"id1/0": ("h1", "h2")}
    found.apply(meta.encode(meta.Moved("id1/0", ("h1", "h2"), 7)))
    assert found.moving() == {}
    with pytest.raises(meta.RefusedError):
        found.apply(meta.encode(meta.Moved("id1/0", ("h3",), 6)))


def test_a_store_is_retired_for_good() -> None:
    assert after(meta.RetireStore("s"), meta.RetireStore("s")).retired == {"s"}


def test_what_nodes_have_no_room_for_is_refused_and_changes_nothing() -> None:
    found = meta.Definitions()
    found.apply(meta.encode(meta.SetHosts(("a", "b", "c"), (), (5, 0, 5))))
    found.apply(meta.encode(meta.MakeStream("s", "id", 4, 3)))
    assert found.free() == {"a": 1, "c": 1}
    for command in (meta.MakeStream("t", "other", 2, 3), meta.AddPartitions("s", 6)):
        with pytest.raises(meta.RefusedError, match="as many replicas as they take"):
            found.apply(meta.encode(command))
    assert list(found.streams) == ["s"]
    assert found.streams["s"].partitions == len(found.groups) == 4
    found.apply(meta.encode(meta.AddPartitions("s", 5)))
    found.apply(meta.encode(meta.MakeStream("one", "third", 9, 1)))
    assert {each.voters for name, each in found.groups.items() if name.startswith("third")} == {
        ("b",)
    }

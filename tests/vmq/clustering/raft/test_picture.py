"""Places and leaders, kept as the metadata change: always what reading all of them would give, and told once."""

from typing import Any, cast

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from vmq.clustering.raft.picture import GroupPicture, PictureNews
from vmq.clustering.raft.records import GROUPS, GroupRecords, Lead, ReplicaPlace
from vmq_cluster.effects import Changed
from vmq_cluster.keyed_records import key_of
from vmq_cluster.node import ClusterNode


class Metadata:
    """A node's metadata, and who watches them."""

    is_running = True

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}
        self.changes: list[Changed] = []

    def get(self, _prefix: str, key: bytes) -> bytes | None:
        return self.kept.get(key)

    def items(self, _prefix: str, begin: bytes) -> list[tuple[bytes, bytes]]:
        return [each for each in sorted(self.kept.items()) if each[0].startswith(begin)]

    def put(self, _prefix: str, key: bytes, value: bytes) -> None:
        self.changes.append(Changed(GROUPS, key, value, self.kept.get(key), True))
        self.kept[key] = value

    def delete(self, _prefix: str, key: bytes) -> None:
        self.changes.append(Changed(GROUPS, key, None, self.kept.pop(key), True))

    def take(self) -> list[Changed]:
        changes, self.changes = self.changes, []
        return changes


def made() -> tuple[Metadata, GroupRecords, GroupPicture]:
    metadata = Metadata()
    records = GroupRecords(cast(ClusterNode, metadata))
    return metadata, records, GroupPicture(records)


def read(records: GroupRecords) -> tuple[Any, Any]:
    """The naive way: all of them, again."""
    places = {
        (parts[0], int(parts[1])): place
        for parts, place in records.records("place", ReplicaPlace)
        if len(parts) == 2 and parts[1].isdecimal()
    }
    return places, {parts[0]: lead for parts, lead in records.records("lead", Lead)}


NODES = st.sampled_from([("a@1", "b@1"), ("b@1", "c@1"), ("c@1",)])
PARTITIONS = st.sampled_from([("s", "0"), ("s", "1"), ("t", "0"), ("t", "x")])
PLACES = st.builds(
    ReplicaPlace, st.integers(0, 9), st.sampled_from(["i/0", "i/1", "j/0"]), NODES, NODES
)
LEADS = st.builds(Lead, st.integers(0, 9), st.sampled_from(["a@1", "b@1"]), NODES)
STEPS = st.one_of(
    st.tuples(st.just("place"), PARTITIONS, st.none() | PLACES),
    st.tuples(st.just("lead"), st.sampled_from([("i/0",), ("i/1",)]), st.none() | LEADS),
    st.tuples(st.just("junk"), PARTITIONS, st.binary(max_size=5)),
    st.just(("look", (), None)),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_it_is_what_reading_all_would_give(steps: list[Any]) -> None:
    metadata, records, picture = made()
    before = read(records)
    for kind, parts, value in [*steps, ("look", (), None)]:
        if kind == "look":
            picture.on_changes(metadata.take())
            news, after = picture.news(), read(records)
            assert (picture.places, picture.leads) == after
            assert picture.moving == {
                group for group, key in picture._keys.items() if any(picture.change_of(key))
            }
            changed = {
                key
                for key in before[0].keys() | after[0].keys()
                if before[0].get(key) != after[0].get(key)
            }
            assert changed <= news.keys
            assert {
                group
                for group, lead in after[1].items()
                if before[1].get(group) not in (None, lead)
            } <= news.led
            before = after
        elif value is None:
            records.delete(kind, *parts)
        elif kind == "junk":
            metadata.put(GROUPS, key_of("place", *parts), value)
        else:
            metadata.put(GROUPS, key_of(kind, *parts), msgspec.json.encode(value))


def test_what_is_told_is_told_once() -> None:
    metadata, records, picture = made()
    records.write(ReplicaPlace(1, "i/0", ("a@1",), ("a@1",)), "place", "s", "0")
    assert picture.news() == PictureNews({("s", 0)}, set(), True, True)
    records.write_lead("i/0", Lead(3, "a@1", ("a@1",)))
    picture.on_changes(metadata.take())
    assert picture.news() == PictureNews({("s", 0)}, {"i/0"}, True, False)
    assert picture.news() == PictureNews(set(), set(), False, False)


def test_another_leader_of_the_same_voters_moves_nothing() -> None:
    metadata, records, picture = made()
    voters = ("a@1", "b@1", "c@1")
    records.write(ReplicaPlace(1, "i/0", voters, voters), "place", "s", "0")
    records.write_lead("i/0", Lead(1, "a@1", voters))
    picture.news()
    metadata.take()
    records.write_lead("i/0", Lead(2, "b@1", voters))
    picture.on_changes(metadata.take())
    assert picture.news() == PictureNews(set(), {"i/0"}, False, False)
    records.write_lead("i/0", Lead(3, "b@1", ("b@1", "c@1")))
    picture.on_changes(metadata.take())
    assert picture.news() == PictureNews({("s", 0)}, {"i/0"}, True, False)
    assert (picture.moving, picture.change_of(("s", 0))) == ({"i/0"}, (["a"], []))


def test_a_leader_that_stands_there_is_not_written_again() -> None:
    metadata, _, picture = made()
    picture.news()
    lead = Lead(1, "a@1", ("a@1",))
    picture.tell({"i/0": lead})
    picture.on_changes(metadata.take())
    picture.tell({"i/0": lead})
    assert not metadata.take()
    picture.tell({"i/0": Lead(2, "a@1", ("a@1",))})
    assert len(metadata.take()) == 1

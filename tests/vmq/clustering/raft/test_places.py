"""What is known of partitions, kept as it changes: always what counting all of them anew would give."""

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from vmq.clustering.raft.places import Key, Places
from vmq.clustering.raft.records import ReplicaPlace, node_of
from vmq.clustering.raft.standing import OwnReplicas

if TYPE_CHECKING:
    from vmq.streams.catalog import Catalog

STREAMS = {
    name: SimpleNamespace(
        name=name,
        partitions=range(3),
        options=SimpleNamespace(replicas=replicas),
        is_replicated=replicas > 1,
    )
    for name, replicas in {"s": 2, "t": 3, "one": 1}.items()
}
KEYS = st.tuples(st.sampled_from([*STREAMS, "gone"]), st.integers(0, 2))
VOTERS = st.sampled_from([("a@1", "b@1"), ("b@1", "a@1"), ("b@1", "c@1", "d@1"), ("a@1",)])
PLACES = (
    st.builds(lambda life, voters: (life, voters), st.sampled_from(["x", "y"]), VOTERS) | st.none()
)
LEADERS = st.sampled_from(["a@1", "b@1", ""])
STEPS = st.lists(
    st.tuples(st.just("put"), st.dictionaries(KEYS, PLACES, max_size=4))
    | st.tuples(st.just("lead"), st.tuples(KEYS, st.sampled_from(["x", "y"]), LEADERS))
    | st.tuples(st.just("up"), st.sets(st.sampled_from("bcd"))),
    max_size=20,
)


def placed(key: Key, life: str, voters: tuple[str, ...]) -> ReplicaPlace:
    return ReplicaPlace(1, f"{key[0]}-{life}/{key[1]}", voters, voters)


def check(places: Places) -> None:
    there = places.up | {"a"}
    known = {
        key: place
        for key, place in places.places.items()
        if key[0] in STREAMS and STREAMS[key[0]].is_replicated
    }
    for name, stream in STREAMS.items():
        mine = {key: place for key, place in known.items() if key[0] == name}
        few = sum(
            sum(node_of(each) in there for each in place.voters)
            < max(stream.options.replicas, len(place.voters))
            for place in mine.values()
        )
        missing = [number for number in range(3) if (name, number) not in places.places]
        assert bool(places.lacking(name)) == bool(missing)
        unplaced = len(missing) if stream.is_replicated else 0
        found = places.figures(name)
        assert found["under_replicated"] == few + unplaced
        if stream.is_replicated:
            led = sum(bool(places.leaders.get(each.group)) for each in mine.values())
            assert found["leaderless"] == 3 - led
    leaderless = {
        place.group for place in places.places.values() if not places.leaders.get(place.group)
    }
    assert places._leaderless == leaderless
    assert dict(places.keys) == {place.group: key for key, place in places.places.items()}
    assert sum(map(len, places._sets.values())) == len(places.places)


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_what_is_kept_is_what_all_of_them_give(steps: list[tuple[str, object]]) -> None:
    places = Places("a@1", cast("Catalog", SimpleNamespace(streams=STREAMS)))
    for kind, what in steps:
        if kind == "put":
            changed = cast("dict[Key, tuple[str, tuple[str, ...]] | None]", what)
            places.put(
                {key: None if each is None else placed(key, *each) for key, each in changed.items()}
            )
        elif kind == "lead":
            key, life, leader = cast("tuple[Key, str, str]", what)
            places.lead(placed(key, life, ()).group, leader)
        else:
            places.up = frozenset(cast("set[str]", what))
        check(places)


def test_what_is_given_away_is_led_elsewhere_once_another_node_leads_it() -> None:
    """Where nobody does it may be this node that is elected: a drain is not complete by then."""
    places = Places("a@1", cast("Catalog", SimpleNamespace(streams=STREAMS)))
    together, alone = placed(("s", 0), "x", ("a@1", "b@1")), placed(("s", 1), "x", ("a@1",))
    places.put({("s", 0): together, ("s", 1): alone})
    places.open = {together.group: ("s", 0), alone.group: ("s", 1)}
    places.own[alone.group] = "a@1"  # nobody else could
    for leader, is_led in (("a@1", False), ("", False), ("b@1", True)):
        places.own[together.group] = leader
        assert places.is_led_elsewhere() == is_led


def test_all_ranges_that_may_be_lost_are_named_and_of_many_the_first_as_one() -> None:
    places = Places("a@1", cast("Catalog", SimpleNamespace(streams=STREAMS)))
    place = placed(("s", 0), "x", ("a@1", "b@1"))
    places.put({("s", 0): place})

    def lose(*ranges: tuple[int, int]) -> None:
        known = places.here.uncertain.get(place.group, ())
        more = tuple((first, end, number) for number, (first, end) in enumerate(ranges, 1))
        places.here = OwnReplicas(uncertain={place.group: known + more})

    lose((50, 60), (7, 9), (55, 70), (50, 60))
    assert places.leads_beside(place.group) == ""

    def told() -> list[str]:
        return [each for each in places.problems(None, {}) if "may be lost" in each]

    assert len(told()) == 1
    assert "stream 's', partition 0: offsets 7 to 9, 50 to 70 may be lost" in told()[0]
    lose(*((number, number + 1) for number in range(100, 200, 2)))
    assert "offsets 7 to 181, 182 to 183, " in told()[0]
    assert "198 to 199 may be lost" in told()[0]
    assert places.losses("s", None) == places.losses("s", 0) == {place.group: 50}
    assert places.losses("s", 1) == places.losses("t", None) == {}
    places.accepted = {place.group: 49}
    assert "offsets 198 to 199 may be lost" in told()[0], "what came later is told"
    places.accepted = {place.group: 50}
    assert told() == []
    assert places.losses("s", None) == {}


def test_what_is_without_a_leader_is_told_with_the_nodes_that_it_takes() -> None:
    places = Places("a@1", cast("Catalog", SimpleNamespace(streams=STREAMS)))
    place = placed(("s", 0), "x", ("a@1", "b@1"))
    places.put({("s", 0): place})
    assert any(
        "partition 0 without a leader" in each and "cannot be reached: b" in each
        for each in places.problems(None, {})
    )
    assert places.hinted(place.group, "b@1") == ""
    assert "unless b leads as before, which this node does not reach" in places.why_unled("s", [0])
    failed = dict.fromkeys([place.group, *map(str, range(11))], "the disk failed")
    told = list(places.problems(None, failed))[-11:]
    assert "stream 's', partition 0: this node's copy fails" in told[0]
    assert told[-1] == "2 more copies of this node fail"
    places.up = frozenset("b")
    places.lead(place.group, "b@1")
    assert places.leads_beside(place.group) == "b"
    places.lead(place.group, "a@1")
    assert places.leads_beside(place.group) == "", "only others"

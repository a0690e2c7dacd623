"""What the meta group has decided is copied into the metadata, as it changes: always all of it, and nothing else."""

from contextlib import suppress
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.present import present
from tests.vmq.clustering.raft.test_decisions import COMMANDS, GROUPS, HOSTS
from tests.vmq.clustering.raft.test_picture import made
from vmq.clustering.raft.meta import DecisionTeller
from vmq.clustering.raft.places import Key
from vmq.clustering.raft.publishing import moves_of, publish
from vmq.clustering.raft.records import GroupRecords, Lead, Loss, ReplicaPlace
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.meta import Definitions, MakeStream, Move, RefusedError, SetHosts, encode

MEMBERS = Members(("a",))
STEPS = st.lists(
    COMMANDS
    | st.tuples(st.just("lead"), GROUPS)
    | st.tuples(st.just("move"), GROUPS)
    | st.tuples(st.just("wish"), GROUPS)
    | st.tuples(st.just("loss"), GROUPS)
    | st.sampled_from(["leads", "another leads"]),
    max_size=20,
)


def places_of(records: GroupRecords) -> dict[Key, tuple[str, tuple[str, ...]]]:
    return {
        (name, int(number)): (place.group, place.voters)
        for (name, number), place in records.records("place", ReplicaPlace)
    }


@settings(deadline=None)
@given(STEPS)
def test_it_is_what_copying_all_would_give(steps: list[Any]) -> None:
    metadata, records, picture = made()
    picture.news()
    decided = Definitions()
    teller = DecisionTeller(decided)
    leads = True
    records.write(Loss(3), "loss", "meta/x")
    accepted: set[str] = set()
    begin = [SetHosts(tuple(HOSTS)), MakeStream("s", "s", 3, 2), "leads"]
    for applied, step in enumerate([*begin, *steps]):
        if isinstance(step, str):
            leads = step == "leads"
        elif isinstance(step, tuple):
            kind, group = step
            if kind == "lead" and group in decided.groups:
                records.write_lead(group, Lead(applied, "a", decided.groups[group].voters))
            elif kind == "loss":
                records.write(Loss(2), "loss", group)
                accepted.add(group)
            elif kind != "lead":
                there = decided.groups.get(group)
                voters = ("a",) if there is None else there.voters
                records.put("\0".join(voters).encode(), kind, group)
            picture.on_changes(metadata.take())
            continue
        else:
            with suppress(RefusedError):
                decided.apply(encode(step))
        told = present(teller.tell(applied, leads, MEMBERS, moves_of(records)))
        if not leads:
            assert not told.groups
            continue
        publish(told, records, picture)
        picture.on_changes(metadata.take())
        picture.news()
        names = {stream.id: name for name, stream in decided.streams.items()}
        assert places_of(records) == {
            (names[group[0]], int(group[2:])): (group, each.wanted)
            for group, each in decided.groups.items()
        }
        assert {parts[0] for parts, _ in records.all("lead")} <= decided.groups.keys()
        assert {parts[0][0] for parts, _ in records.all("wish")} <= names.keys()
        accepted = {group for group in accepted if group[0] in names}
        assert records.accepted() == {"meta/x": 3} | dict.fromkeys(accepted, 2)
        for group, voters in moves_of(records).items():
            assert group[0] in names
            there = decided.groups.get(group)
            assert there is None or {there.voters, there.wanted} != {voters}


def test_of_thousands_of_groups_one_that_moves_is_told_and_written() -> None:
    metadata, records, picture = made()
    picture.news()
    decided = Definitions()
    teller = DecisionTeller(decided)
    hosts = ("a", "b", "c", "d")
    for command in (SetHosts(hosts), MakeStream("s", "i", 2000, 3)):
        decided.apply(encode(command))
    told = present(teller.tell(1, True, MEMBERS, ()))
    assert len(told.groups) == 2000
    publish(told, records, picture)
    picture.on_changes(metadata.take())
    decided.apply(encode(Move("i/7", ("d", "c", "b"))))
    told = present(teller.tell(2, True, MEMBERS, ()))
    assert [*told.groups] == ["i/7"]
    publish(told, records, picture)
    assert len(metadata.take()) == 1
    records.put("\0".join(decided.groups["i/7"].voters).encode(), "move", "i/7")  # back again
    publish(told, records, picture)
    assert [*moves_of(records)] == ["i/7"]
    assert teller.tell(2, True, MEMBERS, ()) is None

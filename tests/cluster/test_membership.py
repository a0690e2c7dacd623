"""Members come, go, die, return: over seeds, on bad networks."""

from dataclasses import replace
from functools import partial
from itertools import permutations
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.machines import OPTIONS, Sim, joined
from tests.simulator.network import Network
from tests.simulator.seeds import over_seeds
from tests.support.present import present
from vmq_cluster import effects
from vmq_cluster.errors import ClusterError
from vmq_cluster.identity import Identity
from vmq_cluster.membership import Membership, Status
from vmq_cluster.messages import MAX_MEMBERS, Frame, Heartbeat, MemberRecord, Members, StaleEpoch
from vmq_cluster.storage import MemoryStorage, Transaction


def membership(storage: MemoryStorage | None = None, address: str = "here") -> Membership:
    transaction = Transaction(MemoryStorage() if storage is None else storage)
    outbox = effects.Outbox()
    made = Membership(Identity(transaction, "me", b"", 1, Random(1)), transaction, outbox)
    made.start(address)
    transaction.commit()
    return made


RECORDS = st.lists(
    st.builds(
        MemberRecord,
        st.sampled_from(["a", "b"]),
        st.integers(1, 3),
        st.integers(0, 4),
        st.integers(0, 2),
        st.sampled_from(["x", "y"]),
    ),
    max_size=4,
)


@pytest.fixture
def sim() -> Sim:
    return Sim(0)


@given(RECORDS)
def test_records_make_the_same_set_in_any_order(records: list[MemberRecord]) -> None:
    outcomes = set()
    for order in permutations(records):
        made = membership()
        for record in order:
            made.merge([record], "peer", 1)
        outcomes.add(tuple(made.records))
        assert made.digest == made.digest
    assert len({str(outcome) for outcome in outcomes}) == 1


def test_no_status_goes_back_in_one_incarnation() -> None:
    made = membership()
    made.merge([MemberRecord("a", 5, Status.JOINED, 0, "x")], "a", 1)
    assert made.others == ["a"]
    made.exclude("a", Status.REMOVED)
    assert not made.merge([MemberRecord("a", 5, Status.JOINED, 9, "x")], "a", 1)
    assert made.others == []
    assert made.merge([MemberRecord("a", 6, Status.JOINED, 0, "x")], "a", 1)
    assert made.others == ["a"]


def test_the_number_of_records_is_limited() -> None:
    made = membership()
    made.merge([MemberRecord(f"{n}", 1, 0, 0, "") for n in range(MAX_MEMBERS + 9)], "a", 1)
    assert len(made.records) == MAX_MEMBERS


@pytest.mark.parametrize(("count", "gone"), [(2, {"5", "7"}), (4, {"5", "6", "7", "8"})])
def test_the_oldest_of_those_who_are_out_make_room(count: int, gone: set[str]) -> None:
    """On all nodes the same, whatever they hear first; who expired goes last, and no member does."""
    members = [MemberRecord(f"{n}", n + 1, Status.JOINED, 0, "") for n in range(MAX_MEMBERS - 1)]
    for number in (5, 6, 7, 8):
        status = Status.EXPIRED if number == 6 else Status.REMOVED
        members[number] = msgspec.structs.replace(members[number], status=status)
    new = [MemberRecord(f"new{n}", MAX_MEMBERS, Status.JOINED, 0, "") for n in range(count)]
    names = {each.name for each in [*members, *new]} | {"me"}
    for records in ([*members, *new], [*new, *members], [*members, *new, *members]):
        storage = MemoryStorage()
        made = membership(storage)
        made.merge(records, "a", 1)
        made._transaction.commit()
        assert {each.name for each in made.records} == names - gone
        assert {each.name for each in membership(storage).records} == names - gone


def test_a_new_address_is_a_new_version() -> None:
    storage = MemoryStorage()
    membership(storage, "old")
    made = membership(storage, "new")
    assert made.own.address == "new"


@over_seeds(15)
def test_nodes_become_one_cluster_on_a_bad_network(seed: int) -> None:
    sim = Sim(seed, network=Network(loss=0.2, duplicate=0.2, longest=0.6))
    count = sim.random.randint(2, 7)
    names = [f"n{number}" for number in range(count)]
    for at, name in enumerate(names):
        sim.add(name, join=names[sim.random.randrange(at)] if at else "", skew=at * 1000)
    known = {*names}
    sim.until(lambda: all({*each.membership.others, each.name} == known for each in sim), 60)
    sim.heal()
    sim.until(lambda: sim.is_joined(names), 5)
    assert len({machine.membership.digest for machine in sim}) == 1
    last = sim.nodes[names[0]].of(effects.MembersChanged)[-1]
    assert last.members == {name: name for name in names}


@over_seeds(15)
def test_two_clusters_that_meet_are_one(seed: int) -> None:
    sim = Sim(seed, network=Network(longest=0.3))
    for number in range(3):
        sim.add(f"a{number}", join="a0" if number else "")
        sim.add(f"b{number}", join="b0" if number else "")
    sim.run(5)
    sim.ask("a2", lambda: sim["a2"].join("b1"))
    sim.until(lambda: sim.is_joined(list(sim.nodes)), 30)


@over_seeds(10)
def test_the_dead_are_down_and_up_again(seed: int) -> None:
    sim, names = joined(Sim(seed), 4)
    dead, others = names[1], [names[0], *names[2:]]
    sim.crash(dead, power=seed % 2 == 1)
    sim.until(lambda: all(dead in sim[name].detector.down for name in others), 6)
    assert all(sim[name].membership.incarnation(dead) for name in others)
    sim.restart(dead)
    sim.until(lambda: sim.is_joined(names), 10)
    for name in others:
        assert [effect.peer for effect in sim.nodes[name].of(effects.PeerDown)] == [dead]
        assert [effect.peer for effect in sim.nodes[name].of(effects.PeerUp)].count(dead) == 2


@over_seeds(15)
def test_a_member_leaves_and_its_writes_stay(seed: int) -> None:
    sim, names = joined(Sim(seed, network=Network(loss=0.1, longest=0.2)), (2, 5))
    leaver, others = names[-1], names[:-1]
    sim.network.loss = 0.6
    sim.ask(leaver, lambda: sim[leaver].metadata.put("p", b"k", b"v"))
    sim.ask(leaver, lambda: sim[leaver].leave(sim.now))
    sim.run(1)
    sim.network.loss = 0.1
    sim.until(lambda: bool(sim.nodes[leaver].of(effects.Left)), 25)
    sim.stop(leaver)
    assert sim.nodes[leaver].of(effects.Left) == [effects.Left(complete=True)]
    assert any(sim[name].metadata.get("p", b"k") == b"v" for name in others)
    sim.until(lambda: sim.is_joined(others), 10)
    # It stays out when it starts again, until it is told to join.
    sim.restart(leaver)
    sim.run(3)
    assert sim[leaver].membership.others == []
    assert sim.is_joined(others)
    sim.ask(leaver, lambda: sim[leaver].join(names[0]))
    sim.until(lambda: sim.is_joined(names), 20)


def test_a_newcomer_is_met_by_all_although_the_one_that_took_it_in_dies_with_the_news(
    sim: Sim,
) -> None:
    first, other = sim.cluster(2)
    sim.network.cuts |= {("new", other), (other, "new"), (first, other)}
    sim.add("new", join=first)
    sim.until(lambda: other in sim["new"].membership.others, 1)
    sim.crash(first)
    sim.heal()
    assert "new" not in sim[other].membership.others
    sim.until(lambda: sim["new"].detector.up == [other] and sim[other].detector.up == ["new"], 15)


@pytest.mark.parametrize("wipe", [False, True])
def test_a_node_that_starts_again_within_a_moment_is_itself(wipe: bool, sim: Sim) -> None:
    """Nobody has missed it yet: it is where it was."""
    names = sim.cluster(3)
    sim.crash(names[0])
    sim.restart(names[0], wipe=wipe)
    # Without its disk it knows nobody, until somebody who misses it introduces himself.
    sim.run(30 if wipe else 2 * OPTIONS.heartbeat_interval)
    assert sim.is_joined(names)
    assert not any(sim.nodes[name].of(effects.Refused) for name in names)


@pytest.mark.parametrize("count", [1, 3])
def test_who_joins_is_up_at_once(count: int) -> None:
    """On all sides: nobody waits for a heartbeat."""
    sim, names = joined(
        Sim(0, options=replace(OPTIONS, heartbeat_interval=100.0, heartbeat_timeout=1000.0)), count
    )
    names.append(sim.add("new").name)
    sim.run(5)
    sim.ask("new", lambda: sim["new"].join(names[0]))
    sim.until(lambda: sim.is_joined(names), 1)


@over_seeds(10)
def test_a_leave_takes_as_long_as_the_hand_over_needs(seed: int) -> None:
    """Nobody's turn is waited for: not where nothing is to be handed over, nor where another lacks much."""
    sim, names = joined(
        Sim(seed, options=replace(OPTIONS, sync_interval=1000.0, leave_timeout=100.0)), (2, 5)
    )
    leaver = names[-1]
    lacking = seed % 2 * 25
    sim.network.loss = 1.0
    for number in range(lacking):
        sim.ask(leaver, partial(sim[leaver].metadata.put, "p", b"%d" % number, b"v"))
    sim.network.loss = 0.0
    sim.run(0.5)
    sim.ask(leaver, lambda: sim[leaver].leave(sim.now))
    sim.run(1 if not lacking else 3)
    assert sim.nodes[leaver].of(effects.Left) == [effects.Left(complete=True)]
    others = [sim[name].metadata for name in names[:-1]]
    assert any(sum(1 for _ in each.items("p")) == lacking for each in others)


def test_who_is_removed_as_its_time_is_over_stays_removed() -> None:
    sim, (name, dead, _) = joined(Sim(0, replace(OPTIONS, dead_node_timeout=60.0)), 3)
    sim.crash(dead)
    machine = sim[name]
    sim.until(lambda: not machine.detector.is_up(dead), 10)
    machine.detector._down[dead] = machine.detector._next_heartbeat = -100.0
    machine.remove(dead)
    machine.tick(sim.now)
    assert present(machine.membership.record(dead)).status == Status.REMOVED


def test_a_leave_has_a_limit_of_its_own(sim: Sim) -> None:
    names = sim.cluster(3)
    leaver = names[0]
    sim.split([leaver], names[1:])
    sim.ask(leaver, lambda: sim[leaver].leave(sim.now, 3.0))
    sim.run(2)
    assert sim.nodes[leaver].of(effects.Left) == []
    sim.run(2)
    assert sim.nodes[leaver].of(effects.Left) == [effects.Left(complete=False)]


def test_who_is_taken_for_dead_while_it_leaves_leaves_all_the_same() -> None:
    sim = Sim(0, replace(OPTIONS, dead_node_timeout=6.0, leave_timeout=60.0))
    leaver, *others = sim.cluster(3)
    sim.split([leaver], others)
    sim.ask(leaver, partial(sim[leaver].metadata.put, "p", b"k", b"v"))
    sim.ask(leaver, lambda: sim[leaver].leave(sim.now))
    sim.until(lambda: sim[others[0]].membership.is_excluded(leaver), 15)
    sim.heal()
    sim.until(lambda: bool(sim.nodes[leaver].of(effects.Left)), 30)
    assert sim.nodes[leaver].of(effects.Left) == [effects.Left(complete=True)]
    assert {sim[name].metadata.get("p", b"k") for name in others} == {b"v"}
    sim.until(lambda: all(sim[name].membership.is_excluded(leaver) for name in others), 5)


def test_who_is_removed_while_it_leaves_has_handed_nothing_over(sim: Sim) -> None:
    leaver, other = sim.cluster(2)
    sim.ask(leaver, partial(sim[leaver].metadata.put, "p", b"k", b"v"))
    sim.ask(leaver, lambda: sim[leaver].leave(sim.now))
    sim.ask(other, lambda: sim[other].remove(leaver, force=True))
    sim.until(lambda: bool(sim.nodes[leaver].of(effects.Left)), 5)
    assert sim.nodes[leaver].of(effects.Left) == [effects.Left(complete=False)]


def test_the_last_member_may_leave(sim: Sim) -> None:
    machine = sim.add("a")
    machine.leave(sim.now)
    sim.run(1)
    assert sim.nodes["a"].of(effects.Left) == [effects.Left(complete=True)]
    with pytest.raises(ClusterError, match="does not belong"):
        machine.leave(sim.now)


@over_seeds(15)
def test_who_was_removed_stays_out_until_it_joins(seed: int) -> None:
    sim, names = joined(Sim(seed, network=Network(longest=0.1)), 4)
    dead, others = names[2], [*names[:2], names[3]]
    with pytest.raises(ClusterError, match="is alive"):
        sim[names[0]].remove(dead)
    alive_behind_a_cut = seed % 2 == 0
    if alive_behind_a_cut:
        sim.split([dead], others)
    else:
        sim.crash(dead, power=seed % 6 == 1)
    sim.run(6)
    sim.ask(names[0], lambda: sim[names[0]].remove(dead))
    sim.until(lambda: sim.is_joined(others), 5)
    sim.heal()
    if not alive_behind_a_cut:
        sim.restart(dead, address="elsewhere" if seed % 4 == 1 else "")
    sim.until(lambda: bool(sim.nodes[dead].of(effects.Excluded)), 5)
    sim.run(5)
    assert sim.is_joined(others)
    assert sim[dead].membership.others == []
    before = sim[dead].identity.incarnation
    sim.ask(dead, lambda: sim[dead].join(names[3]))
    sim.until(lambda: sim.is_joined(names), 20)
    assert sim[dead].identity.incarnation > before


def test_a_node_that_moved_while_it_was_out_says_where_it_is_when_it_joins() -> None:
    storage = MemoryStorage()
    transaction = Transaction(storage)
    identity = Identity(transaction, "me", b"", 1, Random(1))
    first = Membership(identity, transaction, effects.Outbox())
    first.start("there")
    first.leave(Status.LEFT)
    identity.stopped()
    transaction.commit()
    moved = membership(storage, "here")
    assert not moved.belongs
    moved.rejoin(1, 0)
    assert moved.own.address == "here"


@over_seeds(15)
def test_a_wiped_node_is_another_life_however_wrong_its_clock(seed: int) -> None:
    sim, names = joined(Sim(seed), 3)
    name = names[1]
    before = sim[name].identity.incarnation
    sim.crash(name)
    sim.nodes[name].skew = sim.random.choice([-(10**9), 0, 10**9])
    machine = sim.restart(name, wipe=True)
    sim.ask(name, lambda: machine.join(names[0]))
    sim.until(lambda: len({each.membership.digest for each in sim}) == 1, 20)
    sim.until(lambda: sim.is_joined(names), 20)
    assert machine.identity.incarnation > before


@over_seeds(15)
def test_the_long_dead_are_taken_out_and_come_back_by_themselves(seed: int) -> None:
    options = replace(OPTIONS, dead_node_timeout=6.0)
    sim, names = joined(Sim(seed, options), 5)
    minority, majority = names[:2], names[2:]
    sim.split(minority, majority)
    sim.until(lambda: sim.is_joined(majority), 15)
    sim.run(10)
    # The smaller side does not take the larger one for dead.
    assert all(len(sim[name].membership.others) == 4 for name in minority)
    sim.heal()
    sim.until(lambda: sim.is_joined(names), 30)
    assert all(sim.nodes[name].of(effects.Renewed) for name in minority)


@over_seeds(8)
def test_even_sides_take_each_other_out_and_find_each_other_again(seed: int) -> None:
    sim, names = joined(Sim(seed, replace(OPTIONS, dead_node_timeout=6.0)), 4)
    sim.split(names[:2], names[2:])
    sim.until(lambda: sim.is_joined(names[:2]) and sim.is_joined(names[2:]), 20)
    sim.run(sim.random.uniform(0, 10))
    sim.heal()
    sim.until(lambda: sim.is_joined(names), 30)


def test_an_expired_member_can_be_removed_for_good() -> None:
    made = membership()
    made.merge([MemberRecord("a", 5, Status.JOINED, 0, "x")], "a", 1)
    made.exclude("a", Status.EXPIRED)
    assert made.expired == ["x"]
    made.exclude("a", Status.REMOVED)
    assert made.expired == []
    for name in ("a", "me", "nobody"):
        with pytest.raises(ClusterError, match="no other member"):
            made.exclude(name, Status.REMOVED)


def test_who_was_taken_out_is_told_so_at_its_last_address_and_a_stranger_nothing(sim: Sim) -> None:
    names = sim.cluster(3)
    machine = sim[names[0]]
    epoch = sim[names[2]].identity.epoch
    sim.ask(names[0], lambda: machine.remove(names[2], force=True))
    (answer,) = machine.receive(Frame(1, names[2], epoch, 10**6, [Heartbeat(0)]), sim.now)
    assert isinstance(answer, effects.Contact)
    assert answer.address == names[2]
    assert [type(message) for message in answer.frame.messages] == [Members]
    assert not machine.receive(Frame(1, "stranger", 1, 1, [Heartbeat(0)]), sim.now)
    assert machine.membership.others == [names[1]]


def test_a_life_that_counts_too_low_is_told_so_where_it_says_it_is(sim: Sim) -> None:
    names = sim.cluster(2)
    machine = sim[names[0]]
    knock = Members([MemberRecord(names[1], 5, 0, 0, "elsewhere")], asks=True)
    (answer,) = machine.receive(Frame(1, names[1], 1, 1, [knock]), sim.now)
    assert isinstance(answer, effects.Contact)
    assert answer.address == "elsewhere"
    assert answer.frame.messages == [StaleEpoch(sim[names[1]].identity.epoch)]


def test_a_clone_of_the_storage_does_not_write_the_same_dots(sim: Sim) -> None:
    names = sim.cluster(3)
    node = sim.nodes[names[0]]
    copy = MemoryStorage(crashes=True)
    sim.stop(names[0])
    copy.write(dict(node.storage.scan(b"", b"\xff")), sync=True)
    machine = sim.restart(names[0])
    before = machine.identity.incarnation
    sim.ask(names[0], lambda: machine.metadata.put("p", b"k", b"v"))
    sim.run(8)
    sim.stop(names[0])
    node.storage = copy
    machine = sim.restart(names[0])
    assert machine.identity.incarnation == before
    sim.until(lambda: machine.identity.incarnation > before, 10)
    sim.until(lambda: sim.is_joined(names), 20)
    assert machine.metadata.get("p", b"k") == b"v"

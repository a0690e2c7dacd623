"""Members come, go, die, return: over seeds, on bad networks."""

from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import permutations
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.clock import EPOCH
from tests.simulator.machines import OPTIONS, Sim
from tests.simulator.network import Network
from tests.simulator.seeds import over_seeds
from vmq_cluster.effects import (
    Contact,
    Effect,
    Excluded,
    Left,
    MembersChanged,
    Misbehaved,
    NameRefused,
    NameTaken,
    Outbox,
    PeerDown,
    PeerUp,
    Refused,
    Renewed,
    Transmit,
)
from vmq_cluster.errors import ClusterError
from vmq_cluster.identity import Identity
from vmq_cluster.machine import Machine
from vmq_cluster.membership import Membership, Status
from vmq_cluster.messages import MAX_MEMBERS, Frame, Heartbeat, MemberRecord, Members, StaleEpoch
from vmq_cluster.rollcall import FOUND_AFTER
from vmq_cluster.storage import MemoryStorage, Transaction


def membership(storage: MemoryStorage | None = None, address: str = "here") -> Membership:
    transaction = Transaction(MemoryStorage() if storage is None else storage)
    outbox = Outbox()
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
    last = sim.nodes[names[0]].of(MembersChanged)[-1]
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


@over_seeds(5)
def test_two_clusters_are_never_one(seed: int) -> None:
    """Who has no cluster yet is taken in, also with others of its machine, and after a restart."""
    sim = Sim(seed, network=Network(longest=0.3))
    sides = [[f"{side}{number}" for number in range(3)] for side in "ab"]
    for first, *others in sides:
        sim.add(first)
        for name in others:
            sim.add(name, join=first)
    sim.run(FOUND_AFTER + 10)
    identities = [{sim[name].identity.cluster for name in side} for side in sides]
    assert [len(each) for each in identities] == [1, 1]
    assert 0 not in identities[0] | identities[1]
    assert identities[0] != identities[1]
    sim.crash("a2")
    sim.restart("a2")
    sim.ask("a2", lambda: sim["a2"].join("b1"))
    sim.run(10)
    for side, other in zip(sides, reversed(sides), strict=True):
        assert sim.is_joined(side)
        told = [each for name in side for each in sim.nodes[name].of(Refused)]
        assert told
        assert {each.peer for each in told} <= {*other}
        assert "it belongs to another cluster" in told[0].reason
    sim.add("new", join="a0")
    sim.until(lambda: sim.is_joined([*sides[0], "new"]), 20)
    assert sim["new"].identity.cluster in identities[0]


def test_founders_who_are_members_of_each_other_agree(sim: Sim) -> None:
    names = sim.cluster(3)
    for number, name in enumerate(names):
        sim[name].identity.belong_to(10 + number)
    sim.run(5)
    assert {sim[name].identity.cluster for name in names} == {10}


def test_nodes_of_one_machine_alone_are_no_cluster(sim: Sim) -> None:
    names = sim.cluster(2)
    for name in names:
        sim[name]._rollcall._siblings = frozenset(names)
    sim.run(FOUND_AFTER + 10)
    assert {sim[name].identity.cluster for name in names} == {0}


@over_seeds(10)
def test_the_dead_are_down_and_up_again(seed: int) -> None:
    sim = Sim(seed)
    names = sim.cluster(4)
    dead, others = names[1], [names[0], *names[2:]]
    sim.crash(dead, power=seed % 2 == 1)
    sim.until(lambda: all(dead in sim[name].detector.down for name in others), 6)
    assert all(sim[name].membership.incarnation(dead) for name in others)
    sim.restart(dead)
    sim.until(lambda: sim.is_joined(names), 10)
    for name in others:
        assert [effect.peer for effect in sim.nodes[name].of(PeerDown)] == [dead]
        assert [effect.peer for effect in sim.nodes[name].of(PeerUp)].count(dead) == 2


@over_seeds(15)
def test_a_member_leaves_and_its_writes_stay(seed: int) -> None:
    sim = Sim(seed, network=Network(loss=0.1, longest=0.2))
    names = sim.cluster(sim.random.randint(2, 5))
    leaver, others = names[-1], names[:-1]
    sim.network.loss = 0.6
    sim.ask(leaver, lambda: sim[leaver].metadata.put("p", b"k", b"v"))
    sim.ask(leaver, lambda: sim[leaver].leave(sim.now))
    sim.run(1)
    sim.network.loss = 0.1
    sim.until(lambda: bool(sim.nodes[leaver].of(Left)), 25)
    sim.stop(leaver)
    assert sim.nodes[leaver].of(Left) == [Left(complete=True)]
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


def test_two_nodes_of_one_name_hear_of_it_and_of_nothing_else(sim: Sim) -> None:
    one, two = (
        Machine("a", where, MemoryStorage(), OPTIONS, Random(where), lambda: EPOCH, b"boot")
        for where in ("here", "there")
    )
    for machine in (one, two):
        machine.start(sim.now)
    two.join("here")
    [knock] = two.flush(sim.now)
    assert isinstance(knock, Contact)
    told, answer = one.receive(knock.frame, sim.now)
    assert told == NameTaken("there")
    assert isinstance(answer, Contact)
    assert answer.address == "there"
    assert two.receive(answer.frame, sim.now) == [NameTaken("here")]
    # By another way to itself a node hears nothing.
    two.join("a way round")
    for effect in two.flush(sim.now):
        assert isinstance(effect, Contact)
        assert two.receive(effect.frame, sim.now) == []
    assert one.membership.others == two.membership.others == []


def namesake(sim: Sim, name: str, storage: MemoryStorage | None = None) -> Machine:
    """Another node of the name, elsewhere; on a disk of its own or on a copy of the other's."""
    storage = MemoryStorage() if storage is None else storage
    machine = Machine(name, "elsewhere", storage, OPTIONS, Random(7), lambda: EPOCH + 60_000, b"b")
    machine.start(sim.now)
    return machine


def heard(sim: Sim, name: str, effects: list[Effect]) -> list[Effect]:
    """What a node makes of what another one sends it."""
    found = []
    for each in effects:
        if isinstance(each, Transmit | Contact) and (
            name in (each.peer if isinstance(each, Transmit) else each.address)
        ):
            found += sim[name].receive(each.frame, sim.now)
    return found


@pytest.mark.parametrize("is_copy", [False, True])
def test_the_name_of_a_live_member_is_refused_to_another_on_both_sides(
    is_copy: bool, sim: Sim
) -> None:
    names = sim.cluster(3)
    holder, asked, third = names
    other = namesake(sim, holder, deepcopy(sim.nodes[holder].storage) if is_copy else None)
    other.join(asked)
    before = sim[asked].membership.record(holder)
    effects = heard(sim, asked, other.flush(sim.now) + other.tick(sim.now))
    [refused] = [each for each in effects if isinstance(each, Refused)]
    assert f"at elsewhere has the name of the one at {holder}" in refused.reason
    answers = [each for each in effects if isinstance(each, Contact)]
    assert {each.address for each in answers} == {"elsewhere"}
    told = [told for each in answers for told in other.receive(each.frame, sim.now)]
    assert NameRefused(holder) in told
    # Nobody takes it for the other, and each attempt is answered, though not told again.
    assert sim[asked].membership.record(holder) == before
    assert not [
        each for each in heard(sim, asked, other.tick(sim.now + 1)) if isinstance(each, Refused)
    ]
    # Nor by what others say.
    record = msgspec.structs.replace(other.membership.own, version=9)
    epoch = sim[third].identity.epoch
    sim[asked].receive(Frame(1, third, epoch, 10**6, [Members([record], asks=False)]), sim.now)
    assert sim[asked].membership.record(holder) == before
    assert sim.is_joined(names)


def test_a_name_is_free_once_its_node_is_down(sim: Sim) -> None:
    holder, asked = sim.cluster(2)
    other = namesake(sim, holder)
    other.join(asked)
    sim.crash(holder)
    sim.run(2 * OPTIONS.heartbeat_timeout)
    assert not sim[asked].detector.is_up(holder)
    heard(sim, asked, other.tick(sim.now))
    record = sim[asked].membership.record(holder)
    assert record is not None
    assert record.address == "elsewhere"
    assert sim[asked].detector.is_up(holder)


@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("is_up", [False, True])
def test_who_comes_back_to_a_name_that_another_had_meanwhile_has_lost_it(
    is_up: bool, power: bool
) -> None:
    """Whether that one is up or not, and whatever life this one begins; it stays so when it starts again."""
    sim = Sim(0)
    holder, *others = names = sim.cluster(3)
    sim.crash(holder, power)
    away = sim.nodes.pop(holder)
    sim.run(6)
    sim.add(holder, join=others[0])
    sim.until(lambda: sim.is_joined(names), 20)
    if not is_up:
        sim.crash(holder)
        sim.run(6)
    record = sim[others[0]].membership.record(holder)
    later, sim.nodes[holder] = sim.nodes[holder], away
    back = sim.restart(holder)
    sim.until(lambda: back.membership.has_lost_name, 5)
    assert not back.membership.belongs
    assert NameTaken(holder, is_lost=True) in away.effects
    for name in others:
        assert sim[name].membership.record(holder) == record
    told = {refused.reason for name in others for refused in sim.nodes[name].of(Refused)}
    assert told == {f"the node at {holder} has its name by now, with a later data directory"}
    with pytest.raises(ClusterError, match="has the name 'n000' by now"):
        back.join(others[0])
    sim.crash(holder)
    away.effects.clear()
    assert not sim.restart(holder).membership.belongs
    assert away.of(NameTaken)
    sim.crash(holder)
    sim.nodes[holder] = later
    later.machine = None
    sim.restart(holder)
    sim.until(lambda: sim.is_joined(names), 20)


@pytest.mark.parametrize("is_new", [False, True])
def test_a_clock_that_was_far_ahead_locks_nobody_out_once_it_is_right(is_new: bool) -> None:
    sim = Sim(0)
    names = sim.cluster(3)
    name = names[0]
    sim.stop(name)
    sim.nodes[name].skew = 120 * 366 * 86_400 * 1000
    machine = sim.restart(name, wipe=is_new)
    sim.ask(name, lambda: machine.metadata.put("p", b"k", b"v"))
    sim.ask(name, lambda: machine.join(names[1]))
    sim.run(5)
    told = sim.nodes[names[1]].of(Misbehaved)
    assert {each.reason for each in told} == {"its clock is 100 years ahead of this node's"}
    sim.crash(name)
    sim.nodes[name].skew = 0
    machine = sim.restart(name)
    assert machine.identity.was_ahead
    sim.ask(name, lambda: machine.join(names[1]))
    sim.until(lambda: sim.is_joined(names), 10)
    sim.until(lambda: sim[names[2]].metadata.get("p", b"k") == b"v", 20)


def test_a_clock_that_was_far_ahead_for_a_while_writes_what_others_take(sim: Sim) -> None:
    one, other = sim.cluster(2)
    node = sim.nodes[one]
    for key, skew in (b"k", 120 * 366 * 86_400 * 1000), (b"l", 0):
        node.skew = skew
        sim.ask(one, partial(sim[one].metadata.put, "p", key, b"v"))
        sim.run(1)
    sim.until(lambda: all(sim[other].metadata.get("p", each) == b"v" for each in (b"k", b"l")), 20)


def test_who_is_new_counts_its_store_above_the_one_before_whatever_it_hears_first() -> None:
    made = membership()
    store = made.own.store + 9
    records = [MemberRecord("a", 5, 0, 0, "x", 5), MemberRecord("me", 5, 0, 0, "there", store)]
    made.merge(records, "a", 1)
    assert made.belongs
    assert made.own.store > store
    assert made.others == ["a"]


def test_a_disk_of_a_version_without_stores_has_one_and_keeps_its_name(sim: Sim) -> None:
    names = sim.cluster(2)
    sim.stop(names[0])
    storage = sim.nodes[names[0]].storage
    old = {key: msgspec.msgpack.decode(raw) for key, raw in storage.scan(b"", b"n")}
    old[b"i"] = old[b"i"][:5]
    old[b"m" + names[0].encode()].pop()
    storage.write({key: msgspec.msgpack.encode(value) for key, value in old.items()}, sync=True)
    machine = sim.restart(names[0])
    assert machine.identity.store == machine.membership.own.store > 0
    sim.until(lambda: sim.is_joined(names), 10)


@pytest.mark.parametrize("wipe", [False, True])
def test_a_node_that_starts_again_within_a_moment_is_itself(wipe: bool, sim: Sim) -> None:
    """Nobody has missed it yet: it is where it was."""
    names = sim.cluster(3)
    sim.crash(names[0])
    sim.restart(names[0], wipe=wipe)
    # Without its disk it knows nobody, until somebody who misses it introduces himself.
    sim.run(30 if wipe else 2 * OPTIONS.heartbeat_interval)
    assert sim.is_joined(names)
    assert not any(sim.nodes[name].of(Refused) for name in names)


@pytest.mark.parametrize("count", [1, 3])
def test_who_joins_is_up_at_once(count: int) -> None:
    """On all sides: nobody waits for a heartbeat."""
    sim = Sim(0, options=replace(OPTIONS, heartbeat_interval=100.0, heartbeat_timeout=1000.0))
    names = sim.cluster(count)
    names.append(sim.add("new").name)
    sim.run(5)
    sim.ask("new", lambda: sim["new"].join(names[0]))
    sim.until(lambda: sim.is_joined(names), 1)


@over_seeds(10)
def test_a_leave_takes_as_long_as_the_hand_over_needs(seed: int) -> None:
    """Nobody's turn is waited for: not where nothing is to be handed over, nor where another lacks much."""
    sim = Sim(seed, options=replace(OPTIONS, sync_interval=1000.0, leave_timeout=100.0))
    names = sim.cluster(sim.random.randint(2, 5))
    leaver = names[-1]
    lacking = seed % 2 * 25
    sim.network.loss = 1.0
    for number in range(lacking):
        sim.ask(leaver, partial(sim[leaver].metadata.put, "p", b"%d" % number, b"v"))
    sim.network.loss = 0.0
    sim.run(0.5)
    sim.ask(leaver, lambda: sim[leaver].leave(sim.now))
    sim.run(1 if not lacking else 3)
    assert sim.nodes[leaver].of(Left) == [Left(complete=True)]
    others = [sim[name].metadata for name in names[:-1]]
    assert any(sum(1 for _ in each.items("p")) == lacking for each in others)


def test_a_leave_has_a_limit_of_its_own(sim: Sim) -> None:
    names = sim.cluster(3)
    leaver = names[0]
    sim.split([leaver], names[1:])
    sim.ask(leaver, lambda: sim[leaver].leave(sim.now, 3.0))
    sim.run(2)
    assert sim.nodes[leaver].of(Left) == []
    sim.run(2)
    assert sim.nodes[leaver].of(Left) == [Left(complete=False)]


def test_the_last_member_may_leave(sim: Sim) -> None:
    machine = sim.add("a")
    machine.leave(sim.now)
    sim.run(1)
    assert sim.nodes["a"].of(Left) == [Left(complete=True)]
    with pytest.raises(ClusterError, match="does not belong"):
        machine.leave(sim.now)


@over_seeds(15)
def test_who_was_removed_stays_out_until_it_joins(seed: int) -> None:
    sim = Sim(seed, network=Network(longest=0.1))
    names = sim.cluster(4)
    dead, others = names[2], [*names[:2], names[3]]
    with pytest.raises(ClusterError, match="is alive"):
        sim[names[0]].remove(dead)
    alive_behind_a_cut = seed % 2 == 0
    if alive_behind_a_cut:
        sim.split([dead], others)
    else:
        sim.crash(dead)
    sim.run(6)
    sim.ask(names[0], lambda: sim[names[0]].remove(dead))
    sim.until(lambda: sim.is_joined(others), 5)
    sim.heal()
    if not alive_behind_a_cut:
        sim.restart(dead)
    sim.until(lambda: bool(sim.nodes[dead].of(Excluded)), 5)
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
    first = Membership(identity, transaction, Outbox())
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
    sim = Sim(seed)
    names = sim.cluster(3)
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
    sim = Sim(seed, options)
    names = sim.cluster(5)
    minority, majority = names[:2], names[2:]
    sim.split(minority, majority)
    sim.until(lambda: sim.is_joined(majority), 15)
    sim.run(10)
    # The smaller side does not take the larger one for dead.
    assert all(len(sim[name].membership.others) == 4 for name in minority)
    sim.heal()
    sim.until(lambda: sim.is_joined(names), 30)
    assert all(sim.nodes[name].of(Renewed) for name in minority)


@over_seeds(20)
def test_even_sides_take_each_other_out_and_find_each_other_again(seed: int) -> None:
    sim = Sim(seed, replace(OPTIONS, dead_node_timeout=6.0))
    names = sim.cluster(4)
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
    assert isinstance(answer, Contact)
    assert answer.address == names[2]
    assert [type(message) for message in answer.frame.messages] == [Members]
    assert not machine.receive(Frame(1, "stranger", 1, 1, [Heartbeat(0)]), sim.now)
    assert machine.membership.others == [names[1]]


def test_a_life_that_counts_too_low_is_told_so_where_it_says_it_is(sim: Sim) -> None:
    names = sim.cluster(2)
    machine = sim[names[0]]
    knock = Members([MemberRecord(names[1], 5, 0, 0, "elsewhere")], asks=True)
    (answer,) = machine.receive(Frame(1, names[1], 1, 1, [knock]), sim.now)
    assert isinstance(answer, Contact)
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

"""Whose a name is, which cluster a node belongs to, and whose clock is believed."""

from copy import deepcopy
from functools import partial
from random import Random

import msgspec
import pytest

from tests.cluster.test_membership import membership
from tests.simulator.clock import EPOCH
from tests.simulator.machines import OPTIONS, Sim, joined
from tests.simulator.network import Network
from tests.simulator.seeds import over_seeds
from vmq_cluster.effects import (
    Contact,
    Effect,
    Misbehaved,
    NameRefused,
    NameTaken,
    Refused,
    Transmit,
)
from vmq_cluster.errors import ClusterError
from vmq_cluster.machine import Machine
from vmq_cluster.membership import Status
from vmq_cluster.messages import Frame, MemberRecord, Members
from vmq_cluster.rollcall import FOUND_AFTER, KNOCKS
from vmq_cluster.storage import MemoryStorage


@pytest.fixture
def sim() -> Sim:
    return Sim(0)


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


def test_of_many_who_were_taken_for_dead_some_are_knocked_at_each_in_its_turn(sim: Sim) -> None:
    machine = sim.add("a")
    gone = [f"n{number}" for number in range(3 * KNOCKS - 1)]
    records = [MemberRecord(each, 5, Status.EXPIRED, 0, each, 5) for each in gone]
    machine.membership.merge(records, "a", EPOCH)
    told: list[str] = []
    for second in range(1, 60):
        knocks = [each for each in machine.tick(sim.now + second) if isinstance(each, Contact)]
        assert len(knocks) <= KNOCKS
        told += [each.address for each in knocks]
    assert {*told} == {*gone}


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
    sim, names = joined(Sim(0), 3)
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


@pytest.mark.parametrize("hints", [["n000"], ["n001", "n002"]])
def test_a_cluster_that_has_moved_as_a_whole_finds_itself_by_hints(hints: list[str]) -> None:
    sim, names = joined(Sim(0), 3)
    for name in names:
        sim.stop(name)
    for name in names:
        sim.restart(name, address="new " + name)
        for each in hints:
            sim.ask(name, partial(sim[name].join, "new " + each, is_hint=True))
    sim.until(lambda: all(len(sim[name].detector.up) == 2 for name in names), 20)


def test_a_member_that_has_moved_is_back_with_its_first_heartbeats() -> None:
    sim, names = joined(Sim(0), 3)
    sim.stop(names[0])
    sim.restart(names[0], address="new")
    sim.until(lambda: len(sim[names[0]].detector.up) == 2, 3 * OPTIONS.heartbeat_interval)

"""Anti-entropy: whatever happens on the way, in the end all hold the same, and what was deleted stays deleted."""

from dataclasses import replace
from functools import partial

import pytest

from tests.simulator import chaos
from tests.simulator.machines import OPTIONS, Sim, joined, ready
from tests.simulator.network import Network
from tests.simulator.seeds import over_seeds
from vmq_cluster.effects import Misbehaved
from vmq_cluster.messages import (
    AnyMessage,
    Frame,
    Gossip,
    SyncBatch,
    SyncRequest,
    WireEntry,
    encode,
)


def settle(sim: Sim, names: list[str], limit: float = 90) -> None:
    """Everything works again, until all is quiet."""
    sim.heal()
    for name in names:
        if sim.nodes[name].machine is None:
            sim.restart(name)
        if name != names[0] and not sim[name].membership.others:
            sim.ask(name, partial(sim[name].join, names[0]))  # it died before it was taken in
    sim.until(lambda: sim.is_joined(names), 30)
    sim.until(lambda: chaos.is_quiet(sim), limit)
    chaos.check_agreement(sim)


@over_seeds(15)
def test_nodes_converge_to_what_no_write_overwrote(seed: int) -> None:
    """Loss, repetition, reordering, splits, cuts of one way, deaths of processes, wrong clocks."""
    network = Network(loss=0.2, duplicate=0.1, longest=0.3)
    sim = Sim(seed, network=network)
    names = [f"n{number}" for number in range(sim.random.randint(2, 5))]
    for name in names:
        sim.add(name, names[0] if name != names[0] else "", sim.random.randint(-9000, 9000))
    history = chaos.History()
    for _ in range(sim.random.randint(5, 40)):
        history.random_write(sim, names, keys=6)
        match sim.random.randrange(12):
            case 0:
                side = sim.random.sample(names, sim.random.randint(1, len(names) - 1))
                sim.split(side, [name for name in names if name not in side])
            case 1:
                sim.network.cuts.add((sim.random.choice(names), sim.random.choice(names)))
            case 2:
                sim.network.cuts.clear()
            case 3:
                name = sim.random.choice(names)
                if sim.nodes[name].machine is not None:
                    sim.crash(name)
            case 4:
                for name in names:
                    if sim.nodes[name].machine is None:
                        sim.restart(name)
            case 5 | 6:
                sim.run(sim.random.uniform(0, 8))
            case _:
                sim.run(sim.random.uniform(0, 0.3))
    settle(sim, names)
    assert chaos.live(sim[names[0]]) == history.heads()


@over_seeds(10)
def test_what_was_deleted_stays_so_whoever_forgets_dies_or_returns(seed: int) -> None:
    """Power failures, wiped disks, members that were removed and come back with old disks, expiries."""
    options = replace(OPTIONS, dead_node_timeout=sim_timeout(seed))
    sim, names = joined(Sim(seed, options, Network(loss=0.05, longest=0.1)), (3, 5), skew=5000)
    history = chaos.History()
    gone: set[tuple[int, int]] = set()
    for _ in range(3):
        for _ in range(10):
            history.random_write(sim, names, keys=8)
            sim.run(sim.random.uniform(0, 0.5))
        away = sim.random.choice(names)
        others = [name for name in names if name != away]
        if sim.random.random() < 0.5:
            sim.crash(away, power=sim.random.random() < 0.5)
        else:
            sim.split([away], others)
        sim.run(6)
        for _ in range(10):
            history.random_write(sim, others, keys=8)
            sim.run(sim.random.uniform(0, 0.5))
        if sim.random.random() < 0.6 and away in sim[others[0]].membership.others:
            sim.ask(others[0], partial(sim[others[0]].remove, away))
            # Those who are left agree, and forget what was deleted: the dead one does not keep them from it.
            sim.until(partial(all_forgotten, sim, others), 60)
        sim.run(5)
        gone |= {dot for dot in history.overwritten if in_nobody(sim, others, dot)}
        sim.heal()
        if sim.nodes[away].machine is None:
            sim.restart(away, wipe=sim.random.random() < 0.3)
        sim.run(5)
        if not sim[away].membership.belongs or not sim[away].membership.others:
            sim.ask(away, partial(sim[away].join, others[0]))
        settle(sim, names)
        held = {dot for found in chaos.live(sim[away]).values() for dot in found}
        assert not held & gone
        if sim.random.random() < 0.3:
            victim = sim.random.choice(names)
            sim.crash(victim, power=True)
            settle(sim, names)


def all_forgotten(sim: Sim, names: list[str]) -> bool:
    return not any(chaos.deletions(sim[name]) for name in names)


def sim_timeout(seed: int) -> float:
    return 8.0 if seed % 4 == 3 else 0.0


def in_nobody(sim: Sim, names: list[str], dot: tuple[int, int]) -> bool:
    """Whether all these nodes know the write and none holds its value."""
    return all(dot in sim[name].metadata.clock for name in names) and not any(
        dot in found for name in names for found in chaos.live(sim[name]).values()
    )


@over_seeds(8)
def test_two_maps_become_one_when_nodes_with_data_join(seed: int) -> None:
    sim = Sim(seed, network=Network(longest=0.05))
    sides = [["a0", "a1"], ["b0", "b1"]]
    history = chaos.History()
    for side in sides:
        for name in side:
            sim.add(name, side[0] if name != side[0] else "")
        sim.until(partial(sim.is_joined, side), 10)
        for _ in range(30):
            history.random_write(sim, side, keys=20)
            sim.run(0.1)
        sim.until(partial(all_forgotten, sim, side), 30)
    names = [*sides[0], *sides[1]]
    sim.ask("b1", lambda: sim["b1"].join("a0"))
    settle(sim, names)
    assert chaos.live(sim["a0"]) == history.heads()


@over_seeds(1)
def test_many_nodes_converge_as_well(seed: int) -> None:
    options = replace(OPTIONS, sync_interval=0.5)
    sim, names = ready(Sim(seed, options, Network(loss=0.05, longest=0.1)), 16)
    history = chaos.History()
    for _ in range(60):
        history.random_write(sim, names, keys=20)
        sim.run(sim.random.uniform(0, 0.3))
        if sim.random.random() < 0.1:
            sim.crash(sim.random.choice([each.name for each in sim]))
    settle(sim, names, limit=200)
    assert chaos.live(sim[names[0]]) == history.heads()


def sizes(sim: Sim) -> dict[str, int]:
    """Counts the bytes of messages by kind, from now on."""
    found: dict[str, int] = {}

    def trace(sender: str, receiver: str, message: AnyMessage) -> None:
        kind = type(message).__name__
        found[kind] = found.get(kind, 0) + len(encode(Frame(1, sender, 1, 1, [message])))

    sim.trace = trace
    return found


def filled(keys: int, batch: int = 500) -> Sim:
    sim, names = joined(Sim(1, replace(OPTIONS, sync_entries=batch, sync_attempts=12)), 3)
    machine = sim[names[0]]
    for number in range(keys):
        machine.metadata.put("p", b"%d" % number, b"v" * 20)
    sim.ask(names[0], lambda: None)
    sim.until(lambda: chaos.is_quiet(sim), 60)
    return sim


def test_idle_exchange_costs_the_same_however_many_keys() -> None:
    costs = []
    for keys in (10, 3000):
        sim = filled(keys)
        sim.run(10)
        found = sizes(sim)
        sim.run(60)
        costs.append(found["SyncRequest"] + found["SyncBatch"])
        assert not found.get("Gossip")
        assert not any(machine.exchange.is_pulling for machine in sim)
    assert costs[1] <= 1.1 * costs[0]


def test_an_exchange_costs_what_the_difference_costs() -> None:
    sim = filled(3000)
    names = list(sim.nodes)
    sim.crash(names[2])
    sim.run(6)
    for number in range(7):
        sim.ask(names[0], partial(sim[names[0]].metadata.put, "p", b"%d" % number, b"w"))
    sim.until(lambda: chaos.is_quiet(sim), 20)  # the other one, which is there, has them as well
    before = [machine.exchange.counters.entries_sent for machine in sim]
    machine = sim.restart(names[2])
    sim.until(lambda: chaos.is_quiet(sim), 20)
    assert machine.exchange.counters.entries_received in (7, 14)
    assert machine.exchange.counters.full_exchanges == 0
    sent = [each.exchange.counters.entries_sent for each in sim]
    assert sum(sent) - sum(before) in (7, 14)


def test_an_empty_node_gets_a_large_map_in_batches_while_all_go_on() -> None:
    sim = filled(3000)
    names = list(sim.nodes)
    largest = 0

    def trace(sender: str, receiver: str, message: AnyMessage) -> None:
        nonlocal largest
        if isinstance(message, SyncBatch):
            largest = max(largest, len(message.entries))

    sim.trace = trace
    machine = sim.add("new", join=names[0])
    writes = 0
    filler = sim[names[0]].identity.incarnation
    while machine.metadata.clock.base(filler) < 3000:
        sim.ask(names[1], partial(sim[names[1]].metadata.put, "p", b"new %d" % writes, b"v"))
        writes += 1
        sim.run(0.01)
        assert writes < 300
    assert len(chaos.values(machine)) >= 3000
    assert 0 < largest <= 500
    sim.until(lambda: chaos.is_quiet(sim), 20)
    assert machine.exchange.counters.entries_received <= 3000 + 3 * writes
    assert machine.metadata.clock.runs.keys() == sim[names[0]].metadata.clock.runs.keys()
    assert all(len(runs) == 2 for runs in machine.metadata.clock.runs.values())


def test_a_node_that_was_away_for_long_is_told_what_was_deleted_in_bounded_steps() -> None:
    sim = filled(1500, batch=100)
    names = list(sim.nodes)
    sim.crash(names[2])
    sim.run(6)
    first = sim[names[0]]
    sim.ask(names[0], lambda: first.remove(names[2]))
    sim.ask(names[0], lambda: [first.metadata.delete("p", b"%d" % n) for n in range(0, 1500, 2)])
    sim.until(lambda: not any(chaos.deletions(machine) for machine in sim), 60)
    assert len(chaos.entries(first)) == 750
    machine = sim.restart(names[2])
    assert len(chaos.values(machine)) == 1500
    sim.ask(names[2], lambda: machine.metadata.put("p", b"written meanwhile", b"v"))
    sim.run(2)
    sim.ask(names[2], lambda: machine.join(names[1]))
    received: list[int] = []

    def trace(sender: str, receiver: str, message: AnyMessage) -> None:
        if isinstance(message, SyncBatch) and receiver == names[2]:
            received.append(len(message.entries))

    sim.trace = trace
    sim.until(lambda: sim.is_joined(names) and chaos.is_quiet(sim), 60)
    assert machine.exchange.counters.full_exchanges >= 1
    assert max(received) <= 100
    for each in sim:
        assert len(chaos.values(each)) == 751
        assert chaos.values(each)[b"written meanwhile"] == b"v"


def test_who_sees_that_it_lacks_something_asks_out_of_its_turn() -> None:
    sim, names = ready(Sim(1, replace(OPTIONS, sync_interval=100.0)), 2)
    sim.until(lambda: sim.now > 5, 10)
    for machine in sim:
        machine.plumtree.set_peers([])
    sim.ask(names[0], partial(sim[names[0]].metadata.put, "p", b"k", b"v"))
    identity = sim[names[0]].identity
    clock = sim[names[0]].metadata.clock.copy()
    request = SyncRequest(1, identity.incarnation, clock.runs, {}, False, b"", b"")
    sim.ask(names[1], partial(sim[names[1]].exchange.on_request, names[0], request, sim.now))
    sim.until(lambda: sim[names[1]].metadata.get("p", b"k") == b"v", 12)


def test_a_lost_batch_is_asked_for_again_and_not_all_that_came_before() -> None:
    sim = filled(300, batch=10)
    filler = next(iter(sim))
    sim.run(10)  # then the broadcasts are no news for neighbours any more
    sim.network.loss = 0.25
    machine = sim.add("new", join=filler.name)
    sim.until(lambda: machine.metadata.clock.dominates(filler.metadata.clock), 200)
    assert len(chaos.values(machine)) == 300
    assert machine.exchange.counters.given_up == 0
    assert machine.exchange.counters.entries_received == 300


def test_a_batch_is_bounded_in_bytes() -> None:
    sim = Sim(1, replace(OPTIONS, sync_entries=500, sync_bytes=10_000))
    sim.add("a")
    for number in range(50):
        sim["a"].metadata.put("p", b"%d" % number, b"v" * 1000)
    largest = 0

    def trace(sender: str, receiver: str, message: AnyMessage) -> None:
        nonlocal largest
        if isinstance(message, SyncBatch):
            largest = max(largest, len(encode(Frame(1, sender, 1, 1, [message]))))

    sim.trace = trace
    machine = sim.add("b", join="a")
    sim.until(lambda: len(chaos.values(machine)) == 50, 20)
    assert 9_000 < largest < 13_000


def test_nothing_is_claimed_before_the_end() -> None:
    """The one who is asked dies in the middle: what was promised must not count."""
    sim = filled(300, batch=20)
    names = list(sim.nodes)
    machine = sim.add("new", join=names[0])
    while machine.exchange.counters.entries_received < 40:
        sim.run(0.005)
    assert machine.exchange.is_pulling
    assert not machine.metadata.clock.runs
    assert not machine.exchange.complete
    asked = machine.exchange.pulling_from
    sim.crash(asked)
    alive = [name for name in sim.nodes if name != asked]
    sim.ask(alive[0], lambda: sim[alive[0]].metadata.put("p", b"another", b"v"))
    sim.until(lambda: all(len(chaos.values(sim[name])) == 301 for name in alive), 30)
    sim.until(lambda: machine.exchange.complete == {*alive} - {"new"}, 30)


def test_a_round_of_several_batches_promises_nothing() -> None:
    """A key is overwritten before its turn, by a write whose turn is over; then the one who is asked dies."""
    sim = Sim(1, replace(OPTIONS, sync_entries=20))
    names = sorted(sim.cluster(3), key=lambda name: sim[name].identity.incarnation)
    asked, other, filler = names
    for number in range(200):
        sim.ask(filler, partial(sim[filler].metadata.put, "p", b"%d" % number, b"v"))
    sim.until(lambda: chaos.is_quiet(sim), 60)
    for name in (other, filler):
        sim.network.cuts |= {(name, "new"), ("new", name)}
    machine = sim.add("new", join=asked)
    while machine.exchange.counters.entries_received < 40:
        sim.run(0.005)
    assert machine.exchange.pulling_from == asked
    sim[asked].plumtree.set_peers([])
    sim.ask(asked, partial(sim[asked].metadata.put, "p", b"199", b"w"))
    while machine.exchange.counters.entries_received < 199:
        sim.run(0.005)
    assert len(chaos.values(machine)) == 199
    sim.crash(asked)
    sim.heal()
    sim.until(lambda: len(chaos.values(machine)) == 200, 30)


def test_who_heard_of_forgotten_deletions_cannot_pass_them_on_but_in_full() -> None:
    """A member deletes a key while it is away, is removed, forgets the deletion, and returns to one of the others."""
    sim, (a, b, c) = joined(Sim(2), 3)
    sim.ask(a, partial(sim[a].metadata.put, "p", b"k", b"v"))
    sim.until(lambda: chaos.is_quiet(sim), 20)
    sim.split([a, b], [c])
    sim.ask(c, partial(sim[c].metadata.delete, "p", b"k"))
    sim.run(6)
    sim.ask(a, partial(sim[a].remove, c))
    sim.network.cuts = {(b, c), (c, b)}
    sim.run(2)
    sim.until(lambda: not sim[c].membership.belongs and not chaos.entries(sim[c]), 20)
    sim.ask(c, partial(sim[c].join, a))
    sim.until(lambda: not chaos.values(sim[a]), 30)
    sim.until(lambda: not chaos.values(sim[b]), 30)
    sim.heal()
    settle(sim, [a, b, c])
    assert not chaos.values(sim[c])


@pytest.mark.parametrize(
    "message",
    [
        SyncRequest(1, 0, {1: [2, 1]}, {}, False, b"", b""),
        SyncRequest(1, 0, {}, {1: [5]}, False, b"", b""),
        SyncRequest(1, 0, {}, {}, False, b"short", b""),
    ],
)
def test_a_request_that_makes_no_sense_is_reported(message: SyncRequest) -> None:
    sim, names = ready(Sim(1), 2)
    message.incarnation = sim[names[1]].identity.incarnation
    frame = Frame(1, names[1], 2 * 10**12, 1, [message])
    effects = sim[names[0]].receive(frame, sim.now)
    assert any(isinstance(effect, Misbehaved) for effect in effects)


def test_an_answer_that_was_not_asked_for_changes_nothing() -> None:
    sim, names = ready(Sim(1), 2)
    sim.run(20)
    machine = sim[names[0]]
    other = sim[names[1]].identity.incarnation
    forged = SyncBatch(
        10**6, other, {9: [1, 5]}, {}, False, [WireEntry(b"\0k", [(9, 1, 1, b"v")], {9: 1})], None
    )
    machine.receive(Frame(1, names[1], 2 * 10**12, 1, [forged, Gossip((1, 1, 1), b"")]), sim.now)
    assert not chaos.entries(machine)
    assert not machine.metadata.clock.runs

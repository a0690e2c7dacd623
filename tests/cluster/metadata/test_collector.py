"""Deleted keys are forgotten when every member has seen that, and not before."""

from functools import partial

from tests.simulator.chaos import deletions, entries, is_quiet
from tests.simulator.machines import Sim, joined, ready
from tests.simulator.seeds import over_seeds
from vmq_cluster.messages import AnyMessage, Gossip


def deleted(sim: Sim, names: list[str], keys: int = 30) -> None:
    """Everybody has had so many keys, and the first node deletes them."""
    first = sim[names[0]]
    for number in range(keys):
        sim.ask(names[0], partial(first.metadata.put, "p", b"%d" % number, b"v"))
    sim.until(lambda: all(len(entries(machine)) == keys for machine in sim), 20)
    for number in range(keys):
        sim.ask(names[0], partial(first.metadata.delete, "p", b"%d" % number))


def test_a_node_alone_forgets_at_once() -> None:
    sim = Sim(1)
    sim.add("a")
    deleted(sim, ["a"])
    sim.run(3)
    assert not entries(sim["a"])
    assert not any(value for _, value in sim.nodes["a"].storage.scan(b"d", b"f"))


def test_a_dead_member_is_waited_for_and_a_removed_one_is_not() -> None:
    sim, names = joined(Sim(2), 3)
    sim.crash(names[2])
    deleted(sim, names)
    sim.run(40)
    for name in names[:2]:
        assert len(deletions(sim[name])) == 30
    sim.ask(names[0], lambda: sim[names[0]].remove(names[2]))
    sim.until(lambda: not any(entries(sim[name]) for name in names[:2]), 30)


def test_a_member_that_returns_sees_it_and_then_it_goes() -> None:
    sim, names = joined(Sim(3), 3)
    deleted(sim, names, 5)
    sim.run(0.5)
    sim.crash(names[2])
    sim.run(20)
    sim.restart(names[2])
    sim.until(lambda: not any(entries(machine) for machine in sim), 40)
    assert all(machine.collector.forgotten == 5 for machine in sim)


def test_a_tick_forgets_a_bounded_number() -> None:
    sim = Sim(4)
    sim.add("a")
    machine = sim["a"]
    limit = sim.options.collect_keys
    for number in range(2 * limit + 1):
        machine.metadata.put("p", b"%d" % number, b"v")
        machine.metadata.delete("p", b"%d" % number)
    sim.ask("a", lambda: None)
    counts = []
    while deletions(machine):
        before = machine.collector.forgotten
        sim.run(0.25)
        counts.append(machine.collector.forgotten - before)
    assert max(counts) == limit
    assert sum(counts) == 2 * limit + 1


@over_seeds(10)
def test_a_deletion_beside_a_value_goes_and_the_value_stays(seed: int) -> None:
    sim, names = joined(Sim(seed), 2)
    sim.ask(names[0], lambda: sim[names[0]].metadata.put("p", b"k", b"1"))
    sim.run(1)
    sim.split(names[:1], names[1:])
    sim.ask(names[0], lambda: sim[names[0]].metadata.delete("p", b"k"))
    sim.ask(names[1], lambda: sim[names[1]].metadata.put("p", b"k", b"2"))
    sim.run(6)
    sim.heal()
    sim.until(lambda: all(each.metadata.get("p", b"k") == b"2" for each in sim), 20)
    sim.until(lambda: not any(deletions(each) for each in sim), 30)
    for machine in sim:
        assert [len(entry.siblings) for entry in entries(machine).values()] == [1]


def test_the_horizon_survives_a_restart() -> None:
    sim = Sim(5)
    sim.add("a")
    deleted(sim, ["a"], 3)
    sim.run(3)
    horizon = sim["a"].metadata.horizon
    assert horizon.runs
    sim.crash("a")
    assert sim.restart("a").metadata.horizon == horizon


def test_what_was_overwritten_and_comes_late_is_no_news() -> None:
    """A deletion that came before what it overwrote is kept until that cannot come any more."""
    sim, names = ready(Sim(6), 2)
    writer, machine = (sim[name] for name in names)
    sim.run(3)
    sim.network.loss = 1.0
    said: list[Gossip] = []

    def trace(sender: str, receiver: str, message: AnyMessage) -> None:
        if isinstance(message, Gossip):
            said.append(message)

    sim.trace = trace
    for value in (b"1", b"2"):
        sim.ask(names[0], partial(writer.metadata.put, "p", b"k", value))
    sim.ask(names[0], partial(writer.metadata.delete, "p", b"k"))
    first, _, deletion = said
    sim.ask(names[1], partial(machine.plumtree.on_gossip, names[0], deletion))
    machine.collector.report(writer.identity.incarnation, writer.metadata.clock.copy())
    for _ in range(3):
        machine.collector.tick(sim.now + 10)
    assert len(deletions(machine)) == 1
    sim.ask(names[1], partial(machine.plumtree.on_gossip, names[0], first))
    assert machine.metadata.get("p", b"k") is None
    sim.network.loss = 0.0
    sim.until(lambda: not any(entries(each) for each in sim), 30)


def test_who_missed_a_write_and_saw_its_deletion_does_not_take_it_back() -> None:
    """Writer and deleter are removed before anybody else hears of the write; then the writer returns."""
    sim, names = ready(Sim(7), 3)
    a, writer, deleter = (sim[name] for name in names)
    sim.run(9)
    deleter.plumtree.set_peers([])
    writer.plumtree.set_peers([names[2]])
    sim.ask(names[1], partial(writer.metadata.put, "p", b"k", b"v"))
    sim.run(0.1)
    sim.crash(names[1])
    deleter.plumtree.set_peers([names[0]])
    sim.ask(names[2], partial(deleter.metadata.delete, "p", b"k"))
    sim.run(0.1)
    assert len(deletions(a)) == 1
    sim.crash(names[2])
    for name in names[1:]:
        sim.ask(names[0], partial(a.remove, name, force=True))
    sim.run(5)
    assert not entries(a)
    writer = sim.restart(names[1])
    sim.run(3)
    assert writer.metadata.get("p", b"k") == b"v"
    sim.ask(names[1], partial(writer.join, names[0]))
    sim.until(lambda: sim.is_joined(names[:2]) and is_quiet(sim), 40)
    assert not entries(a)
    assert not entries(writer)

"""The map of one node, and of two: values, deletions, watches, limits, restarts."""

from functools import partial
from pathlib import Path

import msgspec
import pytest

from tests.simulator.machines import Sim, joined, ready
from tests.support.walked import WalkedDb
from vmq_cluster.clocks import NodeClock
from vmq_cluster.effects import Changed, Misbehaved, Renewed
from vmq_cluster.errors import ClusterError, MalformedError, StorageError
from vmq_cluster.leveldb import LevelStorage
from vmq_cluster.machine import Machine
from vmq_cluster.messages import MAX_KEY, MAX_VALUE, Frame, Gossip, WireEntry
from vmq_cluster.metadata.entries import Entry
from vmq_cluster.metadata.metadata import Metadata
from vmq_cluster.metadata.records import DOT, dot_key, full_key
from vmq_cluster.storage import MemoryStorage


def lone(sim: Sim | None = None) -> tuple[Sim, Metadata]:
    sim = Sim(1) if sim is None else sim
    return sim, sim.add("a").metadata


def test_a_map_with_prefixes() -> None:
    _, metadata = lone()
    metadata.put("p", b"k", b"1")
    metadata.put("p", b"", b"empty")
    metadata.put("p", b"\xff\xff", b"last")
    metadata.put("pp", b"k", b"other")
    metadata.put("", b"k", b"none")
    assert metadata.get("p", b"k") == b"1"
    assert metadata.get("p", b"nothing") is None
    assert list(metadata.items("p")) == [(b"", b"empty"), (b"k", b"1"), (b"\xff\xff", b"last")]
    assert [key for key, _ in metadata.items("p", after=b"")] == [b"k", b"\xff\xff"]
    assert [key for key, _ in metadata.items("p", b"k", after=b"a")] == [b"k"]
    assert list(metadata.items("p", after=b"\xff\xff")) == []
    assert list(metadata.items("")) == [(b"k", b"none")]
    metadata.put("p", b"k", b"2")
    assert metadata.get("p", b"k") == b"2"
    assert metadata.delete("p", b"k")
    assert not metadata.delete("p", b"k")
    assert not metadata.delete("p", b"never there")
    assert metadata.get("p", b"k") is None
    assert [key for key, _ in metadata.items("p")] == [b"", b"\xff\xff"]


def test_sizes_are_limited() -> None:
    _, metadata = lone()
    with pytest.raises(ClusterError, match="prefix"):
        metadata.put("p" * 256, b"", b"")
    with pytest.raises(ClusterError, match="key"):
        metadata.put("p", b"k" * MAX_KEY, b"")
    with pytest.raises(ClusterError, match="value"):
        metadata.put("p", b"k", b"v" * (MAX_VALUE + 1))


def test_watchers_hear_of_changes_here_and_elsewhere() -> None:
    sim, names = joined(Sim(2), 2)
    first, second = (sim[name] for name in names)
    for name in names:
        sim[name].metadata.watch("p")
    sim.ask(names[0], lambda: first.metadata.put("p", b"k", b"1"))
    sim.ask(names[0], lambda: first.metadata.put("unwatched", b"k", b"1"))
    sim.ask(names[0], lambda: first.metadata.put("p", b"k", b"1"))
    sim.run(1)
    sim.ask(names[1], lambda: second.metadata.delete("p", b"k"))
    sim.run(1)
    assert sim.nodes[names[0]].of(Changed) == [
        Changed("p", b"k", b"1", None, local=True),
        Changed("p", b"k", None, b"1", local=False),
    ]
    assert sim.nodes[names[1]].of(Changed) == [
        Changed("p", b"k", b"1", None, local=False),
        Changed("p", b"k", None, b"1", local=True),
    ]


def test_values_of_both_sides_of_a_split_are_merged_where_the_prefix_says_so() -> None:
    sim, names = joined(Sim(3), 4)

    def union(one: bytes, other: bytes) -> bytes:
        return b",".join(sorted({*one.split(b","), *other.split(b",")}))

    for machine in sim:
        machine.metadata.merge_with("m", union)
        machine.metadata.watch("m")
    sim.split(names[:2], names[2:])
    for name, value in ((names[0], b"a,b"), (names[2], b"b,c")):
        for prefix in "mp":
            sim.ask(name, partial(sim[name].metadata.put, prefix, b"k", value))
        sim.run(0.1)
    sim.run(6)
    sim.heal()
    sim.until(lambda: {each.metadata.get("m", b"k") for each in sim} == {b"a,b,c"}, 15)
    assert {each.metadata.get("p", b"k") for each in sim} == {b"b,c"}
    for name in names:
        assert sim.nodes[name].of(Changed)[-1].value == b"a,b,c"


@pytest.mark.parametrize("power", [False, True])
def test_a_restart_of_all_loses_nothing_that_was_stored(power: bool) -> None:
    sim, names = joined(Sim(5), 3)
    for number, name in enumerate(names):
        sim.ask(name, partial(sim[name].metadata.put, "p", b"%d" % number, b"v"))
    sim.ask(names[0], lambda: sim[names[0]].metadata.put("p", b"gone", b"v"))
    sim.run(1)
    sim.ask(names[1], lambda: sim[names[1]].metadata.delete("p", b"gone"))
    sim.run(1)
    for name in names:
        if power:
            sim.nodes[name].storage.write({}, sync=True)
        sim.crash(name, power)
    for name in names:
        sim.restart(name)
    sim.until(lambda: sim.is_joined(names), 10)
    for machine in sim:
        assert dict(machine.metadata.items("p")) == {b"0": b"v", b"1": b"v", b"2": b"v"}


def test_everything_is_stored_before_it_is_sent() -> None:
    sim, names = joined(Sim(6), 2)
    machine = sim[names[0]]
    storage = sim.nodes[names[0]].storage
    machine.metadata.put("p", b"k", b"v")
    before = storage.unsynced
    effects = machine.flush(sim.now)
    assert storage.unsynced == before + 1
    assert effects
    storage.lose(1)
    assert not list(storage.scan(b"e", b"f"))


def test_what_is_overwritten_counts_as_seen_though_its_exchange_has_not_ended() -> None:
    _, metadata = lone()
    entry = Entry([(9, 1, 1, b"v")], {9: 1})
    assert metadata.apply(b"\x01pk", entry, NodeClock())
    assert (9, 1) not in metadata.clock
    assert metadata.delete("p", b"k")
    assert (9, 1) in metadata.clock


def test_a_node_that_hears_of_a_write_that_it_forgot_is_another_from_then_on() -> None:
    sim, names = ready(Sim(10), 2)
    machine = sim[names[0]]
    before = machine.identity.incarnation
    entry = WireEntry(b"\x01pk", [(before, 7, 1, b"v")], {before: 7})
    gossip = Gossip((0, before, 7), msgspec.msgpack.encode(entry))
    sim.ask(names[0], partial(machine.plumtree.on_gossip, names[1], gossip))
    assert machine.identity.incarnation > before
    assert sim.nodes[names[0]].of(Renewed) == [Renewed(machine.identity.incarnation)]
    sim.ask(names[0], partial(machine.metadata.put, "p", b"k", b"w"))
    sim.until(lambda: sim[names[1]].metadata.get("p", b"k") == b"w", 20)


@pytest.mark.parametrize("payload", [b"", b"\x00", b"\x93\xa1k\x90\x80"])
def test_a_broadcast_without_an_entry_is_malformed(payload: bytes) -> None:
    _, metadata = lone()
    with pytest.raises(MalformedError):
        metadata.deliver(1, 1, payload)


def test_a_peer_that_sends_such_is_reported() -> None:
    sim, names = ready(Sim(7), 2)
    machine = sim[names[0]]
    frame = Frame(1, names[1], 2 * 10**12, 1, [Gossip((0, 1, 1), b"nonsense")])
    assert any(isinstance(each, Misbehaved) for each in machine.receive(frame, sim.now))


@pytest.mark.parametrize("key", [b"c12345678", b"h12345678"])
def test_a_damaged_clock_is_an_error_at_the_start(key: bytes) -> None:
    sim = Sim(8)
    storage = MemoryStorage()
    storage.write({key: b"\xc1"}, sync=False)
    with pytest.raises(StorageError, match="damaged"):
        Machine("a", "a", storage, sim.options, sim.random, lambda: 1)


def test_it_all_works_on_leveldb(tmp_path: Path) -> None:
    sim = Sim(9)
    storage = LevelStorage(tmp_path / "db")
    machine = Machine("a", "a", storage, sim.options, sim.random, lambda: 1000, b"boot")
    machine.start(0.0)
    for number in range(300):
        machine.metadata.put("p", b"%03d" % number, b"v")
        if number % 3 == 0:
            machine.metadata.delete("p", b"%03d" % number)
    machine.flush(0.0)
    machine.tick(1.0)
    machine.tick(2.0)
    storage.close()
    storage = LevelStorage(tmp_path / "db")
    again = Machine("a", "a", storage, sim.options, sim.random, lambda: 2000, b"boot")
    again.start(0.0)
    assert again.identity.incarnation == machine.identity.incarnation
    assert len(list(again.metadata.items("p"))) == 200
    assert again.metadata.clock == machine.metadata.clock
    assert not list(storage.scan(b"t", b"u"))
    assert len(list(storage.scan(b"e", b"f"))) == 200
    assert sum(value != b"" for _, value in storage.scan(b"d", b"e")) == 200
    storage.close()


def walked(tmp_path: Path) -> tuple[Machine, WalkedDb]:
    """A node whose database counts what is walked over."""
    sim = Sim(1)
    storage = LevelStorage(tmp_path / "db")
    storage._db = db = WalkedDb(storage._db)
    machine = Machine("a", "a", storage, sim.options, sim.random, lambda: 1000, b"boot")
    machine.start(0.0)
    return machine, db


def test_dots_that_another_incarnation_has_outlived_are_not_walked_over(tmp_path: Path) -> None:
    machine, db = walked(tmp_path)
    metadata = machine.metadata
    own = machine.identity.incarnation
    other = own + 1
    for number in range(1, 401):
        metadata.put("p", b"k", b"v")
        context = {other: number}
        entry = Entry([(other, number, 1000 << 16, b"w")], context)
        metadata.apply(full_key("p", b"theirs"), entry, NodeClock())
        machine.flush(0.0)
    db.take()
    found = list(metadata.index(DOT, (own, 400), dot_key(DOT, (own, 401))))
    assert found == [((own, 400), full_key("p", b"k"))]
    assert len(db.dead) >= 700
    assert db.take() <= 4
    db.close()


def test_deletions_that_are_forgotten_are_walked_over_once(tmp_path: Path) -> None:
    machine, db = walked(tmp_path)
    metadata = machine.metadata
    now = 0.0
    for burst in range(10):
        for number in range(100):
            metadata.put("p", b"%d %d" % (burst, number), b"v")
            metadata.delete("p", b"%d %d" % (burst, number))
        machine.flush(now)
        now += 2
        machine.tick(now)
        machine.flush(now)
    assert machine.collector.forgotten == 1000
    assert not any(value for _, value in db.iterator(start=b"d", stop=b"f"))
    db.take()
    metadata.put("p", b"k", b"v")
    metadata.delete("p", b"k")
    machine.flush(now)
    machine.tick(now + 2)
    assert machine.collector.forgotten == 1001
    assert len(db.dead) > 2000
    assert db.take() <= 110
    db.close()

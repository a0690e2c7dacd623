"""Copies that are made whole again: what travels is what differs, whoever of the two is ahead."""

from collections.abc import Iterator

import pytest
from plyvel import CorruptionError

from tests.simulator.disk import Database
from tests.vmq.clustering.replica_run import NAMES, Run, check_counts, purge, texts
from vmq.clustering.replication import catch_up
from vmq.clustering.replication.anti_entropy import RANGE, records_behind
from vmq.store.store import Store


@pytest.mark.parametrize("seed", range(8))
def test_an_owner_that_starts_again_sends_what_differs_and_no_more(seed: int) -> None:
    """Whichever of the two is ahead: a commit may be in one store alone when the owner dies."""
    run = Run(seed, 2, NAMES[:3])
    world, chance = run.world, run.random
    owner = world.nodes["a"]
    number = 0
    while number < 4000:  # queues longer than a range
        number += 1
        owner.publish([chance.choice(run.clients)], 100_000 + number, 100)
        if not number % 100:
            world.step()
    world.settle(world.is_quiet)
    whole = sum(len(raw) for key, raw in owner.db.records.items() if key[:1] == b"q")
    run.traffic(chance.randrange(10))
    if seed % 2:
        world.write_failures = 1.0  # what it sends now it never has
        run.traffic(chance.randrange(1, 5))
        world.write_failures = 0.0
    world.kill("a")
    if seed % 4 == 0:  # nobody else has these
        world.cut |= {frozenset(("a", other)) for other in "bc"}
        world.start("a")
        run.traffic(chance.randrange(1, 5))
        world.heal()
    else:
        world.start("a")
    world.sent.clear()
    world.settle(world.is_quiet)
    owner = world.nodes["a"]
    # In each queue the few ranges of records where something changed.
    assert owner.replicas.filled_records <= 6 * RANGE * len(run.clients)
    assert sum(world.sent.values()) < whole // 4
    copies = [(node, copy) for node in world.nodes.values() for copy in node.copies]
    assert len(copies) == len(run.clients)
    for node, copy in copies:
        assert texts(node, copy.number) == texts(owner, copy.head.session)
    # Nothing has changed since: then digests are all that travels.
    world.kill("a")
    world.start("a")
    world.sent.clear()
    world.settle(world.is_quiet)
    assert world.nodes["a"].replicas.filled_records == 0
    assert sum(world.sent.values()) < whole // 50
    for node in world.nodes.values():
        purge(node)
        check_counts(node)


def test_a_session_that_cannot_be_read_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its copy stays incomplete; the copies of the others become whole, and the owner goes on."""
    run = Run(1, 2, NAMES[:2])
    world = run.world
    run.traffic(20)
    owner = world.nodes["a"]
    damaged = owner.sessions[run.clients[0]].number

    def read(store: Store, session: bytes, behind: bytes) -> Iterator[tuple[bytes, bytes]]:
        if session == damaged:
            raise CorruptionError("Corruption: block checksum mismatch")
        return records_behind(store, session, behind)

    monkeypatch.setattr(catch_up, "records_behind", read)
    world.kill("b")
    world.dbs["b"] = Database()  # it has lost its disk
    world.heal()
    world.start("b")
    others = {owner.sessions[client].number for client in run.clients[1:]}

    def whole() -> set[bytes]:
        node = world.nodes["b"]
        return {
            copy.head.session
            for copy in node.copies
            if texts(node, copy.number) == texts(owner, copy.head.session)
        }

    world.settle(lambda: whole() >= others)
    assert damaged not in whole()
    assert "cannot copy a session to b: client-0" in caplog.text


def test_what_an_owner_has_lost_is_not_taken_out_of_the_copy(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where a damaged block was cut out, the owner would seem to have deleted what was in it."""
    run = Run(1, 2, NAMES[:2])
    world = run.world
    run.traffic(20)
    client = run.clients[0]
    world.nodes["a"].publish([client], 100_000, 100)
    world.settle(world.is_quiet)
    owner, keeper = world.nodes["a"], world.nodes["b"]
    session = owner.sessions[client].number
    [copy] = [each for each in keeper.copies if each.head.session == session]
    before = texts(keeper, copy.number)
    world.kill("a")
    lost = min(key for key in owner.db.records if key.startswith(b"q" + session))
    world.dbs["a"].disk.records.delete(lost)
    world.start("a")
    world.nodes["a"].store.refused.add(session)
    others = [each for each in run.clients if each != client]
    world.nodes["a"].publish(others, 100_001, 100)
    told = f"cannot copy a session to b: {client}"
    world.settle(lambda: told in caplog.text)
    for _ in range(50):
        world.step()
    kept = [each for each in keeper.copies if each.head.session == session]
    assert [texts(keeper, each.number) for each in kept] == [before]

"""Copies that are made whole again: what travels is what differs, whoever of the two is ahead."""

from __future__ import annotations

import pytest

from tests.vmq.clustering.replica_run import NAMES, Run, check_counts, purge, texts
from vmq.clustering.replication.anti_entropy import RANGE


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

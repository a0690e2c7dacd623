"""Where copies are: they move to a node that joins, a few at a time, and are whole meanwhile."""

import pytest

from tests.vmq.clustering.replica_run import NAMES, Run
from vmq.clustering.directory.rendezvous import ranked
from vmq.clustering.messages.replication import Changes
from vmq.clustering.replication.leader import FORGET_AFTER


@pytest.mark.parametrize("seed", range(8))
def test_copies_move_to_a_node_that_joins_and_stay_whole_meanwhile(seed: int) -> None:
    run = Run(seed, 2, NAMES[:3])
    world, chance = run.world, run.random
    for client in [f"more-{number}" for number in range(30)]:
        run.clients.append(client)
        run.acknowledged[client], run.taken[client] = set(), []
        world.nodes["a"].begin(client)
    world.loss = 0.1 if seed % 2 else 0.0
    run.traffic(40)
    world.settle(world.is_quiet)
    world.join("d")
    owner = world.nodes["a"]
    if seed % 4 == 3:  # it dies in the middle of it
        run.traffic(chance.randrange(20))
        world.kill("a")
    else:
        run.traffic(60)
        world.settle(lambda: world.is_quiet() and owner.replicas.is_settled)
        assert owner.replicas.left_out == 0
        assert owner.replicas.moved > 0
        world.now += FORGET_AFTER
        world.step()
        world.settle(world.is_quiet)
        for client in run.clients:
            number = owner.sessions[client].number
            assert owner.replicas.holders(number) == ranked(client, NAMES[1:])[:1]
            marked = {key[9:].decode() for key in owner.db.records if key[:9] == b"a" + number}
            assert marked <= set(owner.replicas.holders(number))
        assert sum(len(node.copies) for node in world.nodes.values()) == len(run.clients)
        world.kill("a")
    world.loss = 0.0
    for client in run.clients:
        new = chance.choice(NAMES[1:])
        assert world.take_over(client, "a", new)
        assert run.missing(client, new) == set()
        names = world.nodes[new].names(client)
        assert len(names) == len(set(names))


def test_only_so_many_copies_move_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmq.clustering.replication.placement.MOVING", 3)
    run = Run(1, 2, NAMES[:3])
    world = run.world
    for client in [f"more-{number}" for number in range(40)]:
        world.nodes["a"].begin(client)
    world.settle(world.is_quiet)
    owner = world.nodes["a"]
    world.join("d")
    most = steps = 0
    hears = world.nodes["d"].receive
    # For a while it does not take what is sent: nobody must rely on it.
    world.nodes["d"].receive = lambda peer, message: (  # type: ignore[method-assign]
        None if isinstance(message, Changes) and steps < 30 else hears(peer, message)
    )
    while not owner.replicas.moved or not (owner.replicas.is_settled and world.is_quiet()):
        world.step()
        steps += 1
        holders = [owner.replicas.holders(each.number) for each in owner.sessions.values()]
        assert all(holders)
        whole = {
            copy.head.scoped_id
            for node in world.nodes.values()
            for copy in node.copies
            if copy.head.complete
        }
        assert whole == owner.sessions.keys()
        most = max(most, sum(len(each) > 1 for each in holders))
    assert most == 3
    assert owner.replicas.moved > 3

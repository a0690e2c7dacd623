"""The machine that moves sessions: by the rules one by one, and by seeds."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.vmq.clustering.world import WHO, World

SEEDS = range(250)


def act(world: World, connects: float, publishes: float) -> None:
    choice = world.random.random()
    names = [name for name, node in world.nodes.items() if node.is_alive]
    if choice < connects and names:
        world.connect(world.random.choice(names))
    elif choice < connects + publishes and names:
        world.nodes[world.random.choice(names)].publish()
    else:
        world.work()


def check_owner(world: World) -> None:
    """One session in the whole cluster, where its record says, and nothing of it anywhere else."""
    owners = [name for name, node in world.nodes.items() if WHO in node.sessions]
    assert len(owners) == 1
    for node in world.nodes.values():
        assert node.view.record is not None
        assert node.view.record.node == owners[0]
        assert not node.ghosts
        assert not node.moving.outgoing
        assert not node.moving.incoming
        assert not node.moving.claims
        assert not node.moving._owed


def check_none_lost(world: World) -> None:
    assert sorted(set(world.mids) - set(world.client.log)) == []


def check_none_twice(world: World) -> None:
    assert [mid for mid, count in Counter(world.client.log).items() if count > 1] == []


def check_order(world: World) -> None:
    for name in world.nodes:
        numbers = [number for node, number in world.client.log if node == name]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("tight", [False, True])
def test_a_client_that_goes_from_node_to_node_gets_everything_once_and_in_order(
    others: bool, tight: bool
) -> None:
    for seed in SEEDS:
        world = World(seed, nodes=2 + seed % 4, others=others, tight=tight)
        speed = world.random.choice([0.02, 0.1, 0.3])
        for _ in range(300):
            if world.random.random() < 0.4:
                act(world, speed * 0.3, 0.4)
            else:
                world.step()
        world.finish()
        try:
            check_owner(world)
            check_none_lost(world)
            check_none_twice(world)
            check_order(world)
            session = world.at()
            assert session is not None
            assert session.received == world.client.received
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.parametrize("others", [False, True])
def test_splits_lose_nothing_and_leave_one_owner(others: bool) -> None:
    for seed in SEEDS:
        world = World(seed, nodes=2 + seed % 4, others=others)
        for _ in range(400):
            choice = world.random.random()
            if choice < 0.01:
                world.split()
            elif choice < 0.02:
                world.cuts = set()
            elif choice < 0.4:
                act(world, 0.08, 0.4)
            else:
                world.step()
        world.finish()
        try:
            check_owner(world)
            check_none_lost(world)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


@pytest.mark.parametrize("others", [False, True])
def test_crashes_lose_nothing_and_leave_one_owner(others: bool) -> None:
    for seed in SEEDS:
        world = World(seed, nodes=2 + seed % 4, others=others)
        for _ in range(400):
            choice = world.random.random()
            if choice < 0.01:
                world.crash(world.random.choice(sorted(world.nodes)))
            elif choice < 0.03:
                world.revive(world.random.choice(sorted(world.nodes)))
            elif choice < 0.035:
                world.split()
            elif choice < 0.045:
                world.cuts = set()
            elif choice < 0.4:
                act(world, 0.08, 0.4)
            else:
                world.step()
        world.finish()
        try:
            check_owner(world)
            check_none_lost(world)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error

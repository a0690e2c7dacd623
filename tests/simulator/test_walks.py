"""Whatever befalls a cluster at random, its clients get what they were promised."""

from typing import Any

import pytest

from tests.simulator.seeds import over_seeds
from tests.simulator.walk import NAMES, Walk
from tests.simulator.world import World

#: The fewest nodes with disks that take time, and the most with others.
SEEDS = 2
#: No copies; and one on each node, so that each side of a split has one of each session.
ALONE: dict[str, Any] = {"replicas": 1}
EVERYWHERE: dict[str, Any] = {"replicas": 5}


def world_of(seed: int, least: int = 2, most: int = 5, **options: Any) -> World:
    """So many nodes, some seeds with disks that take time."""
    names = NAMES[: least + -seed % (most - least + 1)]
    durability = "os" if seed % 3 else "fsync"
    world = World(seed, *names, durability=durability, **options)
    world.loop.slowest_thread = 0.05
    return world


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("replicas", [1, 2])
@over_seeds(SEEDS)
def test_a_client_that_goes_from_node_to_node_gets_everything_once_and_in_order(
    others: bool, replicas: int, seed: int
) -> None:
    with world_of(seed, replicas=replicas) as world:
        walk = Walk(world, others=others)
        walk.go(100, moves=world.random.choice([0.02, 0.1, 0.3]))
        walk.end()
        world.oracle.check(order=True)


@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("crashes", [0.0, 0.012])
@over_seeds(SEEDS)
def test_splits_and_crashes_lose_nothing_and_repeat_nothing_for_who_stays(
    others: bool, crashes: float, seed: int
) -> None:
    with world_of(seed, **(ALONE if crashes else EVERYWHERE)) as world:
        walk = Walk(world, others=others)
        world.oracle.apart = set(world.devices) if crashes else {"s"}
        walk.go(120, split=0.02, mend=0.02, kill=crashes, revive=3 * crashes)
        walk.end()
        world.oracle.check(order=True)


@over_seeds(SEEDS)
def test_who_changes_sides_in_a_long_split_lacks_nothing_and_who_stays_gets_all_once(
    seed: int,
) -> None:
    with world_of(seed, **EVERYWHERE) as world:
        walk = Walk(world, others=True)
        world.oracle.apart = {"s"}
        walk.go(30, moves=0.0)
        walk.split()
        walk.go(30, moves=0.0)
        walk.move()
        walk.go(30, moves=0.0)
        walk.mend()
        walk.go(30, moves=0.0)
        walk.end()
        world.oracle.check(order=True)


@pytest.mark.parametrize("others", [False, True])
@over_seeds(SEEDS)
def test_nodes_that_join_while_a_session_moves_lose_nothing_of_what_they_route(
    others: bool, seed: int
) -> None:
    with world_of(seed, most=3, replicas=1 + seed % 2) as world:
        walk = Walk(world, others=others)
        for _ in range(3):
            walk.go(25, moves=0.15)
            walk.join()
        walk.go(25, moves=0.15)
        walk.end()
        world.oracle.check(order=True)


#: One in which a CONNECT is let in and its session claimed by another node in the same moment.
IN_ONE_MOMENT = 114


@over_seeds(SEEDS, IN_ONE_MOMENT)
def test_a_client_that_is_quicker_than_its_session_finds_it_all_the_same(seed: int) -> None:
    """It connects here and there while the session is still on its way from the node before."""
    with World(seed, *"abc") as world:
        world.choose_lags()
        roamer = world.subscriber("s", "a")
        for _ in range(8):
            roamer.begin(world.random.choice("abc"))
            world.run(world.random.choice((0.02, 0.1, 0.5)))
        world.run(3.0)
        world.publish("b", "1")
        world.finish()
        world.oracle.check()


@over_seeds(SEEDS)
def test_what_was_acknowledged_survives_a_disk_at_a_time(seed: int) -> None:
    """Nodes die with their disks, one after the other; each time all copies are there again before the next."""
    with world_of(seed, 3, replicas=2) as world:
        walk = Walk(world, others=False)
        for _ in range(2):
            walk.go(30, moves=0.0)
            walk.lose(1)
            walk.go(20, moves=0.0)
            world.settle()
            walk.move()
        walk.end()
        world.oracle.check(once=False)


@pytest.mark.parametrize("replicas", [2, 3])
@over_seeds(SEEDS)
def test_what_waits_for_a_node_that_is_down_survives_the_publishers_disk(
    replicas: int, seed: int
) -> None:
    """Slots have owners and copies among those that are left."""
    with world_of(seed, 4, replicas=replicas) as world:
        walk = Walk(world, others=False)
        world.kill("a")
        walk.go(40, moves=0.0)
        world.until(world.has_noticed)
        walk.go(20, moves=0.0)
        walk.lose(1, "bcdef")
        world.until(lambda: world["b"].broker is None or world["b"].is_open)
        walk.go(20, moves=0.0)
        walk.end()
        world.oracle.check(once=False)

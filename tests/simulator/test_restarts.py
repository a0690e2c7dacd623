"""A node that ends is missed at once. Who stays with it, and who goes elsewhere meanwhile, gets what was promised."""

import pytest

from tests.simulator.seeds import each_seed
from tests.simulator.world import World

SEEDS = 5


def miss(world: World, name: str) -> None:
    """The others find out, as by its address, that a node has ended."""
    for each in world.running():
        if each.name != name and world[name].broker is None:
            each.running.life.do(each.node._on_gone, name)


def traffic(world: World, *, kills: bool, moves: bool) -> None:
    """A publisher at one node, a session at another, which ends and is back soon."""
    random = world.random
    session, publisher = world.subscriber("s", "b"), world.client("p", "a")
    end, away = random.randint(5, 15), random.uniform(0.2, 3.0)
    back_at = 0.0
    is_back = False
    for number in range(60):
        publisher.publish("t", str(number), 2)
        world.run(random.choice([0.0, 0.005, 0.02, 0.1, 0.2]))
        if number == end and kills:
            world.kill("b")
            world.clock.later(random.uniform(0.05, 0.3), miss, world, "b")
        elif number == end:
            world.stop("b")
        if number >= end and not back_at:
            back_at = world.now + away
        if number > end and moves and not session.is_connected:
            session.begin("c")
        if back_at and not is_back and world.now > back_at:
            is_back = True
            world["b"].start()
        if is_back and not moves and world["b"].is_open and not session.is_connected:
            session.begin("b")
    world.finish()


@pytest.mark.parametrize("kills", [True, False], ids=["killed", "stopped"])
def test_who_stays_with_a_node_that_is_back_soon_gets_all_once_and_in_order(kills: bool) -> None:
    for seed in each_seed(SEEDS):
        with seed, World(seed.number, *"abc") as world:
            traffic(world, kills=kills, moves=False)
            world.oracle.check(order=True)


@pytest.mark.parametrize("kills", [True, False], ids=["killed", "stopped"])
def test_who_goes_elsewhere_meanwhile_gets_all_once(kills: bool) -> None:
    """What was under way to a node that is killed waits for it, as it may have it, and what waits comes behind."""
    for seed in each_seed(SEEDS):
        with seed, World(seed.number, *"abc") as world:
            traffic(world, kills=kills, moves=True)
            world.oracle.check()


def test_what_was_under_way_to_a_node_that_is_stopped_does_not_wait_for_it() -> None:
    """It has said what it has of it, so the rest goes where its sessions go."""
    for seed in each_seed(SEEDS):
        with seed, World(seed.number, *"abc") as world:
            session = world.subscriber("s", "b")
            publisher = world.client("p", "a")
            for number in range(8):
                publisher.publish("t", str(number), 2)
                world.run(world.random.choice([0.0, 0.01, 0.1]))
            world.stop("b")
            publisher.publish("t", "last", 2)
            session.connect("c")
            world.until(lambda: len(world.oracle.got["s"]) == 9, 5.0)
            world.oracle.check()
            world.finish()

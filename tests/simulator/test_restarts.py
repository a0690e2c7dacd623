"""A node that ends is missed at once. Who stays with it, and who goes elsewhere meanwhile, gets what was promised."""

import pytest

from tests.simulator.seeds import over_seeds
from tests.simulator.switched_off import switched_off
from tests.simulator.world import World
from vmq.clustering.running.links import LinkLives
from vmq.clustering.slots.reach import Reach

SEEDS = 2
#: One in which nobody would tell a publisher of the new store.
UNHEARD = 43


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
@over_seeds(SEEDS)
def test_who_stays_with_a_node_that_is_back_soon_gets_all_once_and_in_order(
    kills: bool, seed: int
) -> None:
    with World(seed, *"abc") as world:
        traffic(world, kills=kills, moves=False)
        world.oracle.check(order=True)


@pytest.mark.parametrize("kills", [True, False], ids=["killed", "stopped"])
@over_seeds(SEEDS)
def test_who_goes_elsewhere_meanwhile_gets_all_once(kills: bool, seed: int) -> None:
    """What was under way to a node that is killed waits for it, as it may have it, and what waits comes behind."""
    with World(seed, *"abc") as world:
        traffic(world, kills=kills, moves=True)
        world.oracle.check()


@over_seeds(SEEDS)
def test_what_was_under_way_to_a_node_that_is_stopped_does_not_wait_for_it(seed: int) -> None:
    """It has said what it has of it, so the rest goes where its sessions go."""
    with World(seed, *"abc") as world:
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


def longest_wait(seed: int) -> float:
    """How long clients of a node without its disk wait, that some reach before they hear what store it has now."""
    names = "abcde"
    with World(seed, *names, replicas=2) as world:
        for number in range(8):
            world.subscriber(f"s{number}", "abce"[number % 4])
        random, lags = world.random, world.network.lags
        lags.update({(one, other): random.choice((0.4, 1.5)) for one in names for other in names})
        near = random.choice("abce")
        lags["d", near] = lags[near, "d"] = 0.003
        world.lose("d")
        world.run(random.choice((0.0, 0.5, 4.0)))
        world.start("d")
        publisher, longest = world.client("p", "d"), 0.0
        for number in range(4):
            publisher.publish("t", str(number), 1 + number % 2)
            began = world.now
            while publisher.unfinished and world.now < began + 60:
                world.run(0.05)
            longest = max(longest, world.now - began)
        return longest


@over_seeds(1, UNHEARD)
def test_who_publishes_at_a_node_that_lost_its_disk_is_acknowledged(seed: int) -> None:
    assert longest_wait(seed) < 30


def _go_on(self: LinkLives, peer: str) -> None:
    if life := self.life(peer):
        self._linked(peer, life)


def _nobody(self: Reach) -> list[int]:
    return []


def _are_up(self: Reach) -> bool:
    return all(peer.is_up and not peer.is_leaving for peer in self.peers.values())


def test_without_new_links_to_a_new_store_a_publisher_waits_for_ever() -> None:
    """Slots would else be with nodes that everybody hears."""
    reach = [(Reach, "wider", _nobody), (Reach, "is_whole", _are_up)]
    rules = [(LinkLives, "renew", _go_on), *reach]
    with switched_off(rules, [LinkLives, Reach]):
        assert longest_wait(UNHEARD) > 59

"""Whatever befalls the nodes, each that lets clients in has messages kept for all sessions all the time."""

from collections.abc import Iterator

import pytest

from tests.simulator.seeds import over_seeds
from tests.simulator.switched_off import switched_off
from tests.simulator.world import SLOTS, World
from vmq.clustering.routing.subscribe_barrier import SubscribeBarrier
from vmq.clustering.running.routes import ClusterRoutes
from vmq.clustering.slots.words import slot_of


def heal_in_parts(seed: int) -> list[str]:
    """What is missing of what is published at a node to which the other side's words come late."""
    with World(seed, *"abc", replicas=3) as world:
        names = [f"s{number}" for number in range(100)]
        client = next(each for each in names if world.owner(each) == "a")
        slot = slot_of(client, SLOTS)
        world.subscriber(client, "a")
        publisher = world.client("p", "b")
        world.split("ab", "c")
        # The side that is cut off serves the slot as well, and says so.
        world.until(lambda: world["c"].serves(slot))
        world.run(1.0)
        for one, other in ("bc", "cb"):
            world.network.lags[one, other] = 0.4
        world.network.heal()
        for number in range(100):
            publisher.publish("t", str(number), 2)
            world.run(0.03)
        world.network.lags.clear()
        world.finish()
        return world.oracle.missing(client)


def test_nothing_is_lost_while_a_split_heals_in_parts() -> None:
    for seed in range(3):
        assert heal_in_parts(seed) == []


def test_without_waiting_for_all_to_have_heard_something_is_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def release(
        self: ClusterRoutes, slot: int, store: int, by: int, *_: int | SubscribeBarrier
    ) -> None:
        for each, stores in list(self._said.get(slot, {}).items()):
            if store in stores and by in stores:
                self._take_back(slot, store, each)

    monkeypatch.setattr(ClusterRoutes, "_release", release)
    assert any(heal_in_parts(seed) for seed in range(3))


NAMES = "abcde"


def gaps(world: World) -> list[tuple[float, str, str]]:
    """Nodes that let clients in and keep nothing for a session: when, which, and whose."""
    found = []
    for node in world.running():
        targets = dict(node.slots.fronts.targets("", "t")[0]) if node.is_open else range(SLOTS)
        without = [each for each in world.oracle.wanted if slot_of(each, SLOTS) not in targets]
        found += [(world.now, node.name, each) for each in without]
    return found


def upheavals(seed: int) -> Iterator[tuple[float, str, str]]:
    """All nodes are killed at once, or some, and start; and one is cut off for a while: slots go to and fro."""
    with World(seed, *NAMES, replicas=2) as world:
        random = world.random
        for number in range(12):
            world.subscriber(f"s{number}", random.choice(NAMES))
        for _ in range(4):
            world.choose_lags()
            dead = random.sample(NAMES, random.choice((1, 2, 3, 4, 5, 5, 5, 5)))
            world.kill(*dead)
            for name in dead:
                world[name].start()
                world.run(random.choice((0.0, 0.0, 0.05, 0.3, 1.0, 2.5)))
            one = random.choice(NAMES)
            cut, heal = (world.now + each for each in (random.uniform(0, 4), random.uniform(6, 10)))
            while world.now < heal + 2:
                world.run(0.01)
                yield from gaps(world)
                if cut < world.now:
                    world.network.split(one, [each for each in NAMES if each != one])
                    cut = heal + 9
                elif heal < world.now:
                    world.network.heal()


@over_seeds(1)
def test_no_node_is_without_a_route_while_slots_go_to_and_fro(seed: int) -> None:
    assert list(upheavals(seed)) == []


_release = ClusterRoutes._release


def _by_any_epoch(
    self: ClusterRoutes, slot: int, store: int, by: int, _: int, barrier: SubscribeBarrier
) -> None:
    _release(self, slot, store, by, 0, barrier)


def _in_reach(self: SubscribeBarrier) -> set[str]:
    return set(self._up)


@pytest.mark.parametrize(
    ("part", "seed"),
    [
        ((ClusterRoutes, "_release", _by_any_epoch), 5),
        ((SubscribeBarrier, "_members", _in_reach), 7),
    ],
    ids=["what an owner said before", "who is away"],
)
def test_each_rule_is_needed(part: tuple[type, str, object], seed: int) -> None:
    with switched_off([part], [part[0]]):
        assert next(upheavals(seed), None)

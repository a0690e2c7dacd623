"""Whoever knows of a split late, and of its end in parts, has messages kept for all sessions all the time."""

import pytest

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
        self: ClusterRoutes, slot: int, store: int, by: int, _barrier: SubscribeBarrier
    ) -> None:
        for each, stores in list(self._said.get(slot, {}).items()):
            if store in stores and by in stores:
                self._take_back(slot, store, each)

    monkeypatch.setattr(ClusterRoutes, "_release", release)
    assert any(heal_in_parts(seed) for seed in range(3))

"""Groups of replicas under many faults at once: nothing committed is lost, nothing comes twice."""

import pytest

from tests.simulator.losses import Losses
from tests.simulator.seeds import over_seeds
from tests.simulator.upheaval import go

SEEDS = 4


@pytest.mark.parametrize("durability", ["memory", "os", "fsync"])
@over_seeds(SEEDS)
def test_whatever_happens_acknowledged_rows_are_there_once_in_order(
    durability: str, seed: int
) -> None:
    go(seed, durability, 150)


@over_seeds(2)
def test_where_nothing_is_forgotten_nothing_is_uncertain(seed: int) -> None:
    upheaval = go(seed, "fsync", 150, flip=0.0)
    assert upheaval.sim.verdict.groups["g"].term == 0
    assert len(upheaval.sim.verdict.acks) > 10, "some were acknowledged"


@pytest.mark.parametrize("durability", ["memory", "os", "fsync"])
@over_seeds(SEEDS)
def test_what_is_left_goes_on_by_itself_or_where_an_operator_says_so(
    durability: str, seed: int
) -> None:
    lose(seed, durability)


def test_a_node_that_began_anew_is_waited_for_anew_before_another_goes_on_alone() -> None:
    """It did so within the time in which its silence is noticed, and waits for its own election from then on."""
    lose(42, "fsync")


def lose(seed: int, durability: str) -> None:
    upheaval = Losses(seed, durability, flip=0.08, fail_power=0.06, aim=0.12)
    upheaval.go(150)
    upheaval.end()

"""Runs that follow from a seed.

`VMQ_SIM_SEED=n` runs a test over seeds with that one alone, `VMQ_SIM_FACTOR=20` with twenty times as many. Where sets
of names decide on an order, the same run needs the same PYTHONHASHSEED as well.
"""

import os

import pytest


def seeds(count: int) -> list[int]:
    """So many seeds, or the one that the environment names."""
    chosen = os.environ.get("VMQ_SIM_SEED")
    factor = int(os.environ.get("VMQ_SIM_FACTOR", "1"))
    return [int(chosen)] if chosen else [*range(count * factor)]


def over_seeds(count: int, *more: int) -> pytest.MarkDecorator:
    """Runs a test for each seed, and for those besides that have shown something: its id names them."""
    return pytest.mark.parametrize("seed", [*seeds(count), *more])

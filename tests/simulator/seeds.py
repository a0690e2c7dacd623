"""Runs that follow from a seed.

A test over seeds is wrapped in `over_seeds`; when it fails, it names the seed, and `VMQ_SIM_SEED=that pytest ...` runs
that one alone. `VMQ_SIM_FACTOR=20` runs twenty times as many seeds. Where sets of names decide on an order, the same
run needs the same PYTHONHASHSEED as well, which is named too.
"""

import os
from collections.abc import Callable, Iterator
from types import TracebackType


class Seed:
    """One seed of a test, which names it if it fails within."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __enter__(self) -> int:
        return self.number

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            hashing = os.environ.get("PYTHONHASHSEED", "random")
            error.add_note(f"replay it with VMQ_SIM_SEED={self.number} PYTHONHASHSEED={hashing}")


def each_seed(count: int) -> Iterator[Seed]:
    """So many seeds, or the one that the environment names."""
    chosen = os.environ.get("VMQ_SIM_SEED")
    factor = int(os.environ.get("VMQ_SIM_FACTOR", "1"))
    for number in [int(chosen)] if chosen else range(count * factor):
        yield Seed(number)


def over_seeds(count: int) -> Callable[[Callable[[int], None]], Callable[[], None]]:
    """Runs a test for each seed."""

    def wrap(test: Callable[[int], None]) -> Callable[[], None]:
        def run() -> None:
            for seed in each_seed(count):
                with seed as number:
                    test(number)

        run.__name__ = test.__name__
        run.__doc__ = test.__doc__
        run.__module__ = test.__module__
        return run

    return wrap

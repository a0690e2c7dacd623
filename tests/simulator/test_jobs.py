"""Jobs over several nodes: whatever befalls these, what was promised is kept.

More seeds: `python -m tests.simulator.jobs.run 300`, with `--fault`, `--without`.
"""

import pytest

from tests.simulator.jobs.run import KINDS, faulty, run
from tests.simulator.seeds import each_seed


def check(seed: int, kinds: tuple[str, ...], piles: bool = False) -> None:
    found = run(seed, kinds, piles=piles)
    assert faulty(found) == [], dict(found)
    assert found["added"] > 50
    assert found["paged"] > 10 or not piles


def test_without_faults_each_job_is_done_once() -> None:
    for seed in each_seed(2):
        with seed:
            check(seed.number, ())


@pytest.mark.parametrize("kind", KINDS)
def test_no_fault_costs_a_promise(kind: str) -> None:
    for seed in each_seed(1):
        with seed:
            check(seed.number, (kind,))


def test_who_was_not_told_of_another_holder_asks_it_before_it_queues() -> None:
    """Disks are lost, copies made anew at nodes of which the holders know that served meanwhile."""
    check(1, ("wipe",), piles=True)


def test_what_is_paged_out_survives_as_the_rest_does() -> None:
    """Jobs pile up, are paged out, and their nodes die, or leave for good."""
    for kind in ("kill", "leave"):
        check(0, (kind,), piles=True)


def test_all_kinds_of_faults_one_after_the_other() -> None:
    for seed in each_seed(3):
        with seed:
            check(seed.number, KINDS)

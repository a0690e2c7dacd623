"""Jobs over several nodes: whatever befalls these, what was promised is kept.

More seeds: `python -m tests.simulator.jobs.run 300`, with `--fault`, `--without`.
"""

import pytest

from tests.simulator.jobs.run import KINDS, faulty, run
from tests.simulator.seeds import over_seeds


def check(seed: int, kinds: tuple[str, ...], piles: bool = False, publishers: int = 0) -> None:
    found = run(seed, kinds, piles=piles, publishers=publishers)
    assert faulty(found) == [], dict(found)
    assert found["added"] > 50
    assert found["paged"] > 10 or not piles


@over_seeds(1)
def test_without_faults_each_job_is_done_once(seed: int) -> None:
    check(seed, ())


@pytest.mark.parametrize("kind", KINDS)
@over_seeds(1)
def test_no_fault_costs_a_promise(kind: str, seed: int) -> None:
    check(seed, (kind,))


def test_who_was_not_told_of_another_holder_asks_it_before_it_queues() -> None:
    """Disks are lost, copies made anew at nodes of which the holders know that served meanwhile."""
    check(1, ("wipe",), piles=True)


def test_what_is_paged_out_survives_as_the_rest_does() -> None:
    """Jobs pile up, are paged out, and their nodes die, or leave for good."""
    for kind in ("kill", "leave"):
        check(0, (kind,), piles=True)


@pytest.mark.parametrize(
    "seed",
    [
        # A worker acknowledged a job at two nodes in turn that did not have it, while its holder was out of reach.
        972,
        # The same at one node, and the holder was there again long before it was told.
        783,
        # A job was paged out while a copy of it was under way: it was done, and forgotten, before that came.
        931,
        # A dead letter that is queued again was older than its copies.
        1130,
    ],
)
def test_what_seeds_with_dead_letters_have_shown_is_mended(seed: int) -> None:
    found = run(seed, deliveries=2)
    assert faulty(found) == [], dict(found)
    assert found["revived"] > 10


@pytest.mark.parametrize("kinds", [KINDS, ("kill", "split")])
@over_seeds(1)
def test_dead_letters_that_are_queued_again_are_done_whatever_befalls_the_nodes(
    kinds: tuple[str, ...], seed: int
) -> None:
    found = run(seed, kinds, piles=len(kinds) < 3, deliveries=2)
    assert faulty(found) == [], dict(found)
    assert found["revived"] > 10


@over_seeds(2)
def test_all_kinds_of_faults_one_after_the_other(seed: int) -> None:
    check(seed, KINDS)


@pytest.mark.parametrize("kinds", [KINDS, ("kill", "slow"), ()])
@over_seeds(1)
def test_jobs_at_qos_2_are_done_though_their_publishers_go_from_node_to_node(
    kinds: tuple[str, ...], seed: int
) -> None:
    check(seed, kinds, publishers=6)


def test_a_job_that_went_for_another_with_its_key_shares_the_host_of_that() -> None:
    """Two nodes that do not reach each other take a key, and meet; then the host of the one that stays is lost."""
    check(91411, KINDS, piles=True)

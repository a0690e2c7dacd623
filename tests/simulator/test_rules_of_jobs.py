"""Jobs over several nodes: each rule is needed, for without it a promise breaks (`jobs.ablations`)."""

from typing import Any

import pytest

from tests.simulator.jobs.ablations import ABLATIONS
from tests.simulator.jobs.run import faulty, run


@pytest.mark.parametrize("name", ABLATIONS)
def test_without_a_rule_a_promise_breaks(name: str) -> None:
    """In a seed that the rule itself passes."""
    ablation = ABLATIONS[name]
    kinds, seeds = ablation.shown_by
    how: dict[str, Any] = {
        "piles": ablation.piles,
        "is_late": ablation.is_late,
        "publishers": ablation.publishers,
    }
    for seed in seeds:
        with ablation.off():
            broken = run(seed, kinds, **how)
        assert faulty(broken), f"{ablation.meaning}: seed {seed} gets on without: {dict(broken)}"
        kept = run(seed, kinds, **how)
        assert faulty(kept) == [], dict(kept)

"""Durable sessions in slots: each rule is needed, for without it a promise breaks (`sessions.ablations`)."""

from itertools import chain

import pytest

from tests.simulator.sessions.ablations import ABLATIONS
from tests.simulator.sessions.run import faulty, run

#: A change elsewhere may move the seed that shows an ablation: these are tried, too.
MORE = range(60)


@pytest.mark.parametrize("name", [name for name, each in ABLATIONS.items() if each.script])
def test_without_a_rule_a_promise_breaks_in_a_schedule_by_hand(name: str) -> None:
    """With it none does: `test_sessions`."""
    ablation = ABLATIONS[name]
    assert ablation.script is not None
    with ablation.off():
        assert faulty(ablation.script(), strict=True)


@pytest.mark.parametrize("name", [name for name, each in ABLATIONS.items() if each.shown_by[1]])
def test_without_a_rule_a_promise_breaks(name: str) -> None:
    """A seed that the rule itself passes."""
    ablation = ABLATIONS[name]
    (kinds, seeds), strict, narrow = ablation.shown_by, ablation.strict, ablation.narrow
    most = 1 if strict else 3
    for seed in chain(seeds, MORE):
        with ablation.off():
            broken = run(seed, kinds, strict, most=most, narrow=narrow)
        if faulty(broken, strict):
            kept = run(seed, kinds, strict, most=most, narrow=narrow)
            assert faulty(kept, strict) == [], f"seed {seed}: {kept}"
            return
    pytest.fail(f"nothing broke without: {ablation.meaning}")

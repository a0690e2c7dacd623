"""Groups of replicas: each rule is needed, for without it a promise breaks (`tests.simulator.ablations`)."""

import pytest

from tests.simulator.ablations import ABLATIONS
from tests.simulator.upheaval import go

#: A change elsewhere may move the seed that shows an ablation: the next ones are tried, too.
MORE = 60


@pytest.mark.parametrize("name", ABLATIONS)
def test_each_rule_is_needed(name: str) -> None:
    rule = ABLATIONS[name]
    with rule.off():
        for seed in range(rule.seed, rule.seed + MORE):
            try:
                go(seed, rule.durability, rule.steps, **rule.faults)
            except AssertionError as error:
                if "not so after" not in str(error):
                    return
    pytest.fail(f"nothing broke without: {rule.rule}")

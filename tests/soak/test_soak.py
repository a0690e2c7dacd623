"""A broker that is used for long holds no more than one that was used for a while."""

from dataclasses import replace

import pytest

from tests.soak.figures import RULES, Figures, Rule, leaks
from tests.soak.run import soak

#: Until Python's oldest generation is collected for the first times, memory rises.
WARM_UP = 100
ROUNDS = 45

START = Figures(0, 0, 0, 0, 0, sockets=6, files=15, memory=50 << 20, disk=90_000)


@pytest.mark.timeout(300)
def test_nothing_grows() -> None:
    """Some 9,000 connections, 800 durable sessions and 2,900 retained messages come and go."""
    with soak(WARM_UP) as found:
        for _ in range(WARM_UP + ROUNDS):
            found.play_round()
        assert found.verdict() == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_what_creeps_is_a_leak(rule: Rule) -> None:
    """Each figure for itself, alone."""
    step = rule.allowance // 50 + 1
    start = getattr(START, rule.name)
    history = [replace(START, **{rule.name: start + each * step}) for each in range(90)]
    (found,) = leaks(history)
    assert found.startswith(f"{rule.name} grew by ")

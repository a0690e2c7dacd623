"""What no copy has whole, among all other faults: given up by an operator, it keeps no copy from being made."""

from typing import Any

import pytest

from tests.simulator import holes
from tests.simulator.seeds import seeds
from tests.simulator.switched_off import switched_off
from vmq_cluster.raft import following
from vmq_cluster.raft.holes import GivingUp, blanks
from vmq_cluster.raft.replica import Replica

SEEDS = 2
#: One in which something is given up, whatever a disk keeps.
GIVEN_UP = 38
#: Seeds that show a rule; a change elsewhere may move them: others are tried, too.
KNOWN = {
    "nothing is given up before all have been asked": (9,),
    "blanks are put where that is committed": (106, 400),
    "who was a member is asked as well": (3,),
}
MORE = 60


@pytest.mark.parametrize("durability", ["memory", "os", "fsync"])
def test_all_copies_are_there_again_once_nobody_has_what_is_given_up(
    durability: str, subtests: pytest.Subtests
) -> None:
    given_up = 0
    for seed in (*seeds(SEEDS), GIVEN_UP):
        with subtests.test(seed=seed):
            given_up += holes.go(seed, durability, 150).given_up
    assert given_up, "something was"


def _fill_early(replica: Replica) -> None:
    """As soon as it is in the log."""
    for first, end in list(replica.log.damage):
        if any(begin <= first < behind for begin, behind, _ in replica.state.holes):
            replica.log.mend(blanks(replica.log, replica.state, first, end))


def _ask_members(self: Replica) -> list[str]:
    return [name for name in self.members.all if name != self.name]


RULES: dict[str, list[tuple[Any, str, Any]]] = {
    "nothing is given up before all have been asked": [
        (GivingUp, "_objection", lambda self, first, now: "")
    ],
    "blanks are put where that is committed": [(following, "fill", _fill_early)],
    "who was a member is asked as well": [(Replica, "others", property(_ask_members))],
}


@pytest.mark.parametrize("name", RULES)
def test_each_rule_is_needed(name: str) -> None:
    with switched_off(RULES[name], [GivingUp, Replica]):
        for seed in (*KNOWN.get(name, ()), *range(MORE)):
            try:
                holes.go(seed, ("memory", "os", "fsync")[seed % 3], 150)
            except AssertionError as error:
                if "not so after" not in str(error):
                    return
    pytest.fail(f"nothing broke without: {name}")

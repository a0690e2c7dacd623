"""Whether a node knows what the others of its cluster know, and who of them may have something to say yet."""

import asyncio
from collections.abc import Callable, Set
from typing import Final

from vmq_cluster.metadata.exchange import ASKED_AT_ONCE
from vmq_cluster.node import ClusterNode

#: Seconds between two looks whether other nodes have answered.
LOOK: Final = 0.05


def has_heard(node: ClusterNode, siblings: Set[str]) -> bool:
    """Whether a node knows what others know: those named, or as many as are asked at once of those that are up."""
    machine = node.machine
    heard = machine.exchange.complete
    # Of many only some are asked at once; what they know, the others have told them.
    if not siblings:
        up = set(node.up)
        alone = not machine.membership.others and not machine.contacts
        return alone or (bool(up) and len(heard & up) >= min(len(up), ASKED_AT_ONCE))
    return siblings <= set(node.up) and len(heard & siblings) >= min(len(siblings), ASKED_AT_ONCE)


def when_heard(node: ClusterNode, then: Callable[[], object]) -> None:
    """Calls back when a node knows what others know, unless it stops before."""
    if not node.is_running and not node.is_failing:
        return
    if node.is_running and has_heard(node, frozenset()):
        then()
    else:
        asyncio.get_running_loop().call_later(LOOK, when_heard, node, then)

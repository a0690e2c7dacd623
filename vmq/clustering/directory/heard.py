"""Whether a node knows what the others of its cluster know, and who of them may have something to say yet."""

from collections.abc import Callable, Set
from typing import Final

from vmq_cluster.effects import PeerUp
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


class PeersExpected:
    """The nodes that are up, and those that may be about to come up.

    After a start, or a split, one comes up before the other, and who has the only copy of something may be the last.

    Args:
        node: this one.
        seconds: for how long after one has come up others may.
        now: the time in seconds.
    """

    def __init__(self, node: ClusterNode, seconds: float, now: Callable[[], float]) -> None:
        self._node = node
        self._seconds = seconds
        self._now = now
        self._until = 0.0
        node.on(PeerUp, self._on_up)

    def _on_up(self, _effect: PeerUp) -> None:
        self._until = self._now() + self._seconds

    def expected(self) -> list[str]:
        """Those that are up, or all other members while more may be about to."""
        node = self._node
        if self._now() < self._until:
            return [each for each in node.members if each != node.name]
        return node.up

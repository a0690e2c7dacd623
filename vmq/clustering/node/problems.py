"""What is wrong around a node, for `/health`: it works, in part or less safely than it is to."""

from collections.abc import Iterator

from vmq.clustering.node.joining import Joining, taken_out
from vmq_cluster.node import ClusterNode


class ClusterProblems:
    """Looks when somebody asks.

    Args:
        joining: what this node hears of its place among others.
    """

    def __init__(self, joining: Joining) -> None:
        self._joining = joining

    def of(self, node: ClusterNode) -> Iterator[str]:
        """What is wrong around a node that runs."""
        if self._joining.lost:
            yield self._joining.lost
        elif self._joining.excluded_by:
            yield taken_out(self._joining.excluded_by)
        away = sorted(node.machine.detector.down)
        if away:
            yield f"members of the cluster that cannot be reached: {', '.join(away)}"

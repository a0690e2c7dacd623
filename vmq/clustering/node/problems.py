"""What is wrong around a node, for `/health`: it works, in part or less safely than it is to."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from vmq.clustering.node.joining import Joining
from vmq_cluster.node import ClusterNode

if TYPE_CHECKING:
    from vmq.clustering.replication.service import Replication


class ClusterProblems:
    """Looks when somebody asks.

    Args:
        joining: what this node hears of its place among others.
        clock: seconds.
        patience: seconds for which copies may lack something before that is told: they catch up all the time.
    """

    def __init__(self, joining: Joining, clock: Callable[[], float], patience: float) -> None:
        self._joining = joining
        self._clock = clock
        self._patience = patience
        #: Since when copies on other nodes lack something, as far as anybody looked.
        self._lagging_since: float | None = None

    def of(self, node: ClusterNode, replication: "Replication | None") -> Iterator[str]:
        """What is wrong around a node that runs."""
        if self._joining.excluded_by:
            yield f"this node was taken out of the cluster by {self._joining.excluded_by}"
        away = sorted(node.machine.detector.down)
        if away:
            yield f"members of the cluster that cannot be reached: {', '.join(away)}"
        yield from self._lagging(replication)

    def _lagging(self, replication: "Replication | None") -> Iterator[str]:
        replicas = None if replication is None else replication.replicas
        lagging = {} if replicas is None else replicas.lagging_by_peer()
        now = self._clock()
        if not lagging:
            self._lagging_since = None
        elif self._lagging_since is None:
            self._lagging_since = now
        elif now - self._lagging_since >= self._patience:
            what = ", ".join(f"{count} at {name or 'no node'}" for name, count in lagging.items())
            yield f"copies of durable sessions that lack something: {what}"

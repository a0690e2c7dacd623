"""Publishes under way in a running broker: what others keep for it, and what it keeps for others."""

from collections.abc import Callable, Iterator

from vmq.clustering.delivery.outboxes import Lanes
from vmq.clustering.directory.directory import Directory
from vmq.clustering.hinted_handoff.hints_in import Safekeeping
from vmq.clustering.hinted_handoff.hints_out import Deposits
from vmq.clustering.messages.publishes import Publish
from vmq.clustering.messages.replication import AskTaken, Deposit, Given, IsTaken, Settled
from vmq.clustering.messages.takeover import Batch
from vmq.config.cluster import ClusterOptions
from vmq.core.context import Core
from vmq.runtime.metrics import Family, Sample
from vmq.store.store import Store
from vmq_cluster.node import ClusterNode


class Keeping:
    """Both sides of what is kept for nodes that are down (`hinted_handoff.hints_out`, `hinted_handoff.hints_in`).

    Args:
        options: the section [cluster].
        core: the broker's.
        store: the same's.
        node: this node.
        lanes: to the others.
        directory: which node has which session.
        take: gives a session messages, wherever it is.
        share: gives a message of a node for a share group to a member of that.

    Raises:
        StoreError: the store is damaged.
    """

    def __init__(
        self,
        options: ClusterOptions,
        core: Core,
        store: Store,
        node: ClusterNode,
        lanes: Lanes,
        directory: Directory,
        take: Callable[[Batch], None],
        share: Callable[[str, Publish], None],
    ) -> None:
        self._core = core
        self._node = node
        self._lanes = lanes
        self.safekeeping = Safekeeping(
            node.name, store, take, share, lanes.send, lanes.send_quick, options.adopt_after
        )
        self.deposits: Deposits | None = None
        if options.replicas > 1:
            self.deposits = Deposits(
                node.name, options.replicas, options.replica_timeout, lanes, directory
            )

    def start(self) -> None:
        """From now on acknowledgements wait for others, and others' messages are kept."""
        lanes, safekeeping = self._lanes, self.safekeeping
        lanes.on(Deposit, safekeeping.on_deposit)
        lanes.on(Settled, safekeeping.on_settled)
        lanes.on(Given, safekeeping.on_given)
        lanes.on(IsTaken, safekeeping.on_taken)
        lanes.on(AskTaken, self._on_ask_taken)
        if self.deposits is not None:
            lanes.stand_in = self.deposits
            self._core.wait_for_nodes = lanes.wait_for_all

    def stop(self) -> None:
        """Nobody waits any more."""
        self._lanes.stand_in = None

    def peer_up(self, peer: str) -> None:
        """A member can be reached."""
        self.safekeeping.peer_up(peer)
        if self.deposits is not None:
            self.deposits.peer_up(peer)

    def set_members(self) -> None:
        """Others are members than before."""
        if self.deposits is not None:
            self.deposits.set_members(set(self._node.members) - {self._node.name})
            for peer in sorted(self._lanes.up):
                self.deposits.peer_up(peer)

    def step(self, now: float) -> bool:
        """To be called a few times a second; returns whether there is more to do now."""
        node = self._node
        if self.deposits is not None:
            self.deposits.tick(now)
        if not node.is_running or not node.machine.membership.belongs:
            return False  # of those who took this one out nobody is gone
        self.safekeeping.doubt(lambda origin: self._lanes.known(origin).name)
        return self.safekeeping.step(node.members, node.up, now)

    def _on_ask_taken(self, peer: str, message: AskTaken) -> None:
        if message.origin == self._node.name:
            if self.deposits is not None:
                self.deposits.tell(peer)
            else:
                self._lanes.send(peer, Settled(self._lanes.store_name, []))
            return
        place = self._lanes.arrivals.last_taken(message.origin, message.store)
        self._lanes.send_quick(peer, IsTaken(message.origin, message.store, *place))

    def families(self) -> Iterator[Family]:
        """The figures of it."""
        deposited = 0 if self.deposits is None else self.deposits.deposited
        yield Family(
            "replicas_deposited",
            "counter",
            "Messages of QoS 1 and 2 that others were asked to keep, for they waited for a node that was down.",
            (Sample((), deposited),),
        )
        yield Family(
            "replicas_given",
            "counter",
            "Messages that were kept for a node which is lost and went on to sessions, counted for each.",
            (Sample((), self.safekeeping.given),),
        )

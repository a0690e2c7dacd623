"""Publishes under way in a running broker: what others keep for it, and what it keeps for others."""

from collections.abc import Callable, Iterator

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.directory.directory import Directory
from vmq.clustering.hinted_handoff.hints_in import HintsIn
from vmq.clustering.hinted_handoff.hints_out import HintsOut
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.replication import (
    AskTaken,
    HintsHandedOver,
    HintsNeeded,
    IsTaken,
    KeepHints,
)
from vmq.clustering.messages.takeover import SessionBatch
from vmq.config.cluster import ClusterOptions
from vmq.core.context import Core
from vmq.runtime.metrics import Family, Sample
from vmq.store.store import Store
from vmq_cluster.node import ClusterNode


class HintedHandoff:
    """Both sides of what is kept for nodes that are down (`hinted_handoff.hints_out`, `hinted_handoff.hints_in`).

    Args:
        options: the section [cluster].
        core: the broker's.
        store: the same's.
        node: this node.
        outboxes: to the others.
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
        outboxes: Outboxes,
        directory: Directory,
        take: Callable[[SessionBatch], None],
        share: Callable[[str, RemotePublish], None],
    ) -> None:
        self._core = core
        self._node = node
        self._outboxes = outboxes
        self.safekeeping = HintsIn(
            node.name, store, take, share, outboxes.send, outboxes.send_quick, options.adopt_after
        )
        self.deposits: HintsOut | None = None
        if options.replicas > 1:
            self.deposits = HintsOut(
                node.name, options.replicas, options.replica_timeout, outboxes, directory
            )

    def start(self) -> None:
        """From now on acknowledgements wait for others, and others' messages are kept."""
        outboxes, safekeeping = self._outboxes, self.safekeeping
        outboxes.on(KeepHints, safekeeping.on_deposit)
        outboxes.on(HintsNeeded, safekeeping.on_settled)
        outboxes.on(HintsHandedOver, safekeeping.on_given)
        outboxes.on(IsTaken, safekeeping.on_taken)
        outboxes.on(AskTaken, self._on_ask_taken)
        if self.deposits is not None:
            outboxes.stand_in = self.deposits
            self._core.peers = outboxes

    def stop(self) -> None:
        """Nobody waits any more."""
        self._outboxes.stand_in = None

    def peer_up(self, peer: str) -> None:
        """A member can be reached."""
        self.safekeeping.peer_up(peer)
        if self.deposits is not None:
            self.deposits.peer_up(peer)

    def set_members(self) -> None:
        """Others are members than before."""
        if self.deposits is not None:
            self.deposits.set_members(set(self._node.members) - {self._node.name})
            for peer in sorted(self._outboxes.up):
                self.deposits.peer_up(peer)

    def step(self, now: float) -> bool:
        """To be called a few times a second; returns whether there is more to do now."""
        node = self._node
        if self.deposits is not None:
            self.deposits.tick(now)
        if not node.is_running or not node.machine.membership.belongs:
            return False  # of those who took this one out nobody is gone
        self.safekeeping.doubt(lambda origin: self._outboxes.known(origin).name)
        return self.safekeeping.step(node.members, node.up, now)

    def _on_ask_taken(self, peer: str, message: AskTaken) -> None:
        if message.origin == self._node.name:
            if self.deposits is not None:
                self.deposits.tell(peer)
            else:
                self._outboxes.send(peer, HintsNeeded(self._outboxes.store_name, []))
            return
        place = self._outboxes.arrivals.last_taken(message.origin, message.store)
        self._outboxes.send_quick(peer, IsTaken(message.origin, message.store, *place))

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

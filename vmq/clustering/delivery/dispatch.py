"""The way of batches: into a commit of the store, then to their peer, and out of the store when the peer has them.

Nothing leaves before it is committed: a peer must not have what this broker, started again, would take anew from its
publisher. What passes the store by is told in `vmq.clustering.delivery.passing`.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from vmq.clustering.delivery.outbox import PeerOutbox
from vmq.clustering.messages.codec import address
from vmq.core.context import Core
from vmq.core.on_commit import OnCommit
from vmq_cluster.effects import Acknowledged, Resumed
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

#: Seconds that a record which a peer has confirmed may wait for a commit to be deleted with.
TIDY_AFTER: Final = 0.1
#: Seconds until the store is read again that could not be.
READ_AGAIN: Final = 1.0


class BatchDispatch:
    """The way of batches between outboxes, store and peers.

    Args:
        core: the broker's, with its store.
        node: this node.
        outboxes: by peer; others come and go.
        low: bytes of an outbox at which its publishers read on.
    """

    def __init__(
        self, core: Core, node: ClusterNode, outboxes: dict[str, PeerOutbox], low: int
    ) -> None:
        assert core.store is not None, "a node has a store"
        self._core = core
        self._store = store = core.store
        self._node = node
        self._outboxes = outboxes
        self._low = low
        #: Those with something that the next commit has to have whole.
        self._changed: set[PeerOutbox] = set()
        self._is_tidy_due = False
        #: Those that could not be read, and are read again.
        self._unreadable: set[PeerOutbox] = set()
        #: What has to wait for the store, the streams' and the replicas' gates included; and for the disk.
        self._safe = OnCommit(core.outbox, store)
        self._disk = OnCommit(core.outbox, store, on_disk=True)
        node.on(Acknowledged, self._on_acknowledged)
        node.on(Resumed, lambda _: self._on_resumed())

    def after(self, act: Callable[[], None]) -> None:
        """Does something when all that is in the store now is safe."""
        self._safe.after(act)

    def changed(self, outbox: PeerOutbox) -> None:
        """What waits is another: the next commit has to know how much it is."""
        self._changed.add(outbox)

    def before_commit(self) -> None:
        """Puts everything into the commit that belongs to it; to be called before each."""
        for outbox in self._changed:
            outbox.tidy()
            outbox.seal()
            outbox.save_total()
        self._changed.clear()

    def begin(self, outbox: PeerOutbox) -> None:
        """An outbox has a new batch: it goes into this commit, and then to the peer."""
        key = outbox.key
        self._changed.add(outbox)
        if self._store.acknowledge_early:
            self._safe.after(partial(self._on_safe, outbox, key))
            self._disk.after(partial(self._on_written, outbox, key))
        else:  # what is safe is written
            self._safe.after(partial(self._on_written, outbox, key))

    def _on_safe(self, outbox: PeerOutbox, key: bytes) -> None:
        outbox.seal()  # where nobody waits for commits
        outbox.safe(key)
        self.hand_over(outbox)

    def _on_written(self, outbox: PeerOutbox, key: bytes) -> None:
        if not self._store.acknowledge_early:
            outbox.safe(key)
        outbox.written(key)
        self.hand_over(outbox)

    def hand_over(self, outbox: PeerOutbox) -> None:
        """What this store has may go."""
        if not outbox.is_open:
            return
        if not self._node.is_running:
            outbox.settle()  # the node fails, and nobody tells of its peers
            return
        try:
            for entry in outbox.take():
                parcel = address(entry.payload, outbox.target, outbox.hurries(entry))
                self._node.send(outbox.peer, parcel, entry)
        except ClusterError:
            return  # it is no member any more, which `Outboxes` is about to hear
        except Exception:
            if outbox not in self._unreadable:
                log.exception("cannot read what waits for %s; it is tried again", outbox.peer)
                self._read_later(outbox)

    def _read_later(self, outbox: PeerOutbox) -> None:
        """Has an outbox read again after a while: once, however often it is found unreadable until then."""
        if self._core.call_later is not None:
            self._unreadable.add(outbox)
            self._core.call_later(READ_AGAIN, partial(self._read_again, outbox))

    def _read_again(self, outbox: PeerOutbox) -> None:
        self._unreadable.discard(outbox)
        self.hand_over(outbox)
        self._core.outbox.flush()

    def _on_resumed(self) -> None:
        for outbox in list(self._outboxes.values()):
            self.hand_over(outbox)

    def _on_acknowledged(self, effect: Acknowledged) -> None:
        outbox = self._outboxes.get(effect.peer)
        if outbox is None:
            return
        for entry in effect.tickets:
            outbox.confirm(entry)
        self.tidy_soon(outbox)
        if outbox.size <= self._low:
            outbox.resume()
        self.hand_over(outbox)
        self._core.outbox.flush()

    def tidy_soon(self, outbox: PeerOutbox) -> None:
        """What is gone is deleted with the next commit, which is soon where there is traffic, or else is made."""
        self._changed.add(outbox)
        call_later = self._core.call_later
        if call_later is None:
            self.tidy()
        elif not self._is_tidy_due:
            self._is_tidy_due = True
            call_later(TIDY_AFTER, self.tidy)

    def tidy(self) -> None:
        """Deletes what peers have confirmed."""
        self._is_tidy_due = False
        for outbox in self._changed:
            outbox.tidy()

    async def on_disk(self) -> None:
        """Returns when all that waits can be read from the disk."""
        is_there = asyncio.Event()
        self._disk.after(is_there.set)
        self._core.outbox.flush()
        await is_there.wait()

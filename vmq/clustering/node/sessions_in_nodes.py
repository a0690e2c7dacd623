"""Durable sessions with `cluster.sessions = "nodes"`: each has a node, and what it takes that it outlives that."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.heard import LOOK, has_heard
from vmq.clustering.directory.records import Record
from vmq.clustering.hinted_handoff.redirect import Redirect
from vmq.clustering.messages.takeover import Who
from vmq.clustering.replication.service import Replication
from vmq.clustering.routing.routing import Routing
from vmq.clustering.streams.service import Streams
from vmq.clustering.takeover.takeover import Takeover
from vmq.config.cluster import ClusterOptions
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq.persistence.group_commit import Committer
from vmq.runtime.metrics import Family
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")


class SessionsInNodes:
    """Sessions move with their clients, have copies, and go on elsewhere when their node stays away.

    Args:
        options: the section [cluster].
        core: the broker's.
        committer: writes the core's store.
        node: this one.
        outboxes: messages to other nodes and from them.
        directory: which node has which session.
        routing: where publishes go.
        streams: which node keeps what of which stream.
        registries: the topic trees that there are.
        find_registry: the topic tree of a mountpoint, made when first asked for.
    """

    def __init__(
        self,
        options: ClusterOptions,
        core: Core,
        committer: Committer,
        node: ClusterNode,
        outboxes: Outboxes,
        directory: Directory,
        routing: Routing,
        streams: Streams,
        registries: Mapping[str, Registry],
        find_registry: Callable[[str], Registry],
    ) -> None:
        self._node = node
        self._outboxes = outboxes
        self.mover = mover = Takeover(core, registries, find_registry, node, outboxes, directory)
        self.replication = replication = Replication(
            options,
            core,
            committer,
            node,
            outboxes,
            directory,
            registries,
            find_registry,
            mover.give_deliveries,
            mover.take,
            routing.share,
        )
        mover.replication = replication
        replication.take_back = mover.take_back
        replication.made = mover.made
        routing.passed = mover.passing.passed
        #: What was for nodes that are down goes on with their sessions.
        self.redirect = Redirect(
            outboxes,
            directory,
            mover.take,
            routing.share,
            routing.forget_routes,
            streams,
            options.adopt_after,
        )
        self._restoring: asyncio.Task[None] | None = None

    def start(self, made: Iterable[tuple[Who, Record]], *, was_alone: bool) -> None:
        """Takes part; no client is here yet.

        Args:
            made: sessions of this node that its store lacked, made anew by their records.
            was_alone: it was in no cluster before.
        """
        self.replication.start(was_alone)
        self.mover.start(made)
        node = self._node
        self.redirect.start(node.members if node.machine.membership.belongs else ())

    def expect_own(self) -> None:
        """Nothing is taken from others before it is known what this node had, if it was a member before."""
        self._restores(True)
        self._restoring = asyncio.get_running_loop().create_task(self._restore())

    def _restores(self, does: bool) -> None:
        self.mover.is_restoring = does
        if self.replication.replicas is not None:
            self.replication.replicas.is_restoring = does

    async def _restore(self) -> None:
        node = self._node
        while node.is_running:
            if node.up and has_heard(node, frozenset()):
                break
            await asyncio.sleep(LOOK)
        try:
            await self.mover.bring_back()
        except Exception:  # a store that fails, or a defect: others' messages must not wait for it
            log.exception("cannot bring back all sessions from before the store was lost")
        self._restores(False)
        self._outboxes.open()

    async def stop(self) -> None:
        """Takes part no more."""
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])
            self._restoring = None
        await self.redirect.stop()
        self.mover.stop()
        await self.replication.stop()

    def families(self) -> Iterator[Family]:
        """The figures of all that."""
        yield from self.mover.families()
        yield from self.replication.families()

"""The broker's cluster node: its start and stop, what an operator asks of it, and its figures."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from vmq.clustering.delivery.drained import say_drained
from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.delivery.redirect import Redirect
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.heard import when_heard
from vmq.clustering.directory.reconcile import Reconciler
from vmq.clustering.directory.records import RETAINED, SUBSCRIBERS
from vmq.clustering.messages.codec import VERSIONS
from vmq.clustering.node.admission import LEAVES, Admission
from vmq.clustering.node.bans import ClusterBans
from vmq.clustering.node.job_links import ClusterJobLinks
from vmq.clustering.node.joining import Joining
from vmq.clustering.node.key import key_of
from vmq.clustering.node.leaving import NodeLeaving, say_farewell
from vmq.clustering.node.left_wills import LeftWills
from vmq.clustering.node.metrics import counter_families, link_families
from vmq.clustering.node.recovery import Recovery
from vmq.clustering.node.session_questions import SessionQuestions
from vmq.clustering.node.storage_files import open_storage as open_whole
from vmq.clustering.node.takeover import ClientTakeover
from vmq.clustering.node.wills import ClusterWills
from vmq.clustering.routing.late_retained import LateRetained
from vmq.clustering.routing.retained import ClusterRetained
from vmq.clustering.routing.routing import Routing
from vmq.clustering.routing.subscribe_barrier import BarrierPropagation, SubscribeBarrier
from vmq.clustering.running.disk import SlotDisk
from vmq.clustering.running.migration import Migration, end_migration, migrate
from vmq.clustering.running.routes import SLOT_ROUTES
from vmq.clustering.running.service import SlotService
from vmq.clustering.streams.service import Streams
from vmq.config.cluster import ClusterOptions, slots_folder
from vmq.core.context import Core
from vmq.core.ports import Peers, Propagation, SessionListener
from vmq.core.registry import Registry
from vmq.persistence.group_commit import Committer
from vmq.runtime.banning import Banning
from vmq.runtime.metrics import Family
from vmq.store.store import StoreError
from vmq_cluster.effects import MembersChanged, PeerDown, PeerUp, Resumed, Unreadable
from vmq_cluster.errors import ClusterError
from vmq_cluster.leveldb import LevelStorage
from vmq_cluster.node import ClusterNode
from vmq_cluster.options import Options
from vmq_cluster.rollcall import STOPPED
from vmq_cluster.surroundings import Surroundings

if TYPE_CHECKING:
    from vmq.streams.catalog import Catalog

log = logging.getLogger("vmq.cluster")


def node_name(options: ClusterOptions) -> str:
    """The name of this node: the configured one, or the machine's."""
    return options.node_name or socket.gethostname()


class Clustering:
    """This broker as a node.

    Args:
        options: the section [cluster], with `listen` set.
        folder: the node's own; made when missing.
        core: the broker's.
        committer: writes the core's store.
        registries: the topic trees that there are.
        find_registry: the topic tree of a mountpoint, made when first asked for.
        open_catalog: opens the streams of a broker that has none; raises RuntimeError where it cannot.
        banning: the broker's bans.
        open_storage: opens what the node keeps in its folder, and what it has of slots.
        world: what the node sees of its machine, if that is not this one.
        turn_away: closes all connections of clients, for a reason.
        nearby: Unix sockets of nodes of this machine, this one's too, by name.
        durability: as `store.durability`.
        data_dir: where slots are, if not beside `folder`.
    """

    def __init__(
        self,
        options: ClusterOptions,
        folder: Path,
        core: Core,
        committer: Committer,
        registries: Mapping[str, Registry],
        find_registry: Callable[[str], Registry],
        open_catalog: "Callable[[], Catalog]",
        banning: Banning | None = None,
        open_storage: Callable[[Path], LevelStorage] = open_whole,
        world: Surroundings | None = None,
        turn_away: Callable[[str], None] = lambda _reason: None,
        nearby: Mapping[str, str] | None = None,
        durability: str = "os",
        data_dir: Path | None = None,
    ) -> None:
        self._durability = durability
        self._data_dir = data_dir or folder.parent
        self._open_storage = open_storage
        self._world = world
        self._nearby = nearby
        self.options = options
        self._folder = folder
        self._core = core
        self._committer = committer
        self._registries = registries
        self._find_registry = find_registry
        self._outboxes: Outboxes | None = None
        self._directory: Directory | None = None
        self._routing: Routing | None = None
        self._fencing: SubscribeBarrier | None = None
        self._open_catalog = open_catalog
        self._banning = banning
        self._streams: Streams | None = None
        self._job_links: ClusterJobLinks | None = None
        #: Ends what has a part in the cluster, the last that began first.
        self._ending = AsyncExitStack()
        self._wills: ClusterWills | None = None
        self._sessions: SessionQuestions | None = None
        self._node: ClusterNode | None = None
        self._storage: LevelStorage | None = None
        #: Durable sessions.
        self.slots: SlotService | None = None
        self._migration: Migration | None = None
        #: Asks other nodes to take this one in.
        self.joining = Joining(node_name(options), lambda: self.node)
        #: Lets clients in or not, once it is started.
        self.admission = Admission(core, self.joining, lambda: self.node, options.alone, turn_away)
        #: What is done about a storage that could not be read.
        self.recovery = Recovery(folder, open_storage)
        #: A member that was up is down, and not all are up again since.
        self._is_split = False
        self._splits = 0
        self._heals = 0

    # --- its life

    async def start(self, catalog: "Catalog | None" = None) -> None:
        """Takes part in the cluster that the node knows, or asks to be taken into the configured one.

        Args:
            catalog: the broker's streams, if it has any.

        Raises:
            ClusterError: the key, the folder or the address cannot be used.
        """
        options = self.options
        self.joining.key = key = key_of(options.key_file)
        self._storage = self._open_storage(self._folder)
        node: ClusterNode | None = None
        try:
            node = ClusterNode(
                node_name(options),
                options.listen,
                self._storage,
                key=key,
                advertise=options.advertise,
                options=_link_options(options),
                versions=VERSIONS._replace(alike=options.slots, what="cluster.slots"),
                world=self._world,
                nearby=self._nearby,
            )
            self._listen_to(node, self._storage)
            self._outboxes = outboxes = Outboxes(
                self._core, node, options.buffer_bytes, ack_remote=options.ack_after == "remote"
            )
            # It stays when the node stops: what was sent until then belongs into the last commits.
            self._committer.sealing.append(outboxes.dispatch.before_commit)
            self._routing = Routing(node.name, self._core, self._registries, outboxes)
            host = min(self._nearby) if self._nearby else options.host
            given = self._core, outboxes, self._open_catalog, bool(options.join), host
            self._streams = Streams(node, *given)
            self._streams.replicas.buffer_bytes = options.leader_buffer_bytes
            self._job_links = ClusterJobLinks(
                node, outboxes, options.host, self.joining, self.leave
            )
            self.slots = self._open_slots(node, outboxes, self._routing, self._streams)
            self._streams.replicas.clock = self.slots.status.clocks.time
            await self._save_life()
            await node.start()
            left = LeftWills(self._data_dir, node, self._core, outboxes, self._find_registry)
        except BaseException as error:
            if node is not None:
                await node.stop()
            await self._close_slots()
            self._close_storage()
            if isinstance(error, StoreError):
                raise ClusterError(str(error)) from None
            raise
        self._node = node
        say_drained(node, False)
        self._take_part(node, self._routing, self.slots, left)
        await end_migration(self._migration, self._committer)
        self._streams.start(catalog)
        self._tell_who_is_up()
        log.info("cluster node name=%s address=%s", node.name, node.address)
        self.joining.join_configured(options.join)

    def _open_slots(
        self, node: ClusterNode, outboxes: Outboxes, routing: Routing, streams: Streams
    ) -> SlotService:
        """Raises `ClusterError`, `StorageError`: the records of slots cannot be used."""
        records = None if self._durability == "memory" else slots_folder(self._data_dir)
        disk = SlotDisk(records, self._durability, self._open_storage)
        random = None if self._world is None else self._world.random
        parts = node, self._core, outboxes, routing, self._registries, streams.replicas
        return SlotService(self.options, disk, *parts, random)

    def _take_part(
        self, node: ClusterNode, routing: Routing, slots: SlotService, left: LeftWills
    ) -> None:
        """Sessions are known everywhere, and publishes go where they are wanted; no client is here yet."""
        core, outboxes = self._core, self.outboxes
        loop = asyncio.get_running_loop()
        soon = loop.call_soon
        directory = Directory(node, routing.follow, lambda: int(core.wall_clock() * 1000), soon)
        slots.watch()
        self._directory = directory
        self._ending.callback(directory.flush)
        limit, clocks = self.options.suback_timeout, (core.clock, soon, loop.call_later)
        # Before the barrier: what a wait ends with is still for those who wait.
        retained = ClusterRetained(node, core, self._registries, self._find_registry, soon)
        flushes, prefixes = (directory.flush, retained.flush), (SUBSCRIBERS, SLOT_ROUTES, RETAINED)
        self._fencing = SubscribeBarrier(node, outboxes, flushes, limit, *clocks, prefixes)
        retained.late = LateRetained(node, self._fencing, directory, loop.call_later)
        if self.options.suback_after == "cluster":
            core.propagation = BarrierPropagation(self._fencing, directory)
        is_first = directory.is_new
        routing.set_members(node.members)
        routing.set_up(node.up)
        routing.attach(directory)
        self._ending.callback(routing.detach)
        reconciler = Reconciler(node.name, directory, self._registries, self._find_registry)
        assert core.store is not None
        was_alone = core.store.was_alone()
        self._migration = migrate(slots, core, self._registries, directory)
        reconciler.start()
        node.on(Resumed, lambda _: reconciler.start())
        directory.on_owner(reconciler.on_owner)
        core.sessions = directory
        retained.attach(is_first, was_alone)
        self._ending.callback(retained.detach)
        node.on(Resumed, lambda _: retained.flush())
        if self._banning is not None:
            bans = ClusterBans(node, self._banning)
            bans.attach(is_first, was_alone)
            self._ending.callback(bans.detach)
            node.on(Resumed, lambda _: bans.attach(True, False))
        if was_alone:
            core.store.forget_alone()
        self._flush_before_commits(flushes)
        takeover = ClientTakeover(core, self._registries, node, outboxes, directory)
        takeover.start()
        self._ending.callback(takeover.stop)
        redirect = Redirect(outboxes, routing.share, self.streams)
        redirect.start(node.members if node.machine.membership.belongs else ())
        self._ending.push_async_callback(redirect.stop)
        self._sessions = SessionQuestions(outboxes, self._registries, slots)
        patience, rank = self.options.heartbeat_timeout, slots.keepers_of
        self._wills = wills = ClusterWills(
            node, core, outboxes, directory, left, self._find_registry, patience, rank
        )
        wills.start()
        self._ending.callback(wills.stop)
        slots.start(self._fencing)
        # With a disk that is new it hears first what it had: rows that waited for it go behind those.
        when_heard(node, outboxes.open) if is_first else outboxes.open()

    def _flush_before_commits(self, flushes: Iterable[Callable[[], None]]) -> None:
        """What the store holds of a session or a topic, the metadata never lack."""
        node = self._node
        assert self._storage is not None and node is not None
        before, before_sync = self._committer.before, self._committer.before_sync
        for flush in (self._storage.mend, *flushes, node.flush, node.check_stored):
            before.append(flush)
            self._ending.callback(before.remove, flush)
        before_sync.append(self._storage.sync)
        self._ending.callback(before_sync.remove, self._storage.sync)

    @property
    def name(self) -> str:
        """The name of this node."""
        return node_name(self.options)

    @property
    def is_running(self) -> bool:
        """Whether the node takes part."""
        return self._node is not None and self._node.is_running

    @property
    def directory(self) -> Directory:
        """Which node has which session."""
        assert self._directory is not None, "the node is not started"
        return self._directory

    @property
    def outboxes(self) -> Outboxes:
        """Messages to other nodes and from them."""
        assert self._outboxes is not None, "the node is not started"
        return self._outboxes

    @property
    def job_links(self) -> ClusterJobLinks:
        """The links, for jobs."""
        assert self._job_links is not None, "the node is not started"
        return self._job_links

    @property
    def sessions(self) -> SessionQuestions:
        """How sessions are that other nodes have."""
        assert self._sessions is not None, "the node is not started"
        return self._sessions

    @property
    def streams(self) -> Streams:
        """Which node keeps what of which stream."""
        assert self._streams is not None, "the node is not started"
        return self._streams

    async def stop(self) -> None:
        """Ends in order; the node stays a member."""
        await self.admission.stop()
        await self.recovery.stop()
        if self.slots is not None and self._node is not None and self._node.is_running:
            await self.slots.hand_over()
        await self._close_slots()
        if self._node is not None and self._node.is_running:
            await say_farewell(self._node, self.outboxes, self._committer)
        if self._streams is not None:
            self._streams.detach()
        if self._job_links is not None:
            self._job_links.questions.stop()
        self._core.sessions = SessionListener()
        self._core.propagation = Propagation()
        await self._ending.aclose()
        self._core.peers = Peers()
        if self._node is not None:
            await self._node.stop()
            self._node = None
        if self._outboxes is not None:
            self._outboxes.dispatch.tidy()
        self._close_storage()

    def begin_wills(self) -> None:
        """Clients come from now on: wills of earlier lives of this node may be published."""
        assert self._wills is not None, "the node is started"
        self._wills.publish_from_before(self._committer)

    async def _save_life(self) -> None:
        """No other node may hear of a life that this one could forget."""
        await self._committer.finish_all()
        assert self._core.store is not None
        if self._core.store.failing:
            raise ClusterError("the store cannot be written")

    async def _close_slots(self) -> None:
        slots, self.slots = self.slots, None
        if slots is not None:
            await slots.stop()

    def _close_storage(self) -> None:
        if self._storage is not None:
            self._storage.close()
            self._storage = None

    # --- what happens to it

    def _listen_to(self, node: ClusterNode, storage: LevelStorage) -> None:
        node.on(PeerUp, self._on_up)
        node.on(PeerDown, self._on_down)
        node.on(MembersChanged, self._on_members)
        node.on(Unreadable, lambda _: self.recovery.begin(storage))
        self.joining.listen_to(node)

    def _on_up(self, effect: PeerUp) -> None:
        log.info("node up name=%s", effect.peer)
        self._tell_who_is_up()
        if self._streams is not None:
            self._streams.on_up()

    def _on_down(self, effect: PeerDown) -> None:
        node = self._node
        if node is None or not node.is_running or effect.peer not in node.members:
            return  # it went for good, and is nobody's loss: `_on_members` tells of it
        level = logging.INFO if effect.reason == STOPPED else logging.WARNING
        log.log(level, 'node down name=%s reason="%s"', effect.peer, effect.reason)
        if self._streams is not None:
            self._streams.on_down(effect.peer)
        self._tell_who_is_up()
        self._splits += not self._is_split
        self._is_split = True

    def _on_members(self, effect: MembersChanged) -> None:
        log.info("members of the cluster: %s", " ".join(sorted(effect.members)))
        if self._routing is not None:
            self._routing.set_members(effect.members)
        if self._streams is not None:
            self._streams.set_members(effect.members)
        self._tell_who_is_up()

    def _tell_who_is_up(self) -> None:
        """Whether some member cannot be reached: also one that has never been, as at the start, or a new one."""
        node = self._node
        if node is not None and node.is_running:
            self._core.cluster_is_split = is_split = len(node.up) + 1 < len(node.members)
            self._heals += self._is_split and not is_split
            self._is_split = self._is_split and is_split
            if self._routing is not None:
                self._routing.set_up(node.up)
            if self._fencing is not None:
                self._fencing.set_up(node.up)

    # --- what an operator may ask

    @property
    def node(self) -> ClusterNode:
        """The node, which takes part.

        Raises:
            ClusterError: it does not, or not any more.
        """
        if self._node is None or not self._node.is_running:
            failure = None if self._node is None else self._node.failure
            raise ClusterError(f"the cluster node does not run: {failure or 'it is stopped'}")
        return self._node

    async def leave(self, timeout: float) -> bool:  # noqa: ASYNC109 - a limit, not an error
        """Leaves the cluster; returns whether the others have all that this node had.

        Partitions of streams and durable sessions go to nodes that are up first. No client is served meanwhile, nor
        afterwards: what came between would be on this node alone.

        Raises:
            ClusterError: the node does not run, or does not belong to the cluster.
        """
        leaving = self.leaving
        await self.admission.turn_elsewhere(LEAVES)
        try:
            has_given = self.slots is None or await self.slots.hand_over(timeout, leaves_host=True)
            return await leaving.leave(timeout) and has_given
        finally:
            await self.admission.turn_elsewhere("")

    @property
    def leaving(self) -> NodeLeaving:
        """How this node leaves.

        Raises:
            ClusterError: it does not run.
        """
        assert self._routing is not None, "the node runs"
        return NodeLeaving(self.node, self.outboxes, self.streams, self._routing)

    # --- what is shown of it

    def problems(self) -> Iterator[str]:
        """Why the node cannot do its work now, or does it less safely than it is to."""
        node = self._node
        if node is not None and node.is_running and not self.admission.reason:
            yield from self.joining.problems(node)
        if self.slots is not None and node is not None and node.is_running:
            yield from self.slots.problems()
        if self._streams is not None:
            yield from self._streams.problems()

    def families(self) -> Iterator[Family]:
        """The figures of the cluster."""
        node, outboxes = self._node, self._outboxes
        if node is None or outboxes is None:
            return
        yield from link_families(node, outboxes)
        fencing, routing = self._fencing, self._routing
        yield from counter_families(
            {
                "netsplit_detected": self._splits,
                "netsplit_resolved": self._heals,
                "cluster_subacks_early": 0 if fencing is None else fencing.given_up,
                "cluster_shared_lost": 0 if routing is None else routing.lost,
            }
        )
        status = None if self.slots is None else self.slots.status
        for part in (self._wills, self._streams, status):
            if part is not None:
                yield from part.families()


def _link_options(options: ClusterOptions) -> Options:
    return Options(
        heartbeat_interval=options.heartbeat_interval,
        heartbeat_timeout=options.heartbeat_timeout,
        dead_node_timeout=options.dead_node_timeout,
    )

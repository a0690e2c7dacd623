"""Replicas of durable sessions in a running broker: the machines, timers and the store's commits."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import plyvel

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.heard import PeersExpected
from vmq.clustering.hinted_handoff.service import HintedHandoff
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.replication import (
    AskCopies,
    Changes,
    ConfirmChanges,
    CopiesFound,
    CopyDiffers,
    CopyLost,
    CopyPart,
    FetchCopy,
    FollowerPosition,
    GreetFollower,
    MissingChanges,
    StillComparing,
    UnknownCopies,
)
from vmq.clustering.messages.takeover import SessionBatch
from vmq.clustering.replication.discovery import CopySearch
from vmq.clustering.replication.failover import Failover, StaleCopySweep
from vmq.clustering.replication.follower import Follower, SessionCopy
from vmq.clustering.replication.healing import Healing
from vmq.clustering.replication.leader import Leader
from vmq.clustering.replication.metrics import replica_families
from vmq.clustering.replication.promotion import contents, note_whence, promote
from vmq.clustering.replication.reconcile_talk import ReconcileTalk
from vmq.config.cluster import ClusterOptions
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq.mqtt.message import Delivery
from vmq.persistence.group_commit import Committer
from vmq.persistence.purging import Purger
from vmq.runtime.metrics import Family
from vmq.store.entries import StoredSession, scope_of, split_scope
from vmq.store.opening import text_of
from vmq.store.store import Store, StoreError
from vmq_cluster.effects import MembersChanged, PeerDown, PeerUp
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

#: Seconds between two looks at the clock.
_TICK: Final = 0.2


class Replication:
    """The copies that other nodes have of this broker's sessions, and those that are here of theirs.

    Args:
        options: the section [cluster].
        core: the broker's, its sessions restored.
        committer: writes the core's store.
        node: this node, which runs.
        outboxes: to the others; of them only what arrives at most once.
        directory: which node has which session.
        registries: the topic trees that there are.
        find_registry: the topic tree of a mountpoint, made when first asked for.
        give: gives a session, by mountpoint and client id, messages that it had elsewhere.
        take: gives a session messages, wherever it is.
        share: gives a message of a node for a share group to a member of that.

    Raises:
        StoreError: the store is damaged.
    """

    def __init__(
        self,
        options: ClusterOptions,
        core: Core,
        committer: Committer,
        node: ClusterNode,
        outboxes: Outboxes,
        directory: Directory,
        registries: Mapping[str, Registry],
        find_registry: Callable[[str], Registry],
        give: Callable[[tuple[str, str], list[Delivery]], None],
        take: Callable[[SessionBatch], None],
        share: Callable[[str, RemotePublish], None],
    ) -> None:
        assert core.store is not None, "a node has a store"
        self._core = core
        self._store: Store = core.store
        self._committer = committer
        self._node = node
        self._outboxes = outboxes
        self._directory = directory
        self._registries = registries
        self._find_registry = find_registry
        self._give = give
        self._now = asyncio.get_running_loop().time
        self._peers = PeersExpected(node, options.heartbeat_timeout, self._now)
        self._work_is_due = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._purger = Purger(self._store, committer)
        #: Clients whose copies are being looked for or made sessions, which somebody may wait for.
        self._searches: dict[str, asyncio.Future[None]] = {}
        #: Makes what is here of a session on its way to another node the session again; False: there is nothing.
        self.take_back: Callable[[tuple[str, str]], bool] = lambda _: False
        #: Told of a session that was made here of a copy, before this node is its owner.
        self.made: Callable[[tuple[str, str]], None] = lambda _: None
        self.adopted = 0
        self.copies = Follower(self._store, outboxes.send_quick, self._purger.add)
        self.searcher = CopySearch(node.name, self._store, self.copies, outboxes.send_quick)
        self.keeping = HintedHandoff(
            options, core, self._store, node, outboxes, directory, take, share
        )
        self.replicas: Leader | None = None
        if options.replicas > 1:
            self.replicas = Leader(
                self._store,
                outboxes.life,
                options.replicas,
                options.replica_timeout,
                options.adopt_after,
                outboxes.send_quick,
                core.outbox.release,
            )
        self.settling = ReconcileTalk(
            node.name, core, committer, outboxes, registries, self.replicas, self._searches.get
        )
        self._healing: Healing | None = None
        if self.replicas is not None:
            parts = (node, core, committer, self.copies, self.searcher, self.replicas)
            self._healing = Healing(*parts, registries, self._restore, give)
        self._sweep = StaleCopySweep(self.copies, self._owner_of)
        self._adoption = Failover(
            node.name,
            self.copies,
            self.searcher,
            options.adopt_after,
            lambda: node.up,
            self._owner_of,
            self._adopt_soon,
        )

    # --- its life

    def start(self, was_alone: bool = False) -> None:
        """From now on sessions are copied, and copies kept.

        `was_alone`: the broker ran without the cluster since it was a node.
        """
        outboxes, replicas = self._outboxes, self.replicas
        outboxes.on(GreetFollower, self.copies.on_greet)
        outboxes.on(Changes, self.copies.on_changes)
        outboxes.on(StillComparing, self.copies.on_still_comparing)
        outboxes.on(AskCopies, self.searcher.on_ask)
        outboxes.on(CopiesFound, self.searcher.on_have)
        outboxes.on(FetchCopy, self.searcher.on_fetch)
        outboxes.on(CopyPart, self._timed(self.searcher.on_part))
        outboxes.on(CopyLost, self.searcher.on_lost)
        for kind, name in (
            (FollowerPosition, "on_position"),
            (ConfirmChanges, "on_confirm"),
            (MissingChanges, "on_missing"),
            (UnknownCopies, "on_unknown"),
            (CopyDiffers, "on_differ"),
        ):
            handle = None if replicas is None else getattr(replicas, name)
            outboxes.on(kind, self._working(handle))
        if replicas is not None:
            for registry in self._registries.values():
                for client_id, subscriber in registry.subscribers.items():
                    if subscriber.queue.durable:
                        offline_at = registry.offline.get(client_id, 0)
                        scoped_id = registry.scope + client_id
                        replicas.add(subscriber.queue.session, scoped_id, offline_at)
            self._committer.before.append(self._before_commit)
        self.settling.start()
        # A plugin may have published already.
        self.settling.guard_places(not was_alone and not self._core.counters.queue_message_in)
        self.keeping.start()
        self._committer.on_stored = self._on_stored
        self._node.on(PeerUp, self._on_up)
        self._node.on(PeerDown, self._on_down)
        self._node.on(MembersChanged, self._on_members)
        self._set_members()
        self._spawn(self._run())
        self._spawn(self._purger.run())
        if self._healing is not None:
            self._healing.guard_places()
            self._spawn(self._healing.run())

    async def stop(self) -> None:
        """Ends; what waits for other nodes is left to them."""
        if self.replicas is not None and self._before_commit in self._committer.before:
            self._committer.before.remove(self._before_commit)
        self._committer.on_stored = None
        self.keeping.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self.settling.stop(), return_exceptions=True)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _timed(self, handle: Callable[[str, Any, float], None]) -> Callable[[str, Any], None]:
        return lambda peer, message: handle(peer, message, self._now())

    def _working(
        self, handle: Callable[[str, Any, float], None] | None
    ) -> Callable[[str, Any], None]:
        """A handler after which there may be more to do in the background."""
        replicas = self.replicas

        def work(peer: str, message: NodeMessage) -> None:
            if handle is not None:
                handle(peer, message, self._now())
                if replicas is not None and replicas.has_work:
                    self._work_is_due.set()

        return work

    def _steps(self) -> Iterator[Callable[[float], object]]:
        """The background work; each is told the time and says whether there is more. One that fails stops no other."""
        if self.replicas is not None:
            yield self.replicas.tick
            yield self.replicas.work
        yield lambda _: self.copies.compare()
        yield self.searcher.tick
        yield self._adoption.tick
        yield self._sweep.step
        yield self.keeping.step

    async def _run(self) -> None:
        """Runs timers, and the background work as long as there is some."""
        loop = asyncio.get_running_loop()
        while True:
            now = self._now()
            more = False
            self._work_is_due.clear()
            for step in self._steps():
                try:
                    more = bool(step(now)) or more
                except (plyvel.Error, StoreError, RuntimeError) as error:
                    log.error("cannot copy sessions: %s", text_of(error))
            self._core.outbox.flush()
            if more:
                await asyncio.sleep(0)
                continue
            # No `asyncio.timeout`: what is done five times a second in a broker that rests has to be cheap.
            timer = loop.call_at(self._node.next_tick(_TICK), self._work_is_due.set)
            try:
                await self._work_is_due.wait()
            finally:
                timer.cancel()

    # --- commits

    def _before_commit(self) -> None:
        if self.replicas is None:
            return
        self._node.gather()
        try:
            self.replicas.before_commit(self._now())
        finally:
            self._node.flush()  # it travels while this store writes

    def _on_stored(self, number: int) -> None:
        """The store has committed. Other nodes are told first: that they wait for no other is what keeps all going."""
        self._node.gather()
        try:
            self.copies.stored(number)
            if self.copies.has_work:
                self._work_is_due.set()
            if self.replicas is None:
                self._core.outbox.release(number)
            else:
                self.replicas.stored(number)
        finally:
            self._node.flush()  # at once, and not a pass later: confirmations, and what waited for this store

    # --- nodes

    def _on_up(self, effect: PeerUp) -> None:
        if self.replicas is not None:
            self.replicas.peer_up(effect.peer, self._now())
        self.keeping.peer_up(effect.peer)
        self._look_who_is_away()

    def _on_down(self, effect: PeerDown) -> None:
        if self.replicas is not None:
            self.replicas.peer_down(effect.peer, self._now())
        self.searcher.peer_down(effect.peer)
        self._look_who_is_away()

    def _on_members(self, _effect: MembersChanged) -> None:
        self._set_members()

    def _set_members(self) -> None:
        node, now = self._node, self._now()
        if not node.is_running:
            return
        if self.replicas is not None:
            self.replicas.set_members(set(node.members) - {node.name}, now)
            for peer in node.up:
                self.replicas.peer_up(peer, now)
        self.keeping.set_members()
        self._look_who_is_away()

    def _look_who_is_away(self) -> None:
        if self._node.is_running:
            # The sessions of who is no member any more are the mover's business.
            members = self.copies.owners().intersection(self._node.members)
            self._adoption.set_away(members.difference(self._node.up), self._now())

    def _owner_of(self, scoped_id: str) -> str | None:
        record = self._directory.record(*_split(scoped_id))
        return None if record is None else record.node

    # --- copies become sessions

    async def find_copy(self, mountpoint: str, client_id: str, owner: str) -> bool:
        """Has the best copy of a session of `owner`, which is dead, made a session of this broker, its owner then.

        A session that is here already gets the messages of the copy.

        Returns:
            Whether there was one; False also where another search for it came first.

        Raises:
            StoreError: the store cannot be used.
        """
        scoped_id = scope_of(mountpoint) + client_id
        search = self._searches.get(scoped_id)
        if search is not None:
            await asyncio.wait([search])
            return False
        with self._searching(scoped_id):
            copy, node = await self._find(scoped_id, owner)
            if copy is None or not self.copies.has(copy):
                return False
            await self._make_session(copy, node)
            return True

    @contextmanager
    def _searching(self, scoped_id: str) -> Iterator[None]:
        """While somebody looks for copies of a client's session, or makes one a session, nobody else does."""
        self._searches[scoped_id] = search = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            del self._searches[scoped_id]
            search.set_result(None)

    async def _find(self, scoped_id: str, owner: str) -> tuple[SessionCopy | None, str]:
        """The best copy, which is here now, and whom it comes from."""
        found: asyncio.Future[tuple[SessionCopy | None, str]] = (
            asyncio.get_running_loop().create_future()
        )

        def done(copy: SessionCopy | None, node: str) -> None:
            if not found.done():
                found.set_result((copy, node))

        self.searcher.find(scoped_id, owner, self._peers.expected(), self._now(), done)
        return await found

    async def _make_session(self, copy: SessionCopy, node: str) -> None:
        """Makes a copy a session; all of it has to be in the database for that."""
        self.copies.take(copy)
        await self._committer.finish_all()
        if self._store.failing:
            raise StoreError("the store cannot write")
        mountpoint, client_id = _split(copy.head.scoped_id)
        registry = self._find_registry(mountpoint)
        subscriber = registry.subscribers.get(client_id)
        if subscriber is None and self.take_back((mountpoint, client_id)):
            subscriber = registry.subscribers[client_id]
            self._directory.claim(registry, subscriber)
        if subscriber is not None:
            await self._merge(registry, subscriber, copy, node)
            return
        if self.replicas is not None:
            self.replicas.take_over(copy.number)
        now_ms = int(self._core.wall_clock() * 1000)
        owner = self._directory.user(mountpoint, client_id) or None
        stored = promote(self._store, self.copies, copy, node, now_ms, owner)
        self._restore(registry, stored)

    def _restore(self, registry: Registry, stored: StoredSession) -> None:
        """A session out of a copy is this node's, with the subscriptions that its record had last."""
        record = self._directory.record(registry.mountpoint, stored.client_id)
        registry.restore(stored)
        subscriber = registry.subscribers[stored.client_id]
        self.settling.opened(subscriber)
        if record is not None:
            for topic_filter in subscriber.subscriptions.keys() - record.subscriptions.keys():
                registry.unsubscribe(subscriber, topic_filter)
            for topic_filter, qos in record.subscriptions.items():
                registry.subscribe(subscriber, topic_filter, qos)
        self.made((registry.mountpoint, stored.client_id))
        self._directory.claim(registry, subscriber)

    async def _merge(
        self, registry: Registry, subscriber: Subscriber, copy: SessionCopy, node: str
    ) -> None:
        """Gives a session, which came to be here meanwhile, what the copy has."""
        if subscriber.queue.durable:
            who = (registry.mountpoint, subscriber.client_id)
            note_whence(self._store, subscriber.queue.session, self.copies, copy, node)
            for deliveries in contents(self._store, copy):
                self._give(who, deliveries)
                self._core.outbox.flush()
                await asyncio.sleep(0)
        self.copies.drop(copy)

    def _adopt_soon(self, copy: SessionCopy) -> None:
        if copy.head.scoped_id not in self._searches:
            self._spawn(self._adopt(copy))

    async def _adopt(self, copy: SessionCopy) -> None:
        """A session whose owner stays away goes on here."""
        head = copy.head
        if head.scoped_id in self._searches or not self.copies.has(copy):
            return
        mountpoint, client_id = _split(head.scoped_id)
        registry = self._find_registry(mountpoint)
        if self._owner_of(head.scoped_id) != head.owner or client_id in registry.subscribers:
            return
        try:
            with self._searching(head.scoped_id):
                await self._make_session(copy, self._node.name)
        except (plyvel.Error, StoreError, RuntimeError) as error:
            log.error("cannot adopt the session of client=%s: %s", client_id, text_of(error))
            return
        self.adopted += 1
        name, values = registry.named(client_id)
        text = "adopted the session of a node that stays away " + name + " node=%s"
        log.debug(text, *values, head.owner)

    # --- figures

    def families(self) -> Iterator[Family]:
        """The figures of replicas."""
        yield from replica_families(self.replicas, len(self.copies), self.adopted)
        yield from self.keeping.families()


def _split(scoped_id: str) -> tuple[str, str]:
    mountpoint, client_id = split_scope(scoped_id.encode())
    return mountpoint, client_id.decode()

"""A session of this node of which something cannot be read is made whole from a copy of it.

A copy that takes part has all that was ever committed here of its session, so what is lost here is there. It is brought
here and becomes the session, under a number of its own, which no damage concerns. What has come for the session
meanwhile follows; what is left of it under its old number is deleted.

A copy that may lack something will not do. Then the session stays refused, until a better one can be reached, or the
store is repaired.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Final, TypeVar

import plyvel

from vmq.clustering.messages.replication import OfferCopy
from vmq.clustering.replication.discovery import CopySearch, Offers
from vmq.clustering.replication.follower import Follower, SessionCopy, rank
from vmq.clustering.replication.lag import EVERYTHING, Place
from vmq.clustering.replication.leader import Leader
from vmq.clustering.replication.promotion import close, promote
from vmq.clustering.replication.reconcile import waiting_places
from vmq.core.context import Core
from vmq.core.detached import detach, forget
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq.mqtt.message import Delivery
from vmq.persistence.group_commit import Committer
from vmq.store.entries import StoredSession, waiting_key
from vmq.store.lines import places, scan_line
from vmq.store.opening import text_of
from vmq.store.store import Store, StoreError
from vmq_cluster.node import ClusterNode
from vmq_cluster.ticks import sleep_to_tick

log = logging.getLogger("vmq.cluster")

T = TypeVar("T")

#: Seconds between two looks for sessions that cannot be read: at first, and once nothing comes of it.
LOOK: Final = 1.0
LONGEST_LOOK: Final = 60.0

#: Places that a session takes no more whose last entries are lost: as many as a damaged block may have had.
SKIPPED: Final = 4096

#: Sessions that are looked at between two passes of the event loop.
_STEP: Final = 1000


class Healing:
    """Heals the sessions of one node, one after the other.

    Args:
        node: this one.
        core: the broker's.
        committer: writes the core's store.
        copies: those that are here.
        searcher: finds copies and brings them here.
        replicas: what is known of the copies of this node's sessions.
        registries: the topic trees that there are.
        restore: makes a session of what is stored.
        give: gives a session, by mountpoint and client id, messages.
    """

    def __init__(
        self,
        node: ClusterNode,
        core: Core,
        committer: Committer,
        copies: Follower,
        searcher: CopySearch,
        replicas: Leader,
        registries: Mapping[str, Registry],
        restore: Callable[[Registry, StoredSession], None],
        give: Callable[[tuple[str, str], list[Delivery]], None],
    ) -> None:
        assert core.store is not None, "a node has a store"
        self._cluster = node
        self._node = node.name
        self._core = core
        self._store: Store = core.store
        self._committer = committer
        self._copies = copies
        self._searcher = searcher
        self._replicas = replicas
        self._registries = registries
        self._restore = restore
        self._give = give
        #: Sessions that were healed since the start.
        self.healed = 0

    def _up(self) -> list[str]:
        return list(self._cluster.up) if self._cluster.is_running else []

    def guard_places(self) -> None:
        """What comes for a session whose last entries are lost gets no places of those: its copies have them there."""
        damage = self._store.damage
        if damage is None:
            return
        for registry in self._registries.values():
            for subscriber in registry.subscribers.values():
                queue = subscriber.queue
                if queue.durable and damage.covers(waiting_key(queue.session, queue.next_seq)):
                    queue.next_seq += SKIPPED

    async def run(self) -> None:
        """Looks again and again, until it is cancelled."""
        wait = LOOK
        while True:
            await sleep_to_tick(wait)
            if self._store.damage is not None and self._up():
                before = self.healed
                await self.heal_all()
                wait = LOOK if self.healed > before else min(2 * wait, LONGEST_LOOK)

    async def heal_all(self) -> None:
        """Heals the sessions of which there are whole copies now."""
        for registry, subscriber in [each async for each in self._refused()]:
            try:
                await self._heal(registry, subscriber)
            except (plyvel.Error, StoreError, RuntimeError) as error:
                name, values = registry.named(subscriber.client_id)
                text = "cannot heal a session " + name + ": %s"
                log.error(text, *values, text_of(error))

    async def _refused(self) -> AsyncIterator[tuple[Registry, Subscriber]]:
        looked = 0
        for registry in list(self._registries.values()):
            for subscriber in list(registry.subscribers.values()):
                looked += 1
                if looked % _STEP == 0:
                    await asyncio.sleep(0)
                if self._is_to_heal(registry, subscriber):
                    yield registry, subscriber

    def _is_to_heal(self, registry: Registry, subscriber: Subscriber) -> bool:
        """Whether it is refused, and stays where it is for the time."""
        queue = subscriber.queue
        return (
            queue.durable
            and queue.gate is None
            and subscriber.output is None
            and registry.subscribers.get(subscriber.client_id) is subscriber
            and self._store.refuses_session(queue.session)
        )

    async def _heal(self, registry: Registry, subscriber: Subscriber) -> None:
        scoped_id, session = registry.scope + subscriber.client_id, subscriber.queue.session
        found = await self._best(scoped_id, session)
        copy = None if found is None else await self._fetch(scoped_id, *found)
        if found is None or copy is None:
            return
        node, offer = found
        lacks = self._lacks(session, node, offer)
        self._copies.take(copy)
        try:
            await self._prune(session, copy)
            await self._commit()
            is_still = self._is_to_heal(registry, subscriber) and self._has_all_before(copy, lacks)
            since = self._came_since(session, copy) if is_still else []
        except BaseException:
            self._copies.drop(copy)
            raise
        if not is_still:
            self._copies.drop(copy)
            return
        self._replace(registry, subscriber, copy, node)
        self._give((registry.mountpoint, subscriber.client_id), since)
        self._core.outbox.flush()
        self.healed += 1
        name, values = registry.named(subscriber.client_id)
        text = "a session that could not be read is whole again from its copy " + name + " node=%s"
        log.warning(text, *values, node)
        self._committer.on_damage()

    async def _commit(self) -> None:
        await self._committer.finish_all()
        if self._store.failing:
            raise StoreError("the store cannot write")

    async def _best(self, scoped_id: str, session: bytes) -> tuple[str, OfferCopy] | None:
        """The best copy that is of use, and who has it."""
        for each in self._copies.of_client(scoped_id):
            if each.head.owner == self._node:
                self._copies.drop(each)  # an earlier life of this broker was about to do this
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Offers] = loop.create_future()
        self._searcher.ask(
            [scoped_id], self._node, self._up(), loop.time(), partial(_settle, answer)
        )
        [offers] = await answer
        of_use = [
            (node, offer)
            for node, offer in offers
            if offer.complete and self._lacks(session, node, offer) != EVERYTHING
        ]
        return max(of_use, key=lambda each: (rank(each[1]), each[0]), default=None)

    def _lacks(self, session: bytes, node: str, offer: OfferCopy) -> Place:
        if (offer.owner, offer.session) != (self._node, session):
            return EVERYTHING
        return self._replicas.lacking(session, node, offer.life, offer.at)

    async def _fetch(self, scoped_id: str, node: str, offer: OfferCopy) -> SessionCopy | None:
        """Has a copy brought here; None: it was lost on the way."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[SessionCopy | None] = loop.create_future()
        self._searcher.fetch(
            scoped_id, [(node, offer)], loop.time(), lambda copy, _: _settle(found, copy)
        )
        return await found

    async def _prune(self, session: bytes, copy: SessionCopy) -> None:
        """Takes out of the copy what is not here any more, and is not lost: it was delivered since, or dropped."""
        store = self._store
        for kind in (b"q", b"i"):
            for number, (key, raw) in enumerate(list(scan_line(store.db, kind + copy.number))):
                if number % _STEP == _STEP - 1:
                    await asyncio.sleep(0)
                try:
                    is_over = store.get(kind + session + key[9:]) is None
                except StoreError:
                    is_over = False  # it is lost
                if is_over:
                    store.purge_record(key, raw)

    def _has_all_before(self, copy: SessionCopy, lacks: Place) -> bool:
        """Whether what a copy may lack came behind all that it has, so that `_came_since` finds it."""
        db = self._store.db
        return all(
            places(db, kind + copy.number)[1] < place
            for kind, place in zip((b"q", b"i"), lacks, strict=True)
        )

    def _came_since(self, session: bytes, copy: SessionCopy) -> list[Delivery]:
        """What came for the session that is not in the copy: its places are behind those."""
        store = self._store
        last = places(store.db, b"q" + copy.number)[1]
        found = []
        for place in waiting_places(store, session):
            delivery = store.load_waiting(session, place) if place > last else None
            if delivery is not None:
                found.append(delivery)
        return found

    def _replace(
        self, registry: Registry, subscriber: Subscriber, copy: SessionCopy, node: str
    ) -> None:
        """Makes the copy the session, and leaves what was one to be deleted."""
        store = self._store
        received = store.load_received(copy.number)
        self._replicas.take_over(copy.number)
        detach(registry, subscriber)
        now_ms = int(self._core.wall_clock() * 1000)
        stored = promote(store, self._copies, copy, node, now_ms, subscriber.owner)
        for packet_id in received:  # unlike one of a dead owner, this one had the messages as well
            store.put_received(stored.number, packet_id)
        self._restore(registry, stored)
        self._core.counters.queue_setup += 1
        forget(registry, subscriber)
        close(store, stored.number)  # nobody else went on with it
        store.refused.discard(subscriber.queue.session)


def _settle(future: asyncio.Future[T], value: T) -> None:
    if not future.done():  # whoever waited may be gone
        future.set_result(value)

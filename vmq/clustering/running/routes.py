"""Routes in the metadata: filter -> slots, one key for each slot, filter and store that said so.

The value says of a share group whether some of its members there are connected, and in which epoch of the slot the
store owned it when it said so (0: it did not).

A route is there while anybody says so, and each store takes back only what it said itself: so neither a side of a split
nor an owner that does not know yet that it is none takes away what another one needs. A new owner says all that its
state wants; then those before it, who see that it does, take back what they said. What they said and nobody wants any
more it says too, until they have.

What two stores write may come to a third in either order. So one takes back what another says too only when all members
have heard that other one: else a node would have no route for a moment, and what is published there then would be
acknowledged and for nobody. And it does so only for one that has said it as the owner, in the epoch that is known here
or a later one: what that one said in an earlier epoch it may be about to take back itself, for the sake of this node.
So of all that say so, the one of the latest epoch that all have heard goes on.
"""

from collections.abc import Callable, Iterable, Set
from typing import Final

from vmq.clustering.origin.routes import SlotRoutes
from vmq.clustering.routing.subscribe_barrier import SubscribeBarrier
from vmq.clustering.slots.words import split_scope
from vmq.core.hook_sites import Pending
from vmq.mqtt.topics import split_shared
from vmq_cluster.effects import Changed
from vmq_cluster.node import ClusterNode

SLOT_ROUTES: Final = "vmq.slot.routes"
_STORE_BYTES: Final = 4
_THERE: Final = b"1"
_AWAY: Final = b"0"
#: What a store says of a filter in a slot: the epoch, and as the lowest bit whether members of a share group are there.
Statement = int


def key_of(slot: int, store: int, topic_filter: str) -> bytes:
    """The key of a route as one store says it."""
    return slot.to_bytes(2, "big") + store.to_bytes(_STORE_BYTES, "big") + topic_filter.encode()


class ClusterRoutes:
    """The routes of a cluster, as one node knows them.

    Args:
        node: which runs.
        store: this node's.
        routes: kept like the metadata.
        changed: told of filters whose slots have changed.
    """

    def __init__(
        self,
        node: ClusterNode,
        store: int,
        routes: SlotRoutes,
        changed: Callable[[str], None],
    ) -> None:
        self._node = node
        self._store = store
        self._routes = routes
        self._changed = changed
        #: How often it heard of one, that somebody says it or no more.
        self.changes = 0
        #: Who says so, by slot and filter.
        self._said: dict[int, dict[str, dict[int, Statement]]] = {}
        #: Slots and stores whose statements are about to be taken back, and of which filters.
        self._releasing: dict[tuple[int, int], list[str]] = {}
        #: What the owners of this node said of that.
        self._presence: dict[tuple[int, str], bytes] = {}
        for key, value in node.items(SLOT_ROUTES):
            self._add(key, value)
        node.watch_steps(SLOT_ROUTES, self._on_changes)

    def _on_changes(self, changes: list[Changed]) -> None:
        for each in changes:
            if each.value is None:
                self._remove(each.key)
            else:
                self._add(each.key, each.value)

    def _add(self, key: bytes, value: bytes) -> None:
        place = _place(key)
        if place is None:
            return
        self.changes += 1
        slot, store, topic_filter = place
        statement = _epoch(value) << 1 | (value[:1] != _AWAY)
        self._said.setdefault(slot, {}).setdefault(topic_filter, {})[store] = statement
        if not self._routes.has(topic_filter, slot):
            self._routes.add(topic_filter, slot)
            self._changed(topic_filter)
        self._set_presence(slot, topic_filter)

    def _set_presence(self, slot: int, topic_filter: str) -> None:
        if split_shared(split_scope(topic_filter)[1])[0]:
            said = self._said[slot][topic_filter]
            self._routes.set_presence(topic_filter, slot, any(each & 1 for each in said.values()))

    def _remove(self, key: bytes) -> None:
        place = _place(key)
        if place is None:
            return
        slot, store, topic_filter = place
        filters = self._said.get(slot, {})
        said = filters.get(topic_filter)
        if said is None:
            return
        self.changes += 1
        said.pop(store, None)
        if said:
            self._set_presence(slot, topic_filter)
        else:
            del filters[topic_filter]
            self._routes.remove(topic_filter, slot)
            self._changed(topic_filter)

    def announce(
        self,
        slot: int,
        epoch: int,
        begun: Iterable[str],
        ended: Iterable[str],
        barrier: SubscribeBarrier,
    ) -> Pending | None:
        """Writes that filters are wanted in a slot from now on or no more; what comes when nodes in reach know.

        `epoch`: in which this node owns the slot; 0: it does not.
        """
        begun = list(begun)
        for each in begun:
            self._say(slot, each, epoch)
        for each in ended:
            self._take_back(slot, self._store, each)
        keys = [key_of(slot, self._store, each) for each in begun]
        return barrier.wait(lambda: keys, SLOT_ROUTES) if keys else None

    def say_stored(self, slot: int, filters: Iterable[str]) -> None:
        """Filters of clients that are away are wanted in a slot that nobody serves yet."""
        for each in filters:
            if split_shared(split_scope(each)[1])[0]:
                self._presence.setdefault((slot, each), _AWAY)
            self._say(slot, each, 0)

    def _say(self, slot: int, topic_filter: str, epoch: int) -> None:
        key = key_of(slot, self._store, topic_filter)
        said = self._node.get(SLOT_ROUTES, key)
        if said is None or _epoch(said) < epoch:
            presence = self._presence.get((slot, topic_filter), _THERE)
            self._put(key, _value(presence, epoch))

    def _put(self, key: bytes, value: bytes) -> None:
        self._add(key, value)  # here at once
        self._node.put(SLOT_ROUTES, key, value)

    def tell_presence(self, slot: int, group: str, is_there: bool) -> None:
        """Says whether some members of a share group in a slot of this node are connected."""
        key, presence = key_of(slot, self._store, group), _THERE if is_there else _AWAY
        self._presence[slot, group] = presence
        said = self._node.get(SLOT_ROUTES, key)
        if said is not None and said[:1] != presence:
            self._put(key, _value(presence, _epoch(said)))

    def _take_back(self, slot: int, store: int, topic_filter: str) -> None:
        key = key_of(slot, store, topic_filter)
        if store == self._store:
            self._presence.pop((slot, topic_filter), None)
        if self._node.get(SLOT_ROUTES, key) is not None:
            self._remove(key)
            self._node.delete(SLOT_ROUTES, key)

    def says(self, slot: int) -> bool:
        """Whether anybody says that a filter is wanted in a slot."""
        return bool(self._said.get(slot))

    def own(
        self,
        slot: int,
        epoch: int,
        wanted: set[str],
        has_all: bool,
        members: Set[int],
        barrier: SubscribeBarrier | None,
    ) -> None:
        """This node owns a slot in an epoch and serves it: says what its state wants.

        With the forks of all members (`has_all`) it takes back what nobody wants any more. What stores said that are no
        members goes as well, where it is said here: by the barrier, if all members are up.
        """
        # What it said was to be taken back for the sake of an owner that is none any more.
        self._releasing.pop((slot, self._store), None)
        said = self._said.get(slot, {})
        for each in wanted:
            stores = said.get(each, {})
            # Who says so alone needs not say it anew.
            if len(stores) > 1 or self._store not in stores:
                self._say(slot, each, epoch)
        if not has_all:
            return
        for each, stores in list(self._said.get(slot, {}).items()):
            if each in wanted:
                continue
            for gone in [store for store in stores if store not in members]:
                self._take_back(slot, gone, each)
            if [store for store in stores if store != self._store]:
                self._say(slot, each, epoch)
            else:
                self._take_back(slot, self._store, each)
        if barrier is not None:
            everybody = {store for each in self._said.get(slot, {}).values() for store in each}
            for gone in sorted(everybody - members):
                self._release(slot, gone, self._store, epoch, barrier)

    def lend(self, slot: int, owner: int, epoch: int, barrier: SubscribeBarrier) -> None:
        """Another store owns a slot in an epoch: what it says since itself, this node needs not say."""
        if owner != self._store:
            self._release(slot, self._store, owner, epoch, barrier)

    def _release(
        self, slot: int, store: int, by: int, epoch: int, barrier: SubscribeBarrier
    ) -> None:
        """Takes back what a store said of a slot once all have heard that another one has said it in an epoch, too."""
        filters = [
            each
            for each, stores in self._said.get(slot, {}).items()
            if store in stores and stores.get(by, -1) >> 1 >= epoch
        ]
        if not filters or (slot, store) in self._releasing:
            return
        keys = [key_of(slot, by, each) for each in filters]
        pending = barrier.wait(lambda: keys, SLOT_ROUTES, "patient")

        def then(_: object) -> None:
            if self._releasing.get((slot, store)) is not filters:
                return
            del self._releasing[slot, store]
            for each in filters:
                if by in self._said.get(slot, {}).get(each, ()):
                    self._take_back(slot, store, each)

        self._releasing[slot, store] = filters
        assert pending is not None, "who is patient waits even if nobody is up"
        pending.then = then


def _value(presence: bytes, epoch: int) -> bytes:
    return presence + epoch.to_bytes((epoch.bit_length() + 7) // 8, "big")


def _epoch(value: bytes) -> int:
    """In which epoch a store said so as the owner."""
    return int.from_bytes(value[1:], "big")


def _place(key: bytes) -> tuple[int, int, str] | None:
    """Slot, store and filter; None: it is no such key."""
    if len(key) <= 2 + _STORE_BYTES:
        return None
    try:
        topic_filter = key[2 + _STORE_BYTES :].decode()
    except UnicodeDecodeError:
        return None
    return int.from_bytes(key[:2], "big"), int.from_bytes(key[2:6], "big"), topic_filter

"""Owners compare their routes with the metadata: when they begin to serve, and now and then.

Who takes slots over has many to compare at once, each with its clients. So they are compared in bites: between them
clients and heartbeats have their turn. A cluster in which nothing changes takes its time.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from vmq.clustering.routing.subscribe_barrier import SubscribeBarrier
from vmq.clustering.running.routes import ClusterRoutes
from vmq.clustering.running.taking import BITE
from vmq.clustering.slots.machine import SlotMachine
from vmq.clustering.slots.words import store_of
from vmq_cluster.node import ClusterNode

#: Slots that are compared in each look, besides those that this node has taken over, until all were since something
#: changed; then in each second.
AGREED_AT_ONCE: Final = 16


class RouteAgreement:
    """What this node says of slots is what their states want.

    Args:
        node: the cluster's.
        store: this node's.
        slots: this node's.
        routes: what is said.
        barrier: by which all nodes in reach have heard of it.
        others: the stores of other members.
        is_on: whether anything is said.
    """

    def __init__(
        self,
        node: ClusterNode,
        store: int,
        slots: SlotMachine,
        routes: ClusterRoutes,
        barrier: SubscribeBarrier,
        others: Collection[int],
        is_on: Callable[[], bool],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._node = node
        self._store = store
        self._slots = slots
        self._routes = routes
        self._barrier = barrier
        self._others = others
        self._is_on = is_on
        #: Slots that were not compared since this node owns them, and the next of all that is to be.
        self._fresh: dict[int, None] = {}
        self._next = 0
        #: What all of them go by, as of the last look, and slots that are to be compared since it became another.
        self._seen: tuple[object, ...] = ()
        self._due = 0
        #: Those of this look that are left; they go on in the next turn of the loop.
        self._left: dict[int, None] = {}
        self._goes_on = False

    def rests(self) -> bool:
        """Whether all were compared since something changed, as far as it has looked."""
        return self._due <= 0 and not (self._left or self._fresh)

    def look(self, is_second: bool) -> None:
        """Time has passed; `is_second`: a second of it."""
        slots, machine = self._slots, self._node.machine
        self._fresh.update(dict.fromkeys(slots.taken))
        slots.taken.clear()
        members = machine.membership
        seen = self._routes.changes, members.others, members.belongs, machine.detector.up
        if seen != self._seen or slots.restless():
            self._seen, self._due = seen, slots.slots
        if self._due > 0 or is_second:
            self._due -= AGREED_AT_ONCE
            due = [(self._next + at) % slots.slots for at in range(AGREED_AT_ONCE)]
            self._next = (self._next + AGREED_AT_ONCE) % slots.slots
            self._left.update(dict.fromkeys(due))
        self._left.update(self._fresh)
        if self._left and not self._goes_on:
            self._go_on()

    def _go_on(self) -> None:
        self._goes_on = False
        if not self._is_on():
            return
        node, ends = self._node, self._loop.time() + BITE
        others, belongs = len(node.members) - 1, node.machine.membership.belongs
        barrier = self._barrier if belongs and len(node.up) == others else None
        while self._left:
            slot = next(iter(self._left))
            del self._left[slot]
            self._compare(slot, others if belongs else -1, barrier)
            if self._loop.time() >= ends:
                self._goes_on = True
                self._loop.call_soon(self._go_on)
                return

    def _compare(self, slot: int, others: int, barrier: SubscribeBarrier | None) -> None:
        """An owner with the forks of so many others takes back what nobody wants; with a barrier all are up."""
        owner, routes = self._slots.owners.get(slot), self._routes
        if owner is None:
            self._fresh.pop(slot, None)
            if barrier is not None:
                view = self._slots.view(slot)
                routes.lend(slot, store_of(view.owner), view.epoch, barrier)
        elif owner.serves(self._store):
            self._fresh.pop(slot, None)
            wanted = owner.state.routes()
            # Most slots have no routes, and nobody says that they had.
            if wanted or routes.says(slot):
                has_all = len(owner.cleared) == others
                members = {self._store, *self._others}
                routes.own(slot, owner.view.epoch, wanted, has_all, members, barrier)

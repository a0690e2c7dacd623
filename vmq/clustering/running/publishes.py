"""Which slot gets a message for a share group: of the members whose sessions are in slots, and of the others.

A session in a slot is on no node; its client's connection is. So a policy that prefers a node prefers members that are
connected to it, and those who are away are the last resort of all but `local_only`.
"""

from collections.abc import Callable, Mapping
from typing import Final

from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.routing.shared_dispatch import SlotTargets
from vmq.clustering.routing.shares import LOCAL_ONLY, RANDOM
from vmq.clustering.running.fronts import SlotFronts
from vmq.clustering.slots.words import slot_of
from vmq.core.registry import Registry
from vmq.core.source import Source
from vmq.mqtt.message import Message
from vmq.protocol.front_queue import FrontQueue
from vmq.store.entries import scope_of


class SlotPublishes(SlotTargets):
    """What is published on one node; of share groups it sees the members as they are there.

    Args:
        machines: this node's, which know which slots have members.
        fronts: by which slots get it.
        registries: the topic trees of this node, in which its own clients are.
        draw: draw(n) is a random number from 0 to n - 1.
    """

    def __init__(
        self,
        machines: SessionNode,
        fronts: SlotFronts,
        registries: Mapping[str, Registry],
        draw: Callable[[int], int],
    ) -> None:
        super().__init__()
        self.are_asked = True
        self._fronts: Final = fronts
        self._routes: Final = machines.routes
        self._registries: Final = registries
        self._slots: Final = machines.slots.slots
        self._draw: Final = draw

    def find(self, mountpoint: str, topic: str) -> tuple[list[tuple[int, str]], list[str]]:
        return self._fronts.targets(scope_of(mountpoint), topic)

    def offer(self, slots: list[tuple[int, str]], message: Message, source: Source) -> None:
        self._fronts.offer(slots, message, source)

    def choose(
        self, mountpoint: str, group: str, policy: str, here: int = 0, others: int = 0
    ) -> tuple[int, str] | None:
        """A slot with connected members has the same chance as each connected member that is in none."""
        scoped = scope_of(mountpoint) + group
        if policy != RANDOM:
            near = self._here(mountpoint, group)
            if near or here:
                drawn = self._draw(len(near) + here) if len(near) + here > 1 else 0
                return (near[drawn], scoped) if drawn < len(near) else None
            if policy == LOCAL_ONLY:
                return None
        there, away = self._routes.slots_of(scoped)
        if not there and (others or not away):
            return None
        if there and others and self._draw(len(there) + others) >= len(there):
            return None
        return self._routes.slot_for(scoped, -1, True), scoped

    def _here(self, mountpoint: str, group: str) -> list[int]:
        """The slots of the members that are connected to this node."""
        registry = self._registries.get(mountpoint)
        found = None if registry is None else registry.trie.find_group(group)
        if found is None:
            return []
        scope = scope_of(mountpoint)
        return [
            slot_of(scope + each.queue.client_id, self._slots)
            for each in found.order
            if isinstance(each.queue, FrontQueue) and each.queue.online and each.qos
        ]

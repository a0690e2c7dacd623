"""Messages that a full queue took, of which the origin is not told until there is room: `queue.overflow`.

So their publishers wait for their acknowledgements, and nobody else's do.
"""

from typing import Final

from vmq.clustering.messages.fronts import OfferTaken
from vmq.clustering.slots.owned import OwnedSlot
from vmq.clustering.slots.words import Dot

#: Milliseconds that a publisher waits for a client that is slow (`vmq.core.queue.LONGEST_PAUSE`).
LONGEST: Final = 5_000


class HeldOffers:
    """Those of one slot, for its owner."""

    def __init__(self, owned: OwnedSlot) -> None:
        self._owned = owned
        self._here = owned.here
        #: By client whose queue is full: since when, and what was offered by which store.
        self._held: dict[str, tuple[int, list[tuple[int, Dot]]]] = {}

    def hold(self, client: str, store: int, dot: Dot) -> None:
        """A message waits for room in this client's queue, where it is."""
        found = self._held.get(client)
        if found is None:
            found = self._held[client] = self._here.now, []
        found[1].append((store, dot))

    def has(self, client: str) -> bool:
        return client in self._held

    def are_any(self) -> bool:
        return bool(self._held)

    def release(self, client: str) -> None:
        """There is room, or the client is gone: origins are told what is safe."""
        found = self._held.pop(client, None)
        if found is None:
            return
        by_store: dict[int, list[Dot]] = {}
        for store, dot in found[1]:
            by_store.setdefault(store, []).append(dot)
        self._owned.when_safe(lambda: self._tell(by_store))

    def _tell(self, by_store: dict[int, list[Dot]]) -> None:
        slot, lineage = self._owned.slot, self._owned.view.lineage
        for store, dots in by_store.items():
            self._here.send(store, OfferTaken(slot, lineage, dots, False, self._here.clock))

    def look(self) -> None:
        """Time has passed: nobody waits for ever."""
        for client, (since, _) in list(self._held.items()):
            if self._here.now - since >= LONGEST:
                self.release(client)

"""The origin: gives messages their dots, keeps them until they are safe, and has them acknowledged."""

from collections.abc import Callable
from typing import Final

from vmq.clustering.messages.fronts import OfferedMessage, OfferTaken
from vmq.clustering.messages.slots import SlotView
from vmq.clustering.origin.outbox import Publication, SlotOutbox
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.words import Address, store_of

#: Bytes of messages that are not safe; above it publishers are not read on.
MAX_BYTES: Final = 64 << 20
#: What a message costs besides its topic and payload.
_OVERHEAD: Final = 200


class Origin:
    """What this node has published.

    Args:
        view: who has a slot.
    """

    def __init__(
        self, here: LocalNode, view: Callable[[int], SlotView], max_bytes: int = MAX_BYTES
    ) -> None:
        self._here = here
        self._view = view
        self._outboxes: dict[int, SlotOutbox] = {}
        #: Slots with something to offer.
        self._touched: dict[int, None] = {}
        self._max_bytes = max_bytes
        self.bytes = 0

    def is_full(self) -> bool:
        """Whether publishers have to wait."""
        return self.bytes >= self._max_bytes

    def is_half_full(self) -> bool:
        """Whether they have to wait on, once they do."""
        return self.bytes >= self._max_bytes // 2

    def reserve(self, targets: list[tuple[int, str]]) -> list[Address]:
        """Dots for the next message: one for each slot and share group that is to get it."""
        addresses = []
        for slot, group in targets:
            outbox = self._outbox(slot)
            outbox.last += 1
            addresses.append((slot, (self._here.incarnation, outbox.last), group))
        return addresses

    def _outbox(self, slot: int) -> SlotOutbox:
        found = self._outboxes.get(slot)
        if found is None:
            found = self._outboxes[slot] = SlotOutbox(slot)
        return found

    def publish(
        self,
        addresses: list[Address],
        topic: bytes,
        payload: bytes,
        qos: int,
        connection: int,
        then: Callable[[], None],
        retain: bool = False,
        but: str = "",
    ) -> None:
        """Offers a message to its slots; `then` follows when all have it safe. `but`: the bridge whose it is."""
        size = len(topic) + len(payload) + _OVERHEAD
        publication = Publication(connection, qos, size, then)
        for slot, dot, group in addresses:
            message = OfferedMessage(dot, topic, payload, qos, group, retain, but)
            older = self._outbox(slot).add(message, publication)
            self._touched[slot] = None
            if older is not None:  # of a connection that is gone: nobody waits for it
                older.then = _nothing
                self._confirm(older)
        if publication.left:
            self.bytes += size
        else:
            then()

    def on_taken(self, message: OfferTaken) -> None:
        outbox = self._outboxes.get(message.slot)
        if outbox is None or message.lineage != self._view(message.slot).lineage:
            return
        self._here.heard_of(message.clock)
        for dot in message.dots:
            self._confirm(outbox.remove(dot))
        if message.again:
            outbox.restart()
            self._touched[message.slot] = None

    def _confirm(self, publication: Publication | None) -> None:
        if publication is None:
            return
        publication.left -= 1
        if publication.left == 0:
            self.bytes -= publication.size
            publication.then()

    def drop(self, connection: int) -> None:
        """The client is elsewhere: it has sent its QoS 1 messages again, and old ones would come after newer."""
        for outbox in self._outboxes.values():
            for dot, (_, publication) in list(outbox.entries.items()):
                if publication.qos == 1 and publication.connection == connection:
                    publication.then = _nothing
                    self._confirm(outbox.remove(dot))

    def look(self) -> None:
        """Time has passed, or links have: what an owner does not have may be for another one, or by another link."""
        for slot, outbox in self._outboxes.items():
            if outbox.entries:
                self._touched[slot] = None

    def on_moved(self, slot: int) -> None:
        """A slot has another lineage."""
        if slot in self._outboxes:
            self._touched[slot] = None

    def flush(self) -> None:
        """Offers what there is."""
        reach = self._here.reach
        touched, self._touched = self._touched, {}
        for slot in touched:
            outbox = self._outboxes[slot]
            if not outbox.entries:
                continue
            view = self._view(slot)
            owner = store_of(view.owner)
            link = reach.link(owner)
            if link:
                for offer in outbox.offer(view.lineage, link, self._here.clock):
                    self._here.send(owner, offer)

    def waiting(self) -> int:
        """Messages that some slot does not have yet."""
        return sum(len(each.entries) for each in self._outboxes.values())


def _nothing() -> None:
    pass

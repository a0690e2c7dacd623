"""What a node has published and not all owners have confirmed, by slot.

The origin offers to whoever owns a slot now, oldest first, and from the oldest again after each break: with another
lineage, another life of the link, or when the owner did not take what was offered. Nothing of it lies on disk: its
publisher has it until the acknowledgement, which waits until all slots concerned say safe.
"""

from collections.abc import Callable
from typing import Final

from vmq.clustering.messages.fronts import Offer, OfferedMessage
from vmq.clustering.slots.queued import RUN
from vmq.clustering.slots.words import Dot, Lineage

#: Messages in one offer, and bytes of them; a larger message goes alone.
BATCH: Final = 500
BATCH_BYTES: Final = 1 << 20
#: What a message costs besides its topic and payload.
OVERHEAD: Final = 200


class Publication:
    """A message of a client, and of how many slots it is not known yet that they have it safe.

    Args:
        connection: its client's; 0: it is of none that a client may leave.
        then: follows when all have it.
        but: the bridge whose it is.
    """

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int,
        connection: int,
        then: Callable[[], None],
        retain: bool = False,
        but: str = "",
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.connection = connection
        self.then = then
        self.retain = retain
        self.but = but
        self.size: int = len(topic) + len(payload) + OVERHEAD
        self.left: int = 0

    def is_like(self, other: "Publication") -> bool:
        """Whether it differs by its payload alone."""
        if self.topic is not other.topic and self.topic != other.topic:
            return False
        return (self.qos, self.retain, self.but) == (other.qos, other.retain, other.but)

    def offered(self, dot: Dot, group: str) -> OfferedMessage:
        """It, on its way to a slot."""
        return OfferedMessage(dot, self.topic, self.payload, self.qos, group, self.retain, self.but)


class SlotOutbox:
    """What is not confirmed by one slot."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        #: Numbers given to messages for this slot.
        self.last = 0
        #: With the share group that is to get it, as in `OfferedMessage`.
        self.entries: dict[Dot, tuple[str, Publication]] = {}
        self._unsent: list[Dot] = []
        self._lineage: Lineage = (0, 0)
        self._link = 0
        self._index = 0

    def add(self, dot: Dot, group: str, publication: Publication) -> Publication | None:
        """Puts a message behind the others; one that is there already belongs to this publication now.

        Returns the publication that it belonged to.
        """
        older = self.entries.get(dot)
        if older is None:
            self._unsent.append(dot)
        self.entries[dot] = group, publication
        publication.left += 1
        return None if older is None else older[1]

    def remove(self, dot: Dot) -> Publication | None:
        """The slot has it."""
        entry = self.entries.pop(dot, None)
        return None if entry is None else entry[1]

    def has_unsent(self) -> bool:
        """Whether something is to be offered that was not, since the last break."""
        return bool(self._unsent)

    def restart(self) -> None:
        """From the oldest again."""
        self._unsent = list(self.entries)
        self._index = 0

    def take_unsent(self, lineage: Lineage, link: int) -> list[Dot]:
        """What the owner of the slot is to have now."""
        if (lineage, link) != (self._lineage, self._link):
            self._lineage, self._link = lineage, link
            self.restart()
        unsent, self._unsent = self._unsent, []
        return unsent

    def runs_of(self, dots: list[Dot]) -> list[list[tuple[Dot, str, Publication]]]:
        """What there is of these dots, in runs: side by side, and alike but for their payloads."""
        found: list[list[tuple[Dot, str, Publication]]] = []
        before: Publication | None = None
        behind, size = 0, 0
        for dot in dots:
            entry = self.entries.get(dot)
            if entry is None:
                continue
            group, each = entry
            size += each.size
            is_next = dot[1] == behind and before is not None and each.is_like(before)
            if (
                is_next
                and found[-1][0][1] == group
                and size <= BATCH_BYTES
                and len(found[-1]) < RUN
            ):
                found[-1].append((dot, group, each))
            else:
                found.append([(dot, group, each)])
                size = each.size
            before, behind = each, dot[1] + 1
        return found

    def offer(self, lineage: Lineage, link: int, clock: int) -> list[Offer]:
        """What the owner of the slot is to be sent now."""
        unsent = self.take_unsent(lineage, link)
        offers: list[Offer] = []
        batch: list[OfferedMessage] = []
        size = 0
        for dot in unsent:
            if dot not in self.entries:
                continue
            group, publication = self.entries[dot]
            if batch and (len(batch) == BATCH or size + publication.size > BATCH_BYTES):
                offers.append(self._offer(lineage, link, batch, clock))
                batch, size = [], 0
            batch.append(publication.offered(dot, group))
            size += publication.size
        if batch:
            offers.append(self._offer(lineage, link, batch, clock))
        return offers

    def _offer(
        self, lineage: Lineage, link: int, messages: list[OfferedMessage], clock: int
    ) -> Offer:
        self._index += 1
        return Offer(self.slot, lineage, link, self._index - 1, messages, clock)

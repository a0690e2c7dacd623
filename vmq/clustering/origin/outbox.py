"""What a node has published and not all owners have confirmed, by slot.

The origin offers to whoever owns a slot now, oldest first, and from the oldest again after each break: with another
lineage, another life of the link, or when the owner did not take what was offered. Nothing of it lies on disk: its
publisher has it until the acknowledgement, which waits until all slots concerned say safe.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from vmq.clustering.messages.fronts import Offer, OfferedMessage
from vmq.clustering.slots.queued import RUN
from vmq.clustering.slots.words import Dot, Lineage

#: Messages in one offer, and bytes of them; a larger message goes alone.
BATCH: Final = 500
BATCH_BYTES: Final = 1 << 20
#: What a message costs besides its topic and payload.
OVERHEAD: Final = 200


class Countdown:
    """What follows when several have been told; the last of them does it."""

    def __init__(self, count: int, then: Callable[[], None]) -> None:
        self._count = count
        self._then = then

    def one(self) -> None:
        self._count -= 1
        if self._count == 0:
            self._then()


class Publication:
    """A message of a client, and of how many slots it is not known yet that they have it safe.

    For one slot it may be a run: messages at QoS 1 side by side, alike but for their payloads, with one answer.

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
        self.payloads: list[bytes] = [payload]
        self.qos = qos
        self.connection = connection
        self.then = then
        self.retain = retain
        self.but = but
        self.size: i64 = len(topic) + len(payload) + OVERHEAD
        self.left: int = 0
        #: How many of a run a client of this node has, since it was offered, whose owner has told that it is for nobody
        #: else.
        self.had: int = 0

    def grow(self, topic: bytes, payload: bytes, retain: bool, but: str) -> bool:
        """The next message becomes one of the run; False: it is another one."""
        if self.topic is not topic and self.topic != topic:
            return False
        if retain != self.retain or but != self.but:
            return False
        if len(self.payloads) == RUN or self.size > BATCH_BYTES:
            return False
        self.payloads.append(payload)
        self.size += len(topic) + len(payload) + OVERHEAD
        return True

    def each(self) -> "list[Publication]":
        """The messages of a run, which are answered as one still."""
        then = Countdown(len(self.payloads), self.then).one
        found = []
        for payload in self.payloads:
            topic, retain, but = self.topic, self.retain, self.but
            one = Publication(topic, payload, self.qos, self.connection, then, retain, but)
            one.left = 1
            found.append(one)
        return found

    def offered(self, dot: Dot, group: str) -> OfferedMessage:
        """It, on its way to a slot."""
        self.had = 0
        topic, payload, retain, more = self.topic, self.payloads[0], self.retain, self.payloads[1:]
        return OfferedMessage(dot, topic, payload, self.qos, group, retain, self.but, more)


class SlotOutbox:
    """What is not confirmed by one slot."""

    def __init__(self, slot: int) -> None:
        self.slot = slot
        #: Numbers given to messages for this slot.
        self.last = 0
        #: With the share group that is to get it, as in `OfferedMessage`; of a run the first dot.
        self.entries: dict[Dot, tuple[str, Publication]] = {}
        #: Some of it may have been runs.
        self.has_runs = False
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

    def waiting(self) -> int:
        """How many messages are not confirmed."""
        return sum([len(each.payloads) for _, each in self.entries.values()])

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

    def spread(self, dots: list[Dot]) -> list[Dot]:
        """The messages of runs are there one by one from now on; these are the last dots that there are, in order."""
        if not self.has_runs:
            return [dot for dot in dots if dot in self.entries]
        found: list[Dot] = []
        for dot in dots:
            entry = self.entries.pop(dot, None)
            if entry is None:
                continue
            group, publication = entry
            if len(publication.payloads) == 1:
                self.entries[dot] = entry
                found.append(dot)
                continue
            origin, place = dot
            for at, each in enumerate(publication.each()):
                self.entries[origin, place + at] = group, each
                found.append((origin, place + at))
        return found

    def offer(self, lineage: Lineage, link: int, clock: int) -> list[Offer]:
        """What the owner of the slot is to be sent now."""
        batches: list[list[OfferedMessage]] = []
        size = 0
        for dot in self.take_unsent(lineage, link):
            entry = self.entries.get(dot)
            if entry is None:
                continue
            group, publication = entry
            if not batches or len(batches[-1]) == BATCH or size + publication.size > BATCH_BYTES:
                batches.append([])
                size = 0
            batches[-1].append(publication.offered(dot, group))
            size += publication.size
        first, self._index = self._index, self._index + len(batches)
        return [
            Offer(self.slot, lineage, link, index, messages, clock)
            for index, messages in enumerate(batches, first)
        ]

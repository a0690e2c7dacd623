"""The origin: gives messages their dots, keeps them until they are safe, and has them acknowledged."""

from collections import deque
from collections.abc import Callable
from typing import Final

from vmq.clustering.messages.fronts import OfferTaken
from vmq.clustering.messages.slots import SlotView
from vmq.clustering.origin.outbox import Publication, SlotOutbox
from vmq.clustering.slots.flow import FlowRun
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.owner import SlotOwner
from vmq.clustering.slots.turns import Turns
from vmq.clustering.slots.words import Address, Dot, store_of

#: Bytes of messages that are not safe; above it publishers are not read on.
MAX_BYTES: Final = 64 << 20


class OpenRun:
    """A publication that may become a run, or a longer one."""

    def __init__(
        self, publication: Publication, outbox: SlotOutbox, group: str, told: object
    ) -> None:
        self.publication = publication
        self.outbox = outbox
        self.group = group
        self.told = told
        #: The place of its last message.
        self.last = outbox.last


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
        #: The slots of this node, which take what they are offered without a message.
        self.owners: dict[int, SlotOwner] = {}
        self.turns = Turns()
        #: Of these messages, and of those of QoS 2 that no owner knows yet.
        self.bytes = 0
        #: Connections whose clients are elsewhere, since the last turn.
        self._dropped: set[int] = set()
        #: The last publication of this turn, if it may grow.
        self._open: OpenRun | None = None

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
        self, addresses: list[Address], publication: Publication, told: object = None
    ) -> None:
        """Offers a message to its slots; `told` is who is told when they have it, for messages that follow at once."""
        for slot, dot, group in addresses:
            older = self._outbox(slot).add(dot, group, publication)
            self._touched[slot] = None
            if older is not None:  # of a connection that is gone: nobody waits for it
                older.then = _nothing
                self.confirm(older)
        if publication.left:
            self.bytes += publication.size
        else:
            publication.then()
        self._open = None
        if told is not None and len(addresses) == 1:
            slot, _, group = addresses[0]
            self._open = OpenRun(publication, self._outbox(slot), group, told)

    def grow(
        self,
        target: tuple[int, str],
        topic: bytes,
        payload: bytes,
        retain: bool,
        but: str,
        told: object,
    ) -> bool:
        """A message at QoS 1 joins the last one, if it follows that at once and is told of to the same; False: not."""
        run = self._open
        if run is None or run.told is not told:
            return False
        slot, group = target
        outbox, publication = run.outbox, run.publication
        if outbox.slot != slot or run.group != group or outbox.last != run.last:
            return False
        size = publication.size
        if not publication.grow(topic, payload, retain, but):
            return False
        outbox.has_runs = True
        outbox.last += 1
        run.last = outbox.last
        self.bytes += publication.size - size
        return True

    def on_taken(self, message: OfferTaken) -> None:
        outbox = self._outboxes.get(message.slot)
        if outbox is None or message.lineage != self._view(message.slot).lineage:
            return
        self._here.heard_of(message.clock)
        for dot in message.dots:
            self.confirm(outbox.remove(dot))
        if message.again:
            outbox.restart()
            self._touched[message.slot] = None

    def had(self, slot: int, dot: Dot, count: int) -> None:
        """A client of this node has so many more of what was offered as one, which nobody else is to get."""
        outbox = self._outboxes.get(slot)
        entry = None if outbox is None else outbox.entries.get(dot)
        if outbox is None or entry is None:
            return
        _, publication = entry
        publication.had += count
        if publication.had >= len(publication.payloads):  # one for several slots, each has once
            self.confirm(outbox.remove(dot))

    def confirm(self, publication: Publication | None) -> None:
        """Somebody has a message who was to get it."""
        if publication is None:
            return
        publication.left -= 1
        if publication.left == 0:
            self.bytes -= publication.size
            publication.then()

    def drop(self, connection: int) -> None:
        """The client is elsewhere: it has sent its QoS 1 messages again, and old ones would come after newer."""
        self._open = None
        self._dropped.add(connection)

    def _drop_all(self) -> None:
        """Of all of a turn at once: many may have gone elsewhere while this node was cut off, and much may wait."""
        dropped, self._dropped = self._dropped, set()
        for outbox in self._outboxes.values():
            for dot, (_, publication) in list(outbox.entries.items()):
                if publication.qos == 1 and publication.connection in dropped:
                    publication.then = _nothing
                    self.confirm(outbox.remove(dot))

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
        self._open = None
        if self._dropped:
            self._drop_all()
        touched, self._touched = self._touched, {}
        for slot in touched:
            outbox = self._outboxes[slot]
            if not outbox.entries:
                continue
            view = self._view(slot)
            owner = store_of(view.owner)
            link = reach.link(owner)
            if link and owner == self._here.store and self._give(slot, outbox, view, link):
                continue
            if link:
                for offer in outbox.offer(view.lineage, link, self._here.clock):
                    self._here.send(owner, offer)

    def _give(self, slot: int, outbox: SlotOutbox, view: SlotView, link: int) -> bool:
        """Has a slot of this node take what there is, without a message; False: it is not there."""
        owner = self.owners.get(slot)
        if owner is None or owner.view.lineage != view.lineage:
            return False
        if not owner.serves(self._here.store):
            owner.refuse(self._here.store)
            return True  # all stays here: what comes next would else be taken before it
        dots = deque(outbox.take_unsent(view.lineage, link))
        if not dots:
            return True
        taken: list[Dot] = []
        is_due = False
        while dots:
            dot = dots.popleft()
            entry = outbox.entries.get(dot)
            if entry is None:
                continue
            group, each = entry
            flowing: FlowRun | None = None
            if each.qos == 1:
                flows = owner.attachments.flows
                flowing = flows.take(dot, each.topic, each.payloads, group, each.retain, each.but)
            if flowing is not None:
                if flowing.front == self._here.store and self.turns.is_patient():
                    self._await(owner, flowing, outbox, dot)
                else:
                    taken.append(dot)
                continue
            if len(each.payloads) > 1:
                dots = deque(outbox.spread([dot, *dots]))
                continue
            is_due = True
            payload = each.payloads[0]
            if owner.take_here(dot, each.topic, payload, each.qos, group, each.retain, each.but):
                taken.append(dot)
        if taken or is_due:
            self.turns.touch(slot)
            owner.when_safe(lambda: self._taken_here(outbox, taken))
        else:
            self.turns.touch_later(slot)
        return True

    def _await(self, owner: SlotOwner, flowing: FlowRun, outbox: SlotOutbox, dot: Dot) -> None:
        """What flows to a client of this node is acknowledged when that has it."""
        self.turns.awaiting[owner.slot] = None
        owner.when_had(flowing, lambda: self.confirm(outbox.remove(dot)))

    def _taken_here(self, outbox: SlotOutbox, dots: list[Dot]) -> None:
        for dot in dots:
            self.confirm(outbox.remove(dot))

    def waiting(self) -> int:
        """Messages that some slot does not have yet."""
        return sum(each.waiting() for each in self._outboxes.values())


def _nothing() -> None:
    pass

"""The slots of one node: which it owns, which it follows, and when it takes one over.

Views spread by gossip, and with every message about a slot; the greater holds. When the owner of a slot is gone (out of
reach of everybody in reach, or in another life than the view says), a follower takes over, in the next epoch. Another
node does so a while later: if there is a follower, it will be faster.
"""

from collections.abc import Iterable
from typing import Final

from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.fronts import Attach, FromClient, Offer
from vmq.clustering.messages.slots import (
    AskFork,
    Beat,
    ForkIncluded,
    NoFork,
    SlotRecords,
    SlotStored,
    SlotView,
    SlotViews,
    StatePart,
    TakeTurn,
)
from vmq.clustering.slots.attachment import is_for_later
from vmq.clustering.slots.copies import SlotCopy, load_copies
from vmq.clustering.slots.effects import SlotReading
from vmq.clustering.slots.followers import cut
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.owner import SlotOwner
from vmq.clustering.slots.placement import SlotPlaces, weight
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.turns import Rounds, Turns
from vmq.clustering.slots.words import NO_LINEAGE, store_of

#: Looks until who is no follower takes a slot over: the owner that was, if it has a copy; others; others of its host,
#: of which no copy is anywhere else, and whose start takes a second of a processor: on a busy machine, several.
_OWNER_WAITS: Final = 3
_OTHERS_WAIT: Final = 6
HOST_WAITS = 100  # tests set another
_NOBODY: Final = SlotView()


class SlotMachine:
    """All slots, as one node has them.

    Args:
        slots: how many the cluster has.
    """

    def __init__(self, here: LocalNode, slots: int) -> None:
        self.here = here
        self.slots = slots
        self.views, self.copies = load_copies(here.effects.disk)
        self.owners: dict[int, SlotOwner] = {}
        self.turns = Turns()
        #: Who asked for forks that the disk did not give: they do not ask again.
        self._unanswered: dict[tuple[int, int], AskFork] = {}
        #: Views that changed here since they were told.
        self._news: dict[int, None] = {}
        self.patience: dict[int, int] = {}
        self.rounds = Rounds(slots)
        #: The stores that have told which views they know.
        self.told_by: set[int] = set()
        #: The incarnations, links and holds for which a peer has been told all views.
        self._told: dict[int, tuple[int, int, int]] = {}
        self._up: frozenset[int] = frozenset()
        #: Those of them that are not about to leave.
        self._heirs: frozenset[int] = frozenset()
        #: A lineage, or whom somebody in reach hears, is another than at the last look; whether of each member it was
        #: known then whether it is in reach.
        self.is_fresh, self._was_settled = True, False
        self.places = SlotPlaces(here, slots)
        #: Slots whose view became another since somebody looked.
        self.moved: dict[int, None] = {}
        #: Slots that this node has taken over since somebody looked.
        self.taken: list[int] = []

    # Views

    def view(self, slot: int) -> SlotView:
        return self.views.get(slot, _NOBODY)

    def learn(self, slot: int, view: SlotView) -> None:
        """A view, from wherever it comes."""
        mine = self.view(slot)
        if not mine < view:
            return
        owner = self.owners.get(slot)
        if mine.lineage != view.lineage:
            self.is_fresh = True
            self.patience.pop(slot, None)
            self.moved[slot] = None
            held = self.copies.get(slot)
            if owner is not None:
                self._resign(slot, owner)
            elif held is not None and held.is_current(mine, self.here.store) and not held.lacks():
                held.current = mine.lineage
        elif owner is not None:
            owner.view = view
        self.views[slot] = view
        self._news[slot] = None
        copy = self.copies.get(slot)
        if copy is None and owner is None:
            copy = self.copies[slot] = SlotCopy(slot)
        if copy is not None:
            copy.note(self.here.effects, view)
        elif owner is not None:
            self._holder(owner).note(self.here.effects, view)

    def _holder(self, owner: SlotOwner) -> SlotCopy:
        """What an owner has on disk, as a copy."""
        copy = SlotCopy(owner.slot)
        copy.whole = owner.disk
        copy.has_followed = True
        copy.last_number = owner.last_number
        return copy

    def _resign(self, slot: int, owner: SlotOwner) -> None:
        """Another lineage has begun: what this node has is a copy, or a fork."""
        owner.state.tell_late()
        owner.publish()
        owner.followers.end()
        del self.owners[slot]
        self.places.stay(slot)
        self.rounds.note(slot, False)
        self.copies[slot] = copy = self._holder(owner)
        if owner.state.lacks == NO_LINEAGE:
            copy.current = owner.view.lineage

    def take_over(self, slot: int) -> None:
        """Begins the next lineage with what is here."""
        me = self.here.incarnation
        copy = self.copies.get(slot) or SlotCopy(slot)
        old = self.view(slot)
        is_current = copy.is_current(old, self.here.store)
        state: SlotState | None = None
        with self._reading(slot, True):  # of this slot alone: others are served
            copy.settle(self.here.effects, me, old)
            state = copy.state(self.here.effects, is_cold=True)
        if state is None:
            return
        if old.epoch and not is_current:
            state.lacks = max(old.lineage, state.lacks)
        disk = copy.whole or copy.new_set(state.lineage, 0)
        view = SlotView(self.view(slot).epoch + 1, me, 1, ())
        self.learn(slot, view)
        self.copies.pop(slot, None)
        self.owners[slot] = owner = SlotOwner(self.here, slot, view, state, disk, self.learn)
        owner.last_number = copy.last_number
        self.taken.append(slot)
        self._holder(owner).note(self.here.effects, view)
        self.turns.touch(slot)
        with self._reading(slot):
            owner.look()

    def look(self, is_beat: bool) -> None:
        """Time has passed; with a heartbeat, which is due."""
        reach = self.here.reach
        if is_beat:
            for store in reach.peers:
                self.beat(store)
            for (store, slot), asked in list(self._unanswered.items()):
                with self._reading(slot, True):
                    self._for_copy(store, asked)
        up, heirs = frozenset(reach.up()), frozenset(reach.heirs())
        is_changed = self._notice_lives(up) or (up, heirs) != (self._up, self._heirs)
        is_settled = reach.is_settled()
        if not (is_beat or is_changed or self.is_fresh or self.patience):
            if is_settled == self._was_settled:
                return  # as most often: nobody is missed, and nothing is new
        is_new = is_changed or self.is_fresh or self._was_settled != is_settled
        if is_new or len(up) < len(reach.peers) or self.patience or self.here.is_leaving:
            self.rounds.are_all_due = True
        self.is_fresh, self._was_settled = False, is_settled
        self.rounds.settle(self.owners)
        self.rounds.begin(self.views, is_beat or is_changed)
        self._up, self._heirs = up, heirs
        self.look_on()

    def look_on(self) -> bool:
        """Looks at slots that a look has not come to, while there is time; whether some are left."""
        left = self.rounds.left
        for slot in list(left):
            if not self.here.has_time():
                break
            is_for_owner = left.pop(slot)
            owner = self.owners.get(slot)
            if owner is not None:
                if is_for_owner:
                    self.turns.touch(slot)
                    with self._reading(slot, True):
                        owner.look()
                        self._hand_over(owner)
            elif self._is_orphaned(slot) and self.here.reach.is_settled():
                self._wait_for(slot)
            else:
                self.patience.pop(slot, None)
        return bool(left)

    def beat(self, store: int) -> None:
        """Tells a peer that this node is there."""
        here = self.here
        reach, leaves = here.reach, here.is_leaving
        now = max(0, here.now)  # no clock of a machine is before 1970; that of a simulator may be
        here.send(store, Beat(here.incarnation, reach.heard(), leaves, here.clock, now))

    def _notice_lives(self, up: frozenset[int]) -> bool:
        """What a peer said holds for one life of it and of the link, until this node is held up; whether that ends."""
        reach, is_changed = self.here.reach, False
        for store in sorted(up | set(self._told)):
            life = reach.incarnation(store), reach.link(store), reach.holds
            if store not in up:
                self._told.pop(store, None)
            elif self._told.get(store) != life:
                self._told[store] = life
                is_changed = True
                for owner in self.owners.values():
                    owner.forget(store)
                self._tell(store, self.views)
        return is_changed

    def _tell(self, store: int, slots: Iterable[int]) -> None:
        views = [(slot, self.views[slot]) for slot in slots if slot in self.views]
        if views:
            self.here.send(store, SlotViews(views))

    def _is_orphaned(self, slot: int) -> bool:
        """Whether the owner is gone: for everybody in reach, or with the life in which it was the owner."""
        reach, owner = self.here.reach, self.view(slot).owner
        if (store := store_of(owner)) == self.here.store:
            return True
        peer = reach.peers.get(store)
        if peer is not None and (peer.is_up or peer.incarnation > owner):
            return peer.incarnation > owner
        if peer is None or peer.is_dead:
            return True
        return reach.is_gone(store) and not reach.is_heard_by_another(store)

    def _wait_for(self, slot: int) -> None:
        view, me, reach = self.view(slot), self.here.store, self.here.reach
        waited = self.patience[slot] = self.patience.get(slot, 0) + 1
        copy = self.copies.get(slot)
        whole = None if copy is None else copy.whole
        owner = store_of(view.owner)
        is_own, is_of_host = owner == me, reach.is_here(owner)
        has_copy = whole is not None and whole.lineage == view.lineage
        if me in view.followers and (has_copy or not is_of_host):
            needed = 1 + view.followers.index(me)
        elif is_own and whole is not None:
            needed = _OWNER_WAITS
        else:
            up = [*reach.up(), me]
            order = sorted(up, key=lambda store: weight(slot, str(store)), reverse=True)
            needed = _OTHERS_WAIT + 3 * order.index(me) + HOST_WAITS * is_of_host
        if waited >= needed and (is_own or not self.here.is_leaving):
            self.take_over(slot)

    def own(self) -> list[int]:
        """The slots that are this node's, those of its last life too that it has not taken up again."""
        return [
            slot for slot, view in self.views.items() if store_of(view.owner) == self.here.store
        ]

    # Handover by plan

    def _hand_over(self, owner: SlotOwner) -> None:
        """Has a slot go where it should be, when all is well."""
        reach = self.here.reach
        if owner.wish or not owner.serves(self.here.store):
            return
        if self.here.is_leaving:
            heirs = owner.heirs()
            owner.wish = max(heirs, key=lambda store: weight(owner.slot, str(store)), default=0)
            return
        if wider := reach.wider():
            # Who reaches this node's slots by nobody else would wait as long as its link is broken.
            owner.wish = max(wider, key=lambda store: weight(owner.slot, str(store)))
            return
        wanted = self.places.wanted(owner.slot)
        if wanted and wanted[0] != self.here.store and wanted[0] in reach.heirs():
            owner.wish = wanted[0]
        owner.planned = self.places.followers(owner.slot, owner.view.followers)

    # Messages

    def receive(self, sender: int, message: NodeMessage) -> bool:
        """Takes a message of another node, or of this one; False: it is none about slots."""
        self.here.reach.on_message(sender)
        if isinstance(message, Beat):
            before = self.here.reach.incarnation(sender)
            hears, heirs = self.here.reach.hears(sender), self.here.reach.heirs()
            self.here.reach.on_beat(sender, message)
            self.is_fresh = self.is_fresh or hears != self.here.reach.hears(sender)
            self.here.heard_of(message.clock)
            if before != self.here.reach.incarnation(sender):
                for owner in self.owners.values():
                    owner.forget(sender)
            if heirs != self.here.reach.heirs():
                self.look(False)  # who is about to leave is to follow nobody when it has gone
        elif isinstance(message, SlotViews):
            self.told_by.add(sender)
            for slot, view in message.views:
                self.learn(slot, view)
        elif isinstance(message, SlotStored | NoFork | Offer | Attach | FromClient):
            with self._reading(message.slot):
                self._for_owner(sender, message)
        elif isinstance(message, AskFork | SlotRecords | StatePart | ForkIncluded | TakeTurn):
            with self._reading(message.slot, isinstance(message, AskFork)):
                self._for_copy(sender, message)
        else:
            return False
        return True

    def _reading(self, slot: int, is_all: bool = False) -> SlotReading:
        """What is done of a slot while its disk may fail."""
        return SlotReading(self.here.effects.unreadable, slot, is_all)

    def _for_copy(
        self, sender: int, message: AskFork | SlotRecords | StatePart | ForkIncluded | TakeTurn
    ) -> None:
        if isinstance(message, AskFork):
            self._unanswered[sender, message.slot] = message
            self._on_ask(sender, message)
            del self._unanswered[sender, message.slot]
        elif isinstance(message, SlotRecords):
            self._on_records(sender, message)
        elif isinstance(message, StatePart):
            self._on_part(sender, message)
        elif isinstance(message, ForkIncluded):
            self._on_included(message)
        else:
            self._on_turn(message)

    def _for_owner(
        self, sender: int, message: SlotStored | NoFork | Offer | Attach | FromClient
    ) -> None:
        owner = self.owners.get(message.slot)
        if owner is None:
            return
        is_due = True
        if isinstance(message, SlotStored):
            is_due = False
            owner.on_stored(sender, message)
        elif isinstance(message, NoFork):
            owner.on_no_fork(sender, message)
        elif isinstance(message, Offer):
            is_due = owner.on_offer(sender, message, self.turns.is_patient)
            if owner.awaits():
                self.turns.awaiting[message.slot] = None
        elif isinstance(message, Attach):
            owner.attachments.on_attach(sender, message)
        else:
            is_due = not is_for_later(message.steps)
            owner.attachments.on_steps(sender, message)
        (self.turns.touch if is_due else self.turns.touch_later)(message.slot)

    def _copy(self, slot: int) -> SlotCopy:
        found = self.copies.get(slot)
        if found is None:
            found = self.copies[slot] = SlotCopy(slot)
        return found

    def _accepts(self, sender: int, slot: int, view: SlotView) -> bool:
        """Whether what a lineage says holds here; if a newer one does, the sender is told."""
        self.learn(slot, view)
        if self.view(slot).lineage == view.lineage and slot not in self.owners:
            return True
        self._tell(sender, [slot])
        return False

    def _on_ask(self, sender: int, message: AskFork) -> None:
        slot = message.slot
        if not self._accepts(sender, slot, message.view):
            return
        copy = self._copy(slot)
        included = dict(message.included)
        if not copy.is_included(included):
            copy.settle(self.here.effects, self.here.incarnation, self.view(slot))
        lineage, version = copy.base()
        if copy.is_included(included):
            self.here.effects.must_sync = True
            answer = NoFork(slot, message.view.lineage, lineage, version, copy.current)
            self.here.effects.send_stored(sender, answer)
            return
        assert copy.whole is not None
        view = self.view(slot)
        records = copy.whole.read(self.here.effects)
        size = self.here.part_bytes
        for part in cut(slot, view, lineage, version, records, size, None, copy.current):
            self.here.effects.send_stored(sender, part)

    def _on_records(self, sender: int, message: SlotRecords) -> None:
        slot, lineage = message.slot, message.view.lineage
        if not self._accepts(sender, slot, message.view):
            return
        copy = self._copy(slot)
        if self.here.store not in self.view(slot).followers:
            return
        if message.base is not None and copy.building is None and copy.base() == message.base:
            copy.adopt(lineage)
        after, version = message.after, message.version
        if copy.change(self.here.effects, lineage, after, version, message.records, message.safe):
            copy.has_followed = True
            self._confirm(sender, slot, copy)
            return
        if copy.stray != (lineage, after):
            # Something is missing: the owner is to begin again with what is here.
            self.here.effects.send_stored(sender, NoFork(slot, lineage, *copy.base()))
        copy.stray = lineage, version

    def _confirm(self, sender: int, slot: int, copy: SlotCopy) -> None:
        held = copy.building or copy.whole
        assert held is not None
        answer = SlotStored(slot, held.lineage, held.version, copy.is_exact())
        self.here.effects.send_stored(sender, answer)

    def _on_part(self, sender: int, part: StatePart) -> None:
        if part.is_fork:
            owner = self.owners.get(part.slot)
            if owner is not None and part.view.lineage == owner.view.lineage:
                self.turns.touch(part.slot)
                owner.on_fork(sender, part)
            return
        if not self._accepts(sender, part.slot, part.view):
            return
        if self.here.store not in self.view(part.slot).followers:
            return
        copy = self._copy(part.slot)
        if part.index == 0:
            copy.begin(part.lineage, part.version)
        built = copy.building
        if built is None or built.lineage != part.lineage or built.next_part != part.index:
            return
        copy.add_part(self.here.effects, part.records)
        if part.is_last:
            copy.finish(self.here.effects, self.view(part.slot))
            copy.has_followed = True
        self._confirm(sender, part.slot, copy)

    def _on_included(self, message: ForkIncluded) -> None:
        slot = message.slot
        self.learn(slot, message.view)
        copy, view = self.copies.get(slot), self.view(slot)
        if copy is None or slot in self.owners or self.here.store in view.followers:
            return
        if copy.is_included(dict(message.included)):
            copy.delete(self.here.effects, view)

    def _on_turn(self, message: TakeTurn) -> None:
        """The owner hands over; what this copy is behind comes as a fork."""
        slot = message.slot
        copy = self.copies.get(slot)
        if self.view(slot).lineage == message.view.lineage and copy is not None and copy.whole:
            self.take_over(slot)

    def restless(self) -> list[SlotOwner]:
        """The owners here for whom something waits for a heartbeat."""
        self.rounds.settle(self.owners)
        return [self.owners[slot] for slot in sorted(self.rounds.restless)]

    # Turns

    def flush(self) -> None:
        """The turn is over."""
        for slot, is_due in self.turns.busy():
            owner = self.owners.get(slot)
            if owner is not None:
                with self._reading(slot):
                    owner.flush(is_due)
            is_busy = owner is not None and not owner.is_idle()
            self.rounds.unknown[slot] = None
            self.turns.looked(slot, is_busy, owner is not None and owner.is_behind())
        if self._news:
            news, self._news = self._news, {}
            for store in self.here.reach.up():
                self._tell(store, news)

    def found(self) -> None:
        """No member knows who has some of the slots: whoever is first for one, takes it over when it has looked often.

        A node without other members does it at once.
        """
        if len(self.views) == self.slots:
            return
        for slot in range(self.slots):
            if slot not in self.views:
                self.views[slot] = _NOBODY
                self.is_fresh = True
                if not self.here.reach.peers:
                    self.take_over(slot)

"""Slots in which something happens, until it is done, and those that a heartbeat looks at.

An idle slot costs nothing but its line in the metadata: however many slots there are, a heartbeat looks at as many of
them as `LOOKED_AT_ONCE`, and at those in which something waits for it. All are looked at while a member is missed, and
when something is new: who is in reach, or who could follow.
"""

from collections.abc import Collection

from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.owner import SlotOwner

#: Slots that are looked at with each heartbeat though nothing is new.
LOOKED_AT_ONCE = 32  # tests set another


class Turns:
    """Those of one node."""

    def __init__(self) -> None:
        #: Slots with something to do at the end of the turn, or that wait for the disk or for followers; whether what
        #: they have changed is due.
        self._busy: dict[int, bool] = {}
        #: Slots in which something has changed that nobody waits for: it is written with what comes, or soon.
        self._behind: dict[int, None] = {}
        #: Slots in which publishers wait for clients (`OwnedSlot.when_had`); so many more runs do not wait for these.
        self.awaiting: dict[int, None] = {}
        self.hasty: int = 0
        #: Slots in which something has happened since somebody looked.
        self.unseen: dict[int, None] = {}

    def is_patient(self) -> bool:
        """Whether the next run waits for its client."""
        if self.hasty == 0:
            return True
        self.hasty -= 1
        return False

    def touch(self, slot: int) -> None:
        """Something happens to a slot in this turn."""
        self._busy[slot] = True

    def touch_later(self, slot: int) -> None:
        """Something happens to it; what changes by that is not due."""
        self._busy.setdefault(slot, False)

    def are_over(self) -> bool:
        """Whether no slot has anything to do."""
        return not (self._busy or self._behind or self.awaiting)

    def catch_up(self) -> list[int]:
        """What has changed and nobody waits for is due at the end of this turn; the slots with such."""
        behind = list(self._behind)
        for slot in behind:
            self.touch(slot)
        self._behind.clear()
        return behind

    def busy(self) -> list[tuple[int, bool]]:
        """Slots with something to do, and whether what they change is due."""
        return list(self._busy.items())

    def take_unseen(self) -> dict[int, None]:
        """Slots in which something has happened since this was asked last."""
        unseen, self.unseen = self.unseen, {}
        return unseen

    def looked(self, slot: int, is_busy: bool, is_behind: bool) -> None:
        """What there was to do is done; whether it waits for something, and has changed what is not written."""
        self.unseen[slot] = None
        if is_busy:
            self._busy[slot] = False
        else:
            del self._busy[slot]
        if is_behind:
            self._behind[slot] = None
        else:
            self._behind.pop(slot, None)


class Rounds:
    """The rounds of one node.

    Args:
        slots: how many there are.
    """

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._next = 0
        #: Slots that this node owns and in which something waits for the next heartbeat.
        self.restless: set[int] = set()
        #: Slots in which something has happened since it was known of them.
        self.unknown: dict[int, None] = {}
        #: Something is new, and not all of them were looked at since.
        self.are_all_due = True
        #: Slots that are to be looked at still, and whether their owners are.
        self.left: dict[int, bool] = {}

    def begin(self, slots: Collection[int], is_for_owners: bool) -> None:
        """Some of these slots are to be looked at: those that are due; `is_for_owners`: what they wait for, too."""
        due = self.due(slots)
        if is_for_owners:
            self.are_all_due = False
        for slot in due:
            self.left[slot] = is_for_owners or self.left.get(slot, False)

    def due(self, slots: Collection[int]) -> list[int]:
        """Those of these to look at now."""
        if self.are_all_due:
            return list(slots)
        first, self._next = self._next, (self._next + LOOKED_AT_ONCE) % self._slots
        due = {(first + at) % self._slots for at in range(LOOKED_AT_ONCE)}
        return [slot for slot in sorted(due | self.restless) if slot in slots]

    def settle(self, owners: dict[int, SlotOwner]) -> None:
        """Notes of these slots whether something waits in them."""
        unknown, self.unknown = self.unknown, {}
        for slot in unknown:
            owner = owners.get(slot)
            is_at_rest = owner is None or (owner.is_idle() and owner.is_at_rest())
            self.note(slot, not is_at_rest)

    def note(self, slot: int, is_restless: bool) -> None:
        """Something has happened in a slot, after which something waits in it, or nothing."""
        if is_restless:
            self.restless.add(slot)
        else:
            self.restless.discard(slot)


class SlotLacks:
    """What slots of one node lack, as of the last look; and whose clients are away.

    Args:
        owners: those of its slots.
        turns: say in which of them something has happened.
    """

    def __init__(self, here: LocalNode, owners: dict[int, SlotOwner], turns: Turns) -> None:
        self._here = here
        self._owners = owners
        self._turns = turns
        #: Slots without a follower that there could be, and those that wait for what others have of them.
        self.alone: int = 0
        self.waiting: int = 0
        #: By follower, how many of them it had not stored as far as they were a look before.
        self.behind: dict[int, int] = {}
        #: What all slots go by: whether there could be followers, whether of each member it is known whether it is in
        #: reach, and who is, in which life and by which link.
        self._facts: tuple[bool, bool, int, list[tuple[int, int, int]]] = (False, False, 0, [])
        #: Slots that lack something, or whose version was another one than a look before.
        self._lacking: dict[int, None] = {}
        #: Slots that were looked at in the last look.
        self.looked_at: int = 0

    def look(self) -> None:
        """Counts anew, once a second: slots in which nothing has happened, and that lacked nothing, lack nothing."""
        reach = self._here.reach
        could_follow = self._here.replicas > 1 and bool(reach.fit())
        lives = [(each, reach.incarnation(each), reach.link(each)) for each in reach.up()]
        facts = could_follow, reach.is_settled(), reach.holds, lives
        due = self._turns.take_unseen()
        due.update(dict.fromkeys(self._lacking))
        if facts != self._facts:
            self._facts = facts
            due.update(dict.fromkeys(self._owners))
        self.looked_at = len(due)
        self._lacking = {}
        self.alone = self.waiting = 0
        self.behind = {}
        for slot in due:
            owner = self._owners.get(slot)
            if owner is not None:
                self._look_at(slot, owner)

    def _look_at(self, slot: int, owner: SlotOwner) -> None:
        could_follow, is_settled = self._facts[:2]
        is_waiting = not is_settled or not owner.has_heard(self._here.reach.up())
        followers = owner.view.followers
        is_alone = could_follow and not followers
        behind = [each for each in followers if not owner.followers.has(each, owner.looked_version)]
        is_moved = bool(followers) and owner.looked_version != owner.state.version
        if is_moved:
            owner.looked_version = owner.state.version
        if not (is_waiting or is_alone or behind or is_moved):
            return
        self._lacking[slot] = None
        self.waiting += is_waiting
        self.alone += is_alone
        for store in behind:
            self.behind[store] = self.behind.get(store, 0) + 1

    def count_away(self) -> int:
        """Sessions in slots of this node whose clients are not connected anywhere."""
        count = 0
        for owner in self._owners.values():
            count += owner.attachments.away.count(owner.attachments.serving)
        return count

"""Which slots a node looks at with a heartbeat: those in which something waits for it, and some more.

An idle slot costs nothing but its line in the metadata: however many slots there are, a heartbeat looks at as many of
them as `LOOKED_AT_ONCE`. All are looked at while a member is missed, and when something is new: who is in reach, or
who could follow.
"""

from collections.abc import Iterable

#: Slots that are looked at with each heartbeat though nothing is new.
LOOKED_AT_ONCE = 128  # tests set another


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
        #: Something is new, and not all of them were looked at since.
        self.are_all_due = True

    def due(self, slots: Iterable[int]) -> list[int]:
        """Those of these to look at now."""
        if self.are_all_due:
            return list(slots)
        first, self._next = self._next, (self._next + LOOKED_AT_ONCE) % self._slots
        return [
            slot
            for slot in slots
            if (slot - first) % self._slots < LOOKED_AT_ONCE or slot in self.restless
        ]

    def note(self, slot: int, is_restless: bool) -> None:
        """Something has happened in a slot, after which something waits in it, or nothing."""
        if is_restless:
            self.restless.add(slot)
        else:
            self.restless.discard(slot)

"""Slots in which something happens, until it is done."""


class Turns:
    """Those of one node."""

    def __init__(self) -> None:
        #: Slots with something to do at the end of the turn, or that wait for the disk or for followers; whether what
        #: they have changed is due.
        self._busy: dict[int, bool] = {}
        #: Slots in which something has changed that nobody waits for: it is written with what comes, or soon.
        self._behind: dict[int, None] = {}

    def touch(self, slot: int) -> None:
        """Something happens to a slot in this turn."""
        self._busy[slot] = True

    def touch_later(self, slot: int) -> None:
        """Something happens to it; what changes by that is not due."""
        self._busy.setdefault(slot, False)

    def catch_up(self) -> None:
        """What has changed and nobody waits for is due at the end of this turn."""
        for slot in self._behind:
            self.touch(slot)
        self._behind.clear()

    def busy(self) -> list[tuple[int, bool]]:
        """Slots with something to do, and whether what they change is due."""
        return list(self._busy.items())

    def looked(self, slot: int, is_busy: bool, is_behind: bool) -> None:
        """What there was to do is done; whether it waits for something, and has changed what is not written."""
        if is_busy:
            self._busy[slot] = False
        else:
            del self._busy[slot]
        if is_behind:
            self._behind[slot] = None
        else:
            self._behind.pop(slot, None)

"""How long to wait before a process that ended is started again. Pure."""

from typing import Final

FIRST: Final = 0.1
LONGEST: Final = 30.0
#: Seconds of life after which an end is no part of the trouble before it.
STEADY: Final = 60.0


class Backoff:
    """Waits that double from one early end to the next, up to LONGEST."""

    def __init__(self) -> None:
        self._next = FIRST

    def after(self, lived: float) -> float:
        """Seconds to wait after a life of so many seconds."""
        if lived >= STEADY:
            self._next = FIRST
        wait = self._next
        self._next = min(LONGEST, wait * 2)
        return wait

"""Whether what goes to a process of this machine comes in bunches: then a turn of the event loop is one write.

A write wakes the other process up, which costs both sides more than its bytes. But who waits for the end of a turn has
the event loop look at its sockets once more. So what comes by itself goes at once, and what comes behind something that
came just before waits with all of its turn, as soon as that was so a moment ago.

Compiled.
"""

from typing import Final

#: Seconds between two, from which on they are no bunch.
CLOSE: Final = 50e-6
#: Seconds for which anything waits in a long turn.
LONGEST: Final = 200e-6
#: Of so many that came by themselves each waits, after a bunch, for it may be the first of one.
SPARED: Final = 4


class Bunches:
    """What one peer is told, as it comes."""

    def __init__(self) -> None:
        self._last = 0.0
        self._left = 0
        self._wait = False

    def wait(self, now: float) -> bool:
        """Whether what comes now, in seconds of a clock that never goes back, waits for the end of its turn."""
        if now - self._last < CLOSE:
            self._left = SPARED
        elif self._left:
            self._left -= 1
            self._wait = True
        else:
            self._wait = False
        self._last = now
        return self._wait

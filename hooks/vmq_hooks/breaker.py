"""A circuit breaker: whoever fails again and again is not asked for a while.

Closed, it lets calls through; after so many failures in a row it is open, and nobody is asked; after
so many seconds it lets one call through, which closes it or opens it again.
"""

from collections.abc import Callable
from enum import Enum


class State(Enum):
    """What a breaker does with calls."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"


class Breaker:
    """Whether somebody may be asked.

    Args:
        limit: failures in a row that open it; 0 is never.
        pause: seconds that it stays open.
        clock: monotonic seconds.
    """

    def __init__(self, limit: int, pause: float, clock: Callable[[], float]) -> None:
        self.limit = limit
        self.pause = pause
        self.state = State.CLOSED
        #: Failures in a row. While it is 0 nobody needs to look at the breaker.
        self.failures = 0
        #: Times that it opened.
        self.opened = 0
        self._clock = clock
        self._retry_at = 0.0

    def allows(self) -> bool:
        """Whether a call may be made now; whoever makes it tells how it went."""
        if self.state is State.CLOSED:
            return True
        if self._clock() < self._retry_at:
            return False
        self.state = State.HALF_OPEN
        # A probe that never tells its end must not keep the breaker open for ever.
        self._retry_at = self._clock() + self.pause
        return True

    def on_success(self) -> bool:
        """A call went well. Returns whether this closed the breaker."""
        self.failures = 0
        was_open = self.state is not State.CLOSED
        self.state = State.CLOSED
        return was_open

    def on_failure(self) -> bool:
        """A call failed. Returns whether this opened the breaker."""
        self.failures += 1
        if not self.limit or self.state is State.OPEN:
            return False
        if self.state is State.CLOSED and self.failures < self.limit:
            return False
        self.state = State.OPEN
        self.opened += 1
        self._retry_at = self._clock() + self.pause
        return True

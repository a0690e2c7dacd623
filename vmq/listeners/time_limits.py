"""Time limits of connections that have not come to MQTT yet, by one timer of the event loop.

Nearly all of them come in time: to set a timer for each and to take it back would cost as much as its accepting.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

#: Seconds between two looks at who is late, at least.
STEP: Final = 0.05
#: Seconds for what lies unread when a time is over.
READ_FIRST: Final = 0.01


class TimeLimits:
    """Which layers have to have passed something, and when.

    Args:
        clock: monotonic seconds.
        too_slow: told of each layer that has not passed in time, and of what it was set with.
    """

    def __init__(
        self, clock: Callable[[], float], too_slow: Callable[[Any, str, Any], None]
    ) -> None:
        self._clock = clock
        self._too_slow = too_slow
        #: When the time of each is over, what it is for, and who it is.
        self.pending: dict[Any, tuple[float, str, Any]] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: When the timer looks.
        self._at = 0.0

    def set(self, layer: Any, seconds: float, reason: str, who: Any) -> None:
        """A layer has so many seconds."""
        now = self._clock()
        self.pending[layer] = now + seconds, reason, who
        if self._timer is None or now + seconds < self._at:
            self._arm(seconds)

    def passed(self, layer: Any) -> None:
        """A layer has what it waited for, or has ended."""
        self.pending.pop(layer, None)

    def _arm(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._at = self._clock() + seconds
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        now = self._clock()
        late = []
        first = 0.0
        for layer, (end, _, _) in self.pending.items():
            if end <= now:
                late.append(layer)
            elif first == 0.0 or end < first:
                first = end
        if first > 0.0:
            self._arm(max(first - now, STEP))
        if late:
            self.read_first(late)

    def read_first(self, late: list[Any]) -> None:
        """The loop may have been late itself: what came in time lies unread, and timers come before sockets."""
        asyncio.get_running_loop().call_later(READ_FIRST, self._end, late)

    def _end(self, late: list[Any]) -> None:
        for layer in late:
            found = self.pending.pop(layer, None)
            if found is not None:
                self._too_slow(layer, found[1], found[2])

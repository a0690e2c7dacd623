"""When rows of streams leave a node for leaders: at once what comes alone, else all that has gathered, a pace apart.

Most of what a batch takes the nodes of its group does not depend on its messages, so those of many publishers gather,
of all partitions at the same time: nodes then speak of several groups at once. Whoever publishes one message after the
other, and is the only one, waits for no other.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

#: Seconds between two times: with a round trip behind them half of the messages wait less than 3 ms, and at 1,000 of
#: them a second three copies take less than four times what one log does (`tests.bench.log_copies`).
PACE: Final = 0.0035
#: Seconds for which it is remembered that several were under way at the same time.
CROWDED: Final = 0.05


class Pace:
    """One node's.

    Args:
        now: seconds of a clock that does not jump.
        later: has something called after so many seconds.
    """

    def __init__(
        self, now: Callable[[], float], later: Callable[[float, Callable[[], None]], None]
    ) -> None:
        self._now = now
        self._later = later
        self._wanted: list[Callable[[], None]] = []
        self._left_at = self._crowded_at = float("-inf")

    def soon(self, what: Callable[[], None], is_alone: bool) -> None:
        """Has something called when it is time; `is_alone`: nothing else of this node is under way."""
        now = self._now()
        if self._wanted or not is_alone:
            self._crowded_at = now
        self._wanted.append(what)
        if len(self._wanted) == 1:
            is_crowded = now - self._crowded_at < CROWDED
            self._later(max(0.0, self._left_at + PACE - now) if is_crowded else 0.0, self._leave)

    def _leave(self) -> None:
        self._left_at = self._now()
        wanted, self._wanted = self._wanted, []
        with ExitStack() as all_of_them:  # a defect in one keeps no other from its turn
            for each in reversed(wanted):
                all_of_them.callback(each)

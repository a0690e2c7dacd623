"""Replays give way: while others have messages, they take a bounded part of the time; else all that there is.

After work of t seconds they rest for t / share: so a message of others seldom meets a replay at work. What counts is
time, not messages: a slow machine, a large message or a plugin that looks at each cost what they cost. No rest is
longer than `longest`, so that every replay gets on; and where a backlog grows because of the rests, they are shorter
until it is gone. None of this has a clock of its own.
"""

from collections.abc import Callable
from typing import Final

#: Seconds without a message of others after which nobody has to be given way to.
QUIET: Final = 0.05
#: Seconds after which what was seen last says nothing of now. No replay at work rests for as long.
_STALE: Final = 0.2
#: Seconds in which a backlog grows before rests become half as long, and after the last word of one before they are as
#: they were.
GROWING: Final = 1.0
_FORGOTTEN: Final = 10.0
#: The part of time that is left to others however much backlogs grow.
MOST: Final = 1 / 2
_HIGHEST: Final = 64.0


class LiveTraffic:
    """Whether anybody but replays has messages. May be asked in any thread.

    Args:
        count: a figure that grows with each of these messages.
    """

    def __init__(self, count: Callable[[], int]) -> None:
        self.count = count
        self._seen = 0
        self._asked = self._until = float("-inf")

    def is_on(self, now: float) -> bool:
        """Whether there was a message since somebody asked, not long ago, or was one a moment before."""
        count = self.count()
        if count != self._seen and now < self._asked + _STALE:
            self._until = now + QUIET
        self._seen, self._asked = count, now
        return now < self._until


class Backlogs:
    """How many times their share of time replays take, so that those catch up whose streams grow meanwhile."""

    def __init__(self) -> None:
        self._factor = 1.0
        self._changed = self._told = float("-inf")

    def tell(self, now: float, *, grows: bool) -> None:
        """A backlog that grew for `GROWING` seconds, because of rests, grows or shrinks now."""
        if grows and now >= self._changed + GROWING:
            self._factor = min(2 * self._factor, _HIGHEST)
            self._changed = now
        self._told = now

    def factor(self, now: float) -> float:
        """How many times."""
        if now >= self._told + _FORGOTTEN:
            self._factor = 1.0
        return self._factor


class DutyCycle:
    """Says when work of a kind may go on: a token bucket of seconds that saves none.

    Args:
        live: what is given way to.
        backlogs: what is not to grow for that.
        share: the part of time that may be worked while there is some.
        longest: seconds of a rest, at most.
    """

    def __init__(self, live: LiveTraffic, backlogs: Backlogs, share: float, longest: float) -> None:
        self.live = live
        self.backlogs = backlogs
        self.share = share
        self.longest = longest
        #: There was live traffic when somebody asked last.
        self.is_shared = False
        #: Seconds of work that time has not made good yet, as of then.
        self._debt = 0.0
        self._as_of = 0.0

    def wait(self, now: float) -> float:
        """Seconds after which to ask again; 0: work may go on."""
        passed, self._as_of = now - self._as_of, now
        self.is_shared = self.live.is_on(now)
        if not self.is_shared:
            self._debt = 0.0
            return 0.0
        share = min(self.share * self.backlogs.factor(now), max(self.share, MOST))
        self._debt = max(0.0, self._debt - passed * share)
        return min(self._debt / share, QUIET)

    def spend(self, seconds: float) -> None:
        """So much was worked since it was asked."""
        self._debt = min(self._debt + seconds, self.longest * self.share)

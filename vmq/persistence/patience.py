"""How long what publishers wait for is not written: receivers may acknowledge all of it meanwhile."""

import time
from collections.abc import Callable
from typing import Final

#: Seconds that a commit waits, and after which it looks whether to wait on.
SPAN: Final = 0.002
#: Seconds that it waits at most, if at their pace receivers acknowledge all of it by then.
LONGEST: Final = 0.02
#: The part of its time that a busy loop computes: it may not have come to read what receivers sent.
BUSY: Final = 0.5
#: Commits that do not wait after one that waited in vain.
HASTY: Final = 16


class Patience:
    """Whether commits wait, and the one that gathers waits on.

    It is told how many messages receivers lack that the commit would have, and how many they have acknowledged.
    """

    def __init__(self) -> None:
        #: Seconds that the loop's thread has computed.
        self.computed: Callable[[], float] = time.thread_time
        #: The commit that is asked for waits.
        self.is_on = False
        #: So many commits more do not.
        self.hasty = 0
        #: When it began to wait, and when it looked last; the loop's CPU time and the store's counts then.
        self._began = self._looked = self._ran = 0.0
        self._answered = self._known = 0

    def begin(self, lacked: int, answered: int, now: float) -> None:
        """A commit begins to wait; `now` is the time of the loop, in whose thread this is called."""
        self.is_on = True
        self._began = now
        self._look(lacked, answered, now)

    def goes_on(self, lacked: int, answered: int, now: float) -> bool:
        """Whether it waits for another span: all of it may be acknowledged in time."""
        if not lacked or now - self._began >= LONGEST:
            return False
        span, ran = now - self._looked, self._ran
        before, known = self._answered, self._known
        self._look(lacked, answered, now)
        left = LONGEST - (now - self._began)
        if (answered - before) * left >= lacked * span:
            return True
        return self._known > known and self._ran - ran >= BUSY * span

    def judge(self, lacked: int, answered: int) -> None:
        """The commit closes: whether it was worth waiting, since most of what could be acknowledged was."""
        if not self.is_on:
            self.hasty = max(0, self.hasty - 1)
        elif answered < lacked:
            self.hasty = HASTY
        self.is_on = False

    def _look(self, lacked: int, answered: int, now: float) -> None:
        self._looked = now
        self._ran = self.computed()
        self._answered = answered
        self._known = answered + lacked

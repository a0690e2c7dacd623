"""How long a commit waits for receivers that may acknowledge all of it meanwhile: then nothing is written."""

import time
from collections.abc import Callable
from typing import Final

from vmq.store.store import Store

#: Seconds that a commit waits, and after which it looks whether to wait on.
SPAN: Final = 0.002
#: Seconds that it waits at most, if at their pace receivers acknowledge all of it by then.
LONGEST: Final = 0.02
#: The part of its time that a busy loop computes: it may not have come to read what receivers sent.
BUSY: Final = 0.5
#: Commits that do not wait after one that waited in vain.
HASTY: Final = 16


class Patience:
    """Whether the commits of a store wait, and the one that gathers waits on."""

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

    def begin(self, store: Store, now: float) -> None:
        """A commit begins to wait; `now` is the time of the loop, in whose thread this is called."""
        self.is_on = True
        self._began = now
        self._look(store, now)

    def goes_on(self, store: Store, now: float) -> bool:
        """Whether it waits for another span: all of it may be acknowledged in time."""
        if not store.unwritten or store.is_urgent or now - self._began >= LONGEST:
            return False
        span, ran = now - self._looked, self._ran
        answered, known = self._answered, self._known
        self._look(store, now)
        left = LONGEST - (now - self._began)
        if (self._answered - answered) * left >= len(store.unwritten) * span:
            return True
        return self._known > known and self._ran - ran >= BUSY * span

    def judge(self, store: Store) -> None:
        """The commit closes: whether it was worth waiting, since most of what could be acknowledged was."""
        if not self.is_on:
            self.hasty = max(0, self.hasty - 1)
        elif store.answered < len(store.unwritten):
            self.hasty = HASTY
        self.is_on = False

    def _look(self, store: Store, now: float) -> None:
        self._looked = now
        self._ran = self.computed()
        self._answered = store.answered
        self._known = store.answered + len(store.unwritten)

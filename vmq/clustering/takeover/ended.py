"""Durable sessions of this node that have ended, for as long as marks of them may still come."""

from typing import Final

from vmq.clustering.messages.takeover import Who

#: Seconds for which a mark of a session that is over may come.
LATE_MARKS: Final = 120.0


class EndedTakeovers:
    """Those of one node, the one that ended first in front."""

    def __init__(self) -> None:
        #: Since when this node had each, and until when marks of it may come.
        self._all: dict[Who, tuple[int, float]] = {}

    def ended(self, who: Who, since: int, now: float) -> None:
        """A session is over, which this node had since then."""
        self._all.pop(who, None)
        self._all[who] = (since, now + LATE_MARKS)

    def has(self, who: Who, since: int) -> bool:
        """Whether the session that a node had since then, or before, is over."""
        return since <= self._all.get(who, (0, 0.0))[0]

    def tick(self, now: float) -> None:
        """Forgets those of which nothing comes any more."""
        while self._all and next(iter(self._all.values()))[1] <= now:
            del self._all[next(iter(self._all))]

"""Whose clock is wrong, by what the others' say."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from vmq.clustering.slots.here import LocalNode

log = logging.getLogger("vmq.cluster")

#: Milliseconds by which a clock may differ from the middle one.
MOST: Final = 60_000
#: Looks for which it has to: what a node said that was stopped for a while is old.
LOOKS: Final = 3


class ClockStatus:
    """Tells once of each clock that is wrong, and when it is right again.

    Args:
        here: this node.
        name_of: another store's node.
    """

    def __init__(self, here: LocalNode, name_of: Callable[[int], str]) -> None:
        self._here = here
        self._name_of = name_of
        #: By store whose clock is wrong: for how many looks, and by how many milliseconds.
        self._looks: Counter[int] = Counter()
        self._off: dict[int, int] = {}
        #: The middle one, at the last look.
        self._agreed = 0

    def time(self) -> float:
        """Seconds since 1970 by the middle one of the clocks, a second late at most; in any thread."""
        return (self._agreed or self._here.now) / 1000

    def look(self) -> None:
        """Time has passed."""
        here = self._here
        clocks = {here.store: here.now, **here.reach.clocks()}
        agreed = self._agreed = here.agreed()
        self._off = {
            store: now - agreed for store, now in clocks.items() if abs(now - agreed) > MOST
        }
        for store in sorted(self._looks.keys() - self._off.keys()):
            if self._looks.pop(store) >= LOOKS and store in clocks:
                log.info("the clock of %s is right again", self._who(store))
        self._looks.update(self._off.keys())
        for store in sorted(self._off):
            if self._looks[store] == LOOKS:
                log.warning("the clock of %s is wrong: %s", self._who(store), self._how(store))

    def problems(self) -> Iterator[str]:
        """What is wrong now."""
        for store in sorted(self._off):
            if self._looks[store] >= LOOKS:
                yield f"the clock of {self._who(store)} is wrong: {self._how(store)}"

    def _who(self, store: int) -> str:
        return "this node" if store == self._here.store else f"node {self._name_of(store)}"

    def _how(self, store: int) -> str:
        seconds = round(self._off[store] / 1000)
        how = "ahead of" if seconds > 0 else "behind"
        return f"it is {abs(seconds)} s {how} the middle one of the cluster, of two the earlier"

"""Which of many names come often, in a fixed amount of memory."""

from collections.abc import Iterable
from typing import Final

#: Names of which it is counted how often they came.
MOST_NAMES: Final = 1024


class Frequent:
    """How often each of many names came, about: the rare ones are forgotten when there are too many.

    When `most` names are known all counts are halved, so that what came long ago counts less, too.
    """

    def __init__(self, most: int = MOST_NAMES) -> None:
        self._most = most
        self._counts: dict[str, int] = {}

    def count(self, name: str) -> None:
        """It came once more."""
        counts = self._counts
        if name not in counts and len(counts) >= self._most:
            halved = {each: number // 2 for each, number in counts.items() if number > 1}
            # All of them often: the first half of them goes on.
            self._counts = counts = dict(list(halved.items())[: self._most // 2])
        counts[name] = counts.get(name, 0) + 1

    def items(self) -> Iterable[tuple[str, int]]:
        """Each name with its count."""
        return self._counts.items()

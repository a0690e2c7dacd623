"""Which rows with dots are in a log: a publisher's session knows these, and whoever has it hands the row in again.

A dot is (store, boot, number), given by the node to which a message came; numbers of a boot begin at 1 and have gaps.
In a batch's marks its store has `DOTTED` in front. What is forgotten may be taken twice, never lost: what there is of
it is bounded, and stores that are retired stay until others need their place.
"""

from bisect import bisect_left, bisect_right
from typing import Final

from vmq_cluster.clocks import Runs, add_run, intersect
from vmq_cluster.raft.messages import Mark

#: In front of the store of a mark whose numbers are dots.
DOTTED: Final = "\2"
#: Boots that are known, of all stores; runs of numbers of each.
MOST_BOOTS: Final = 256
MOST_RUNS: Final = 1024

Dot = tuple[str, str, int]


class RowDots:
    """The dots of one log."""

    def __init__(self) -> None:
        #: By store, with `DOTTED`, and boot; as they came.
        self.runs: dict[tuple[str, str], Runs] = {}

    def has(self, dot: Dot) -> bool:
        """Whether a row is there."""
        store, boot, number = dot
        runs = self.runs.get((DOTTED + store, boot))
        return runs is not None and bisect_right(runs, number) % 2 == 1

    def known(self, mark: Mark) -> int:
        """How many rows of a mark are there."""
        runs = self.runs.get((mark.store, mark.boot))
        if runs is None or bisect_left(runs, mark.first) == len(runs):
            return 0
        common = intersect([mark.first, mark.end], runs)
        return sum(common[1::2]) - sum(common[::2])

    def add(self, mark: Mark) -> None:
        who = (mark.store, mark.boot)
        runs = self.runs.get(who)
        if runs is None:
            if len(self.runs) >= MOST_BOOTS:
                del self.runs[next(iter(self.runs))]
            runs = self.runs[who] = []
        add_run(runs, mark.first, mark.end)
        if len(runs) > 2 * MOST_RUNS:
            del runs[:2]


def marks_of(dots: list[Dot]) -> list[Mark]:
    """The marks of rows, in their order."""
    marks: list[Mark] = []
    for store, boot, number in dots:
        last = marks[-1] if marks else None
        if last is not None and (last.store, last.boot, last.end) == (DOTTED + store, boot, number):
            marks[-1] = Mark(last.store, boot, last.first, last.count + 1)
        else:
            marks.append(Mark(DOTTED + store, boot, number, 1))
    return marks

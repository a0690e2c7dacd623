"""Rows of producers on their way into a log: each exactly the next of its producer, many in one batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from vmq.streams.log.frame import BATCH_BYTES, BATCH_ROWS
from vmq.streams.log.gathering import Gathering
from vmq_cluster.raft.messages import Mark
from vmq_cluster.raft.state import GAP, Producers

#: What a producer is answered: its rows are as safe as was asked; this node does not lead; rows before them are
#: missing; they are no rows of a stream.
DONE: Final = 0
ELSEWHERE: Final = 1
MISSING: Final = 2
REFUSED: Final = 3


@dataclass(slots=True)
class Take:
    """Rows that a producer hands in, and whom to tell what became of them."""

    group: str
    mark: Mark
    rows: Gathering
    size: int
    #: It is enough that the leader has them.
    early: bool
    answer: Callable[[int], None]


@dataclass(slots=True)
class Made:
    """What one batch is made of."""

    marks: dict[tuple[str, str], Mark]
    rows: Gathering
    size: int
    takes: list[Take]


def arrange(takes: list[Take], producers: Producers) -> tuple[list[Made], list[Take], list[Take]]:
    """Which rows go into which batches; who has rows missing; whose rows are known already, all of them."""
    ahead: dict[tuple[str, str], int] = {}
    made: list[Made] = []
    missing: list[Take] = []
    known: list[Take] = []
    for take in takes:
        mark = take.mark
        who = (mark.store, mark.boot)
        there = _known(mark, ahead.get(who), producers)
        if there == GAP:
            missing.append(take)
        elif there == mark.count:
            (made[-1].takes if who in ahead else known).append(take)
        else:
            ahead[who] = mark.end
            _add(made, take, there)
    return made, missing, known


def _known(mark: Mark, ahead: int | None, producers: Producers) -> int:
    if ahead is None:
        return producers.place(mark)
    if mark.first > ahead:
        return GAP
    return min(ahead - mark.first, mark.count)


def _add(made: list[Made], take: Take, skip: int) -> None:
    mark = take.mark
    who = (mark.store, mark.boot)
    count = mark.count - skip
    last = made[-1] if made else None
    if last is None or not _fits(last, count, take.size):
        last = Made({}, Gathering(), 0, [])
        made.append(last)
    before = last.marks.get(who)
    first = mark.first + skip if before is None else before.first
    last.marks[who] = Mark(mark.store, mark.boot, first, mark.end - first)
    last.rows.extend(take.rows, skip)
    last.size += take.size
    last.takes.append(take)


def _fits(made: Made, count: int, size: int) -> bool:
    return len(made.rows.topics) + count <= BATCH_ROWS and made.size + size <= BATCH_BYTES

"""Rows of producers on their way into a log: each exactly the next of its producer, many in one batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from vmq.streams.log.frame import BATCH_BYTES, BATCH_ROWS
from vmq.streams.log.gathering import Gathering
from vmq_cluster.raft.dots import Dot, RowDots, marks_of
from vmq_cluster.raft.messages import Mark
from vmq_cluster.raft.state import GAP, Producers

#: What a producer is answered: its rows are as safe as was asked; this node does not lead; rows before them are
#: missing; they are no rows of a stream, and above that, so many of them are none: the others are safe.
DONE: Final = 0
ELSEWHERE: Final = 1
MISSING: Final = 2
REFUSED: Final = 3


class Sent:
    """A batch that is under way; `is_kept`: it is on this node's disk, too."""

    def __init__(self, mark: Mark, rows: Gathering, size: int, *, is_kept: bool = False) -> None:
        self.mark = mark
        self.rows = rows
        self.size = size
        self.is_done = False
        self.is_kept = is_kept
        #: The question with which it was handed to another node last.
        self.question = 0

    def is_in(self, marks: Sequence[Mark]) -> bool:
        """Whether all its rows are among those of these marks."""
        if self.rows.dots:
            there = RowDots()
            for mark in marks:
                there.add(mark)
            return all(map(there.has, self.rows.dots))
        own = self.mark
        return any(
            (own.store, own.boot) == (mark.store, mark.boot)
            and mark.first <= own.first
            and own.end <= mark.end
            for mark in marks
        )


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
    #: How many of them were left out, for Arrow refuses them.
    left_out: int = 0
    #: Some of its rows, not all, were in the log before.
    is_partial: bool = False

    def answer_done(self) -> None:
        """Its rows are as safe as was asked."""
        self.answer(REFUSED + self.left_out if self.left_out else DONE)


@dataclass(slots=True)
class Made:
    """What one batch is made of."""

    marks: dict[tuple[str, str], Mark]
    rows: Gathering
    size: int
    takes: list[Take]
    dots: list[Dot] = field(default_factory=list)

    def all_marks(self) -> list[Mark]:
        """What the batch says of whose rows it has."""
        return [*self.marks.values(), *marks_of(self.dots)]


def arrange(takes: list[Take], producers: Producers) -> tuple[list[Made], list[Take], list[Take]]:
    """Which rows go into which batches; who has rows missing; whose rows are known already, all of them."""
    ahead: dict[tuple[str, str], int] = {}
    dots: set[Dot] = set()
    made: list[Made] = []
    missing: list[Take] = []
    known: list[Take] = []
    for take in takes:
        mark = take.mark
        if take.rows.dots:
            _add_dotted(made, known, take, producers.dots, dots)
            continue
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
    take.is_partial = skip > 0
    last = _batch_for(made, mark.count - skip, take)
    before = last.marks.get(who)
    first = mark.first + skip if before is None else before.first
    last.marks[who] = Mark(mark.store, mark.boot, first, mark.end - first)
    last.rows.extend(take.rows, skip)


def _add_dotted(
    made: list[Made], known: list[Take], take: Take, there: RowDots, ahead: set[Dot]
) -> None:
    """Rows with dots have no order that they could lack: what is there is left out."""
    rows, dots = take.rows, take.rows.dots
    fresh = []
    for number, dot in enumerate(dots):
        if dot not in ahead and not there.has(dot):
            ahead.add(dot)
            fresh.append(number)
    if not fresh:
        known.append(take)
        return
    take.is_partial = len(fresh) < len(dots)
    last = _batch_for(made, len(fresh), take)
    last.dots += [dots[number] for number in fresh]
    last.rows.extend(rows if len(fresh) == len(dots) else rows.chosen(fresh))


def _batch_for(made: list[Made], count: int, take: Take) -> Made:
    """The batch for so many rows: the last one, if they fit in."""
    last = made[-1] if made else None
    if last is None or not _fits(last, count, take.size):
        last = Made({}, Gathering(), 0, [])
        made.append(last)
    last.size += take.size
    last.takes.append(take)
    return last


def _fits(made: Made, count: int, size: int) -> bool:
    return len(made.rows.topics) + count <= BATCH_ROWS and made.size + size <= BATCH_BYTES

"""Rows of producers into the logs of the groups that a node leads, and the answers that they get. In the thread."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from vmq.clustering.raft.produce import ELSEWHERE, MISSING, REFUSED, Made, Take, arrange
from vmq.streams.log.gathering import REFUSALS, Gathering
from vmq.streams.log.keys import Keys
from vmq.streams.log.small import FewRows
from vmq_cluster.raft.dots import DOTTED
from vmq_cluster.raft.effects import Answered
from vmq_cluster.raft.group import Group
from vmq_cluster.raft.messages import Mark
from vmq_cluster.raft.state import GAP

log = logging.getLogger("vmq.cluster")


class Taker:
    """What producers wait for.

    Args:
        do: lets a group do something that may fail with its disk; False then.
    """

    def __init__(self, do: Callable[..., Any]) -> None:
        self._do = do
        self._tickets: dict[int, Callable[[Answered], None]] = {}
        self._ticket = 0
        #: By group, whom the next sync of its log releases: the leader's own disk is enough for them.
        self._early: dict[str, list[Take]] = {}

    def append(self, group: Group, keys: Keys, takes: list[Take], now: float) -> None:
        """Has a group take rows, each once, if it is led here."""
        if group.leading is None:
            for take in takes:
                take.answer(ELSEWHERE)
            return
        made, missing, known = arrange(takes, group.replica.state.producers)
        for batch in made:
            self._append_batch(group, keys, batch, now)
        if known:
            self._wait_for(group, (), (), known, now)
        for take in missing:
            self._ask(group, take, now)

    def _append_batch(self, group: Group, keys: Keys, made: Made, now: float) -> None:
        rows, left_out = _encoded(made.rows, keys)
        if left_out and len(made.takes) > 1:
            # One of them has rows that Arrow refuses: what the others handed in is none the worse for it.
            for take in made.takes:
                self.append(group, keys, [take], now)
        elif rows is None:
            made.takes[0].answer(REFUSED)
        else:
            # The marks count what is left out, too: nothing is missing before what comes next.
            made.takes[0].left_out = left_out
            self._wait_for(group, made.all_marks(), [rows], made.takes, now)

    def _wait_for(
        self,
        group: Group,
        marks: Sequence[Mark],
        rows: Sequence[Any],
        takes: list[Take],
        now: float,
    ) -> None:
        late = [take for take in takes if not take.early]

        def answer(answered: Answered) -> None:
            for take in late:
                if not answered.done:
                    take.answer(ELSEWHERE)
                elif take.left_out or not marks or not _knows(group, take, answered.end):
                    take.answer_done()

        ticket = self._new_ticket(answer) if late else 0
        if not self._do(group, group.append, marks, rows, ticket, now):
            self._tickets.pop(ticket, None)
            for take in takes:
                take.answer(ELSEWHERE)
            return
        early = [take for take in takes if take.early]
        if early:
            self._early.setdefault(group.replica.group, []).extend(early)

    def _ask(self, group: Group, take: Take, now: float) -> None:
        """Rows seem to be missing before these; that is so only if this node still leads."""

        def answer(answered: Answered) -> None:
            is_gap = answered.done and group.judge(take.mark) == GAP
            take.answer(MISSING if is_gap else ELSEWHERE)

        ticket = self._new_ticket(answer)
        if not self._do(group, group.ask, ticket, now):
            self._tickets.pop(ticket, None)
            take.answer(ELSEWHERE)

    def _new_ticket(self, answer: Callable[[Answered], None]) -> int:
        self._ticket += 1
        self._tickets[self._ticket] = answer
        return self._ticket

    def answered(self, effect: Answered) -> None:
        """The machine says what became of something."""
        answer = self._tickets.pop(effect.ticket, None)
        if answer is not None:
            answer(effect)

    def release_early(self) -> None:
        """What leaders have written is as safe on their disks as it is to be."""
        early, self._early = self._early, {}
        for takes in early.values():
            for take in takes:
                take.answer_done()

    def fail(self, name: str) -> None:
        """The log of a group failed: nobody knows what of it is on the disk, so it is handed in again."""
        for take in self._early.pop(name, ()):
            take.answer(ELSEWHERE)


def _knows(group: Group, take: Take, end: int) -> bool:
    """Whether the node that handed rows in knows by its own copy that they are committed (`Committed.own`)."""
    node = take.mark.store.removeprefix(DOTTED)
    if group.leading is None or take.is_partial or any(dot[0] != node for dot in take.rows.dots):
        return False
    return group.leading.is_known(node, end)


def _encoded(rows: Gathering, keys: Keys) -> tuple[pa.RecordBatch | FewRows | None, int]:
    """Rows as they are written, without those that Arrow refuses, and how many these are; None: all of them."""
    try:
        few = FewRows.of(rows, keys)
        found, left_out = rows.rows(keys) if few is None else (few, 0)
    except REFUSALS as error:
        log.error("%d messages are refused by a stream: %s", len(rows.topics), error)
        return None, len(rows.topics)
    return (found if found.num_rows else None), left_out

"""Damage that nobody can mend, and that an operator gives up: the offsets stay, and have no rows any more.

A copy that lacks such a range can be given nothing that lies behind it, so the group gets no new ones. That nobody has
it is certain only of those who were asked: all who are, or were, members and can be reached, just now; who cannot be is
waited for as long as a group waits for better copies. What is given up stands in the group's log (`HOLE`), and whoever
has damage there puts blanks in its place once that is committed: batches of the same offsets and terms, so that logs
match as before. Who turns up later with the rows has them whole, and keeps them.
"""

from typing import Final

from vmq_cluster.raft.log import Log
from vmq_cluster.raft.messages import BLANK, Batch, Mend, Mended
from vmq_cluster.raft.replica import Replica
from vmq_cluster.raft.state import LogState

#: In election timeouts: what somebody said of what it lacks is true for so long. Another may mend it.
_FRESH: Final = 4
#: Ranges that are asked for, and given up, at a time; and all that a log knows of.
_MOST: Final = 8
_MOST_HOLES: Final = 1024


def blanks(log: Log, state: LogState, first: int, end: int) -> list[Batch]:
    """What has the place of committed batches that are given up.

    What the group said of itself there is lost as well, but for what the log's state has kept of it: that comes first.
    """
    found = []
    at = first
    term = state.terms.at(first)
    if term:  # of term 0 is what was there before the group
        found.append(Batch(first, 1, term, BLANK, (), state.encode_blank(first)))
        at += 1
    found += [log.blank(*each) for each in state.terms.runs(at, end)]
    return found


def fill(replica: Replica) -> None:
    """Puts blanks in the place of what is damaged here and was given up."""
    state = replica.state
    if not state.holes or state.members_end > replica.commit:
        return  # blanks say who the members are
    for first, end in list(replica.log.damage):
        for begin, behind, decided in state.holes:
            if begin <= first < behind and decided <= replica.commit:
                replica.log.mend(blanks(replica.log, state, first, min(end, behind)))
                break


class GivingUp:
    """A leader asks everybody for what is damaged here, once more, for an operator who wants to give it up."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        #: The ranges that are asked for, since when, until when, and when next.
        self._ranges: list[tuple[int, int]] = []
        self._since = self._until = self._ask_at = 0.0
        #: Who lacks the range that begins there: up to which offset, and when it said so.
        self._lacks: dict[tuple[str, int], tuple[int, float]] = {}

    def decide(self, now: float) -> tuple[list[tuple[int, int]], str]:
        """What nobody has, and can be given up; or none of it yet, and why."""
        replica = self._replica
        options = replica.options
        fill(replica)
        damage = list(replica.log.damage[:_MOST])
        if now >= self._until or self._ranges != damage:
            if now >= self._until:
                self._since = now
            self._ranges, self._lacks = damage, {}
            self._ask_at = now
        self._until = now + 2 * options.unclean_wait
        self.tick(now)
        if len(replica.state.holes) >= _MOST_HOLES:
            return [], "too much of it was given up already"
        found, why = [], ""
        for first, end in damage:
            objection = self._objection(first, now)
            if not objection:
                found.append((first, self._behind(first, end)))
            why = why or objection
        return found, "" if found else why

    def _objection(self, first: int, now: float) -> str:
        """What speaks against giving up the range that begins there."""
        replica = self._replica
        options = replica.options
        left = self._since + options.unclean_wait - now
        for name in replica.others:
            _, at = self._lacks.get((name, first), (0, float("-inf")))
            if now - at <= _FRESH * options.election_timeout:
                continue
            if replica.outlet.is_up(name):
                return f"{name} is asked whether it has what is damaged here"
            if left > 0:
                return f"{name} cannot be reached, and may have what is damaged here: try again in {left:.0f} s"
        return ""

    def _behind(self, first: int, end: int) -> int:
        """Up to where nobody has it."""
        for name in self._replica.others:
            behind, _ = self._lacks.get((name, first), (end, 0.0))
            end = min(end, behind)
        return end

    def tick(self, now: float) -> None:
        """Asks everybody, again and again."""
        replica = self._replica
        if self._ask_at <= now < self._until:
            self._ask_at = now + replica.options.heartbeat
            for name in replica.others:
                for first, end in self._ranges:
                    replica.send(name, Mend(replica.term, first, end))

    def on_mended(self, sender: str, message: Mended, fits: bool, now: float) -> None:
        """Somebody says what it has; or lacks, also where what it has is of another history (`fits`)."""
        if not message.batches:
            if message.first < message.behind:
                self._lacks[sender, message.first] = (message.behind, now)
        elif not fits:
            self._lacks[sender, message.first] = (message.batches[0].end, now)
        else:
            self._lacks.pop((sender, message.first), None)

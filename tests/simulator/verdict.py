"""What must be true of groups, whatever befell them: it sees every commit and every acknowledgement."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.simulator.segments import SimLog, is_blank
from vmq_cluster.raft.effects import Ballot, Led, Uncertain
from vmq_cluster.raft.messages import HOLE, ROWS, Batch, Mark
from vmq_cluster.raft.state import LogState

if TYPE_CHECKING:
    from tests.simulator.groups import Groups

Row = tuple[str, str, int]


@dataclass
class History:
    """What is committed in one group."""

    batches: list[Batch] = field(default_factory=list)
    #: Where each row is.
    rows: dict[Row, int] = field(default_factory=dict)
    leaders: dict[int, str] = field(default_factory=dict)
    #: How much of it was compared with the log of each node.
    seen: dict[str, int] = field(default_factory=dict)
    uncertain: list[int] = field(default_factory=list)
    #: What an operator has given up.
    holes: list[tuple[int, int]] = field(default_factory=list)
    #: From where on, and before which term, what is committed may be lost.
    first: int = 1 << 62
    term: int = 0

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def has(self, batch: Batch) -> bool:
        """Whether this is committed, or rightly has the place of something that was given up."""
        at = bisect_right(self.batches, batch.offset, key=lambda each: each.offset) - 1
        known = self.batches[at]
        if known == batch:
            return True
        is_there = any(first <= batch.offset and batch.end <= end for first, end in self.holes)
        fits = known.term == batch.term and batch.end <= known.end
        return is_there and fits and is_blank([batch])

    def cut(self, offset: int) -> None:
        del self.batches[bisect_right(self.batches, offset - 1, key=lambda each: each.offset) :]
        self.rows = {row: at for row, at in self.rows.items() if at < offset}
        self.seen = {name: min(end, offset) for name, end in self.seen.items()}


class Verdict:
    """Fails where a promise is broken."""

    def __init__(self, sim: Groups) -> None:
        self.sim = sim
        self.groups: dict[str, History] = {}
        #: Acknowledged rows: when they were handed in and acknowledged, and what was committed then.
        self.acks: list[tuple[Mark, float, float, int]] = []

    def begin(self, group: str, log: SimLog) -> None:
        self.groups[group] = History(list(log.batches))

    def opened(self, name: str, group: str) -> None:
        """A replica starts, or has lost a part of its log."""
        self.groups[group].seen[name] = 0

    # --- what is seen

    def led(self, name: str, effect: Led) -> None:
        """Election safety, and leader completeness: who leads has all that is committed."""
        if effect.leader != name:
            return
        history = self.groups[effect.group]
        other = history.leaders.setdefault(effect.term, name)
        assert other == name, f"{other} and {name} both lead in term {effect.term}"
        replica = self.sim.group(name, effect.group).replica
        if history.uncertain:
            return  # it may lack what is said to be uncertain
        if effect.term < max(history.leaders):
            return  # its disk was slow to let it say so: another, of a later term, may have committed more
        assert replica.log.end >= history.end, f"{name} leads without all that is committed"

    def committed(self, name: str, group: str, end: int) -> None:
        """State machine safety: nobody commits anything else at the same place."""
        history = self.groups[group]
        log = self.sim.nodes[name].logs[group]
        begin = max(history.seen.get(name, 0), log.first)
        for batch in log.batches[
            bisect_right(log.batches, begin, key=lambda each: each.offset) - 1 :
        ]:
            if batch.end > end:
                break
            if batch.offset < history.end:
                at = bisect_right(history.batches, batch.offset, key=lambda each: each.offset) - 1
                same = history.has(batch)
                if not same and batch.offset >= history.first and batch.term < history.term:
                    break  # it was committed before the unclean election, which nobody there knew of
                assert same, f"{name} has {batch} where {history.batches[at]} is committed"
            else:
                self._take(history, batch)
        history.seen[name] = end

    def _take(self, history: History, batch: Batch) -> None:
        assert batch.offset == history.end, f"{batch} is committed without what is before it"
        history.batches.append(batch)
        if batch.kind == HOLE:
            history.holes += [each[:2] for each in LogState.of([batch]).holes]
        if batch.kind != ROWS:
            return
        at = batch.offset
        for mark in batch.marks:
            for number in range(mark.first, mark.end):
                row = (mark.store, mark.boot, number)
                assert row not in history.rows, f"{row} is there twice"
                before = (mark.store, mark.boot, number - 1)
                if number and not history.uncertain:
                    assert before in history.rows, f"{row} comes before {before}"
                history.rows[row] = at
                at += 1

    def uncertain(self, name: str, effect: Uncertain) -> None:
        """A majority may have forgotten: what is committed from here on is what the new leader has."""
        history = self.groups[effect.group]
        log = self.sim.nodes[name].logs[effect.group]
        group = self.sim.group(name, effect.group)
        # What its log says, of elections, too, whose leaders died before they could tell.
        said = [each for each in group.replica.state.uncertain if each[2] > history.term]
        if not said:
            return  # it is known; or the log has lost it again, and whoever goes on says from where on
        for batch in log.batches:
            if batch.offset >= history.end or not history.has(batch):
                offset = batch.offset
                break
        else:
            offset = log.end
        if group.leading is not None and group.replica.term > history.term:
            assert not self._remember(name, effect.group), "most remember, and were not waited for"
        first = min(each[0] for each in said)
        history.first = min(history.first, first)
        history.term = said[-1][2]
        if offset < history.end:
            assert offset >= first, f"{offset} is lost, and said to be lost from {first} on"
            history.uncertain.append(offset)
            history.cut(offset)
            self.acks = [each for each in self.acks if self._is_there(each[0])]

    def _remember(self, name: str, group: str) -> bool:
        """Whether those of the voters who have forgotten nothing, dead or alive, are a majority."""
        voters = self.sim.group(name, group).replica.members.voters
        nodes = [self.sim.nodes[each] for each in voters]
        good = [
            node.name
            for node in nodes
            if group not in node.forgot and not node.ballots.get(group, Ballot()).abstains
        ]
        return len(good) > len(voters) // 2

    def acknowledged(self, mark: Mark, since: float, end: int) -> None:
        if self.groups["g"].term and not self._is_there(mark):
            return  # by who did not know of an unclean election
        assert self._is_there(mark), f"{mark} is acknowledged, and not committed"
        self.acks.append((mark, since, self.sim.now, end))

    def gap(self, mark: Mark) -> None:
        """The log lacks rows before these: that may be where some are said to be lost."""
        replicas = [self.sim.group(name).replica for name in self.sim.leaders()]
        if any(replica.term < max(self.groups["g"].leaders) for replica in replicas):
            return  # it was replaced, and does not know
        uncertain = any(replica.state.uncertain for replica in replicas)
        assert uncertain, f"a gap before {mark}"
        self.sim.producers[mark.store].lose()

    def _is_there(self, mark: Mark) -> bool:
        rows = self.groups["g"].rows
        return all(
            (mark.store, mark.boot, number) in rows for number in range(mark.first, mark.end)
        )

    # --- the end

    def check(self) -> None:
        """Everything acknowledged is there, and in an order that could have been: an append that began after another
        was acknowledged lies behind it."""
        rows = self.groups["g"].rows
        placed = []
        for mark, since, at, end in self.acks:
            assert self._is_there(mark), f"{mark} was acknowledged, and is lost"
            offset = rows[mark.store, mark.boot, mark.first]
            assert offset < end
            placed.append((offset, since, at))
        placed.sort()
        latest = 0.0
        for _, since, at in reversed(placed):
            assert latest == 0.0 or since <= latest, (
                "an append lies before one that was done earlier"
            )
            latest = at if latest == 0.0 else min(latest, at)

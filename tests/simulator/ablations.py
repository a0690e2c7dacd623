"""The rules of the log, each switched off by name: what breaks shows what it is for."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import pytest

from tests.simulator.groups import Groups
from tests.simulator.segments import SimLog
from tests.simulator.switched_off import switched_off
from vmq_cluster.raft.election import Election, Voting
from vmq_cluster.raft.following import Following, Mending
from vmq_cluster.raft.group import Group
from vmq_cluster.raft.leading import Leading
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import MEMBERS, Batch, Mark
from vmq_cluster.raft.replica import Replica
from vmq_cluster.raft.state import LogState, Producers, encode_members


@dataclass
class Ablation:
    """One rule: what is put in the place of the code that keeps it, and a seed that then fails."""

    rule: str
    parts: list[tuple[type, str, Any]]
    seed: int = 0
    durability: str = "fsync"
    steps: int = 150
    faults: dict[str, float] = field(default_factory=dict)

    def off(self) -> AbstractContextManager[None]:
        """Without the rule."""
        return switched_off(self.parts, [owner for owner, _, _ in self.parts])


_commit = Leading._commit
_change = Leading.change
_place = Producers.place
_trim = Replica.trim
_mend = Mending.tick
_encode = LogState.encode


def _commit_any_term(self: Leading) -> None:
    end = self.replica.members.agreed(self._safe)
    if end > self.replica.commit:
        self.replica.advance(end)
    _commit(self)


def _no_boot(self: Producers, mark: Mark) -> int:
    return _place(self, Mark(mark.store, "", mark.first, mark.count))


def _add_no_boot(self: Producers, mark: Mark) -> None:
    who = (mark.store, "")
    self.next[who] = max(self.next.get(who, 0), mark.end)


def _keep_table(self: Replica, offset: int) -> None:
    before = self.state.producers
    self.log.cut(offset)
    self.reload(True)
    self.state.producers = before


def _forget_producers(self: Replica, first: int) -> None:
    """As if the table were made of what retention has left."""
    was = self.log.first
    _trim(self, first)
    if self.log.first > was:
        seen = set()
        for batch in self.log.read(self.log.first, 1 << 30):
            seen |= {(mark.store, mark.boot) for mark in batch.marks}
        table = self.state.producers.next
        self.state.producers.next = {who: number for who, number in table.items() if who in seen}


def _answer_at_once(self: Leading, end: int, ticket: int) -> None:
    self.awake = True
    if ticket:
        self._answer(ticket, True)


def _no_table(self: LogState, first: int) -> bytes:
    """A segment that says nothing of producers."""
    with patch.object(self.producers, "next", {}):
        return _encode(self, first)


def _any_boot(self: Producers, mark: Mark) -> int:
    """Rows of a boot that was ended are taken for those of one that begins."""
    with patch.object(self, "last", {}):
        return _place(self, mark)


def _change_early(self: Leading, members: Members, now: float) -> bool:
    with patch.object(Leading, "is_established", True):
        return _change(self, members, now)


def _trim_any(self: Replica, first: int) -> None:
    if first > self.log.first:
        self.log.trim(first)


def _acknowledge_known(
    append: Callable[..., bool],
) -> Callable[[Group, list[Mark], list[bytes], int, float], bool]:
    def at_once(self: Group, marks: list[Mark], rows: list[bytes], ticket: int, now: float) -> bool:
        if self.leading is not None and not marks:
            self.leading._answer(ticket, True)
            return True
        return append(self, marks, rows, ticket, now)

    return at_once


def _deaf_to_life(on_ack: Callable[..., None]) -> Callable[..., None]:
    """What an earlier life has confirmed counts as if this one had."""

    def any_life(self: Leading, sender: str, message: Any, now: float) -> None:
        message.life = self.progress[sender].life or message.life
        on_ack(self, sender, message, now)

    return any_life


def _stand_for_real(self: Group, now: float) -> None:
    self._draw(now)
    if self.replica.name in self.replica.members.voters:
        self._elect(False, False, False, now)


_stand = Group._stand


def _stand_as_voter(self: Group, now: float) -> None:
    """Who is no voter by its log stands never."""
    self._has_more = False
    _stand(self, now)


def _change_at_will(self: Leading, members: Members, now: float) -> bool:
    self.append(MEMBERS, [encode_members(members)])
    self._set_members(now)
    return True


def _mend_by_leader(self: Mending, now: float) -> None:
    """As a learner catches up."""
    if self._replica.leader:
        _mend(self, now)


def _last_alone(self: LogState) -> tuple[int, int]:
    """What earlier unclean elections took back is not said."""
    first, _, term = self.uncertain[-1] if self.uncertain else (0, 0, 0)
    return (first, term)


def _decide(*, is_safe: bool = True, is_of_term: bool = True) -> Callable[[Following], int]:
    """What a follower takes for committed by itself without one of its conditions."""

    def decided(self: Following) -> int:
        replica = self.replica
        own = replica.log.safe if is_safe else replica.log.end
        known = {replica.leader: self._leader_safe, replica.name: own}
        end = min(replica.members.agreed(lambda name: known.get(name, 0)), self.agreed)
        return end if not is_of_term or replica.state.terms.at(end - 1) == replica.term else 0

    return decided


def _read_on(self: Following, end: int) -> Iterator[Batch]:
    return iter(self.replica.log.read(self.replica.commit, 1 << 20))


def _yield_nothing(self: Replica, unclean: tuple[int, int]) -> None:
    """What was committed before an unclean election stays committed."""


#: Leaders that come and go, and nothing else.
CHURN = {
    "kill": 0.1,
    "revive": 0.25,
    "cut": 0.1,
    "split": 0.1,
    "mend": 0.15,
    **dict.fromkeys(("fail_power", "slow", "flip", "aim", "hand_over", "keep", "lose_store"), 0.0),
}

ABLATIONS = {
    "vote": Ablation(
        "Votes outlive a restart.",
        [(Replica, "save", lambda self, ballot: setattr(self, "ballot", ballot))],
        2,
        faults=CHURN,
    ),
    "current": Ablation(
        "Nobody votes for a log that lacks something.",
        [(Replica, "is_current", lambda self, term, end: True)],
    ),
    "matching": Ablation(
        "A follower takes only what fits on what it has.",
        [(Replica, "holds", lambda self, end, term: end <= self.log.end)],
        1,
    ),
    "safe": Ablation(
        "A replica confirms what is as durable as promised.",
        [(SimLog, "safe", property(lambda self: self.end))],
        50,
        faults={"fail_power": 0.12, "slow": 0.1},
    ),
    "abstain": Ablation(
        "Who may have forgotten does not vote.",
        [(Replica, "abstains", property(lambda self: False))],
        15,
        durability="memory",
        faults={"kill": 0.06},
    ),
    "tail": Ablation(
        "Damage in the tail is forgetting.",
        [(Replica, "abstains", property(lambda self: False))],
        25,
        faults={"flip": 0.1},
    ),
    "one at a time": Ablation(
        "Members change one at a time.",
        [(Leading, "change", _change_at_will)],
        1,
        faults={"aim": 0.15},
    ),
    "boot": Ablation(
        "The boot belongs to the producer: a store that counts anew is another.",
        [(Producers, "place", _no_boot), (Producers, "add", _add_no_boot)],
        faults={"lose_store": 0.03},
    ),
    "gap": Ablation(
        "Numbers have no gaps.",
        [(Producers, "place", lambda self, mark: max(_place(self, mark), 0))],
    ),
    "twice": Ablation(
        "What is known is not taken again.", [(Producers, "place", lambda self, mark: 0)]
    ),
    "committed": Ablation(
        "A row is acknowledged when it is committed.", [(Leading, "wait_for", _answer_at_once)]
    ),
    "table": Ablation(
        "Each segment begins with the table of producers.", [(LogState, "encode", _no_table)]
    ),
    "known": Ablation(
        "What is known is acknowledged when it is committed.",
        [(Group, "append", _acknowledge_known(Group.append))],
    ),
    "cut": Ablation(
        "What is cut is cut from the producers' table, too.",
        [(Replica, "cut", _keep_table)],
        101,
        faults=CHURN,
    ),
    "retention": Ablation(
        "Retention deletes rows, never who wrote them.",
        [(Replica, "trim", _forget_producers)],
        35,
        faults={"keep": 0.2},
    ),
    "unclean": Ablation(
        "A majority that may have forgotten waits, and says what may be lost.",
        [
            (Voting, "is_hopeless", lambda self, voters, now, told=(): True),
            (Election, "_may_be_unclean", lambda self: True),
        ],
        durability="memory",
    ),
}

#: Those that only a certain schedule shows, in tests/cluster/raft.
SCRIPTED = {
    "has more": Ablation(
        "Who has more than those who stand does, even if it is no voter by its log.",
        [(Group, "_stand", _stand_as_voter)],
    ),
    "learners": Ablation(
        "Where most voters may have forgotten, learners are asked as well.",
        [(Election, "_asked", lambda self, now: self.replica.members.voters)],
    ),
    "forgotten": Ablation(
        "That a replica may have forgotten outlives its next failure.",
        [(Groups, "keep_forgotten", lambda self, node: node.forgot.clear())],
    ),
    "ballot": Ablation(
        "Who the members are is never forgotten, and outlives damage of the log's end.",
        [(Replica, "members", property(lambda self: self.state.members))],
    ),
    "all yields": Ablation(
        "Who missed several unclean elections gives way to the first of them, too.",
        [(LogState, "last_unclean", property(_last_alone))],
    ),
    "yield": Ablation(
        "What was committed before an unclean election elsewhere gives way to it.",
        [(Replica, "yield_to", _yield_nothing)],
    ),
    "own term": Ablation(
        "A leader commits by a batch of its own term only (figure 8).",
        [(Leading, "_commit", _commit_any_term)],
    ),
    "follower's own term": Ablation(
        "A follower takes nothing for committed by itself but by a batch of its leader's term.",
        [(Following, "_decided", _decide(is_of_term=False))],
    ),
    "follower's disk": Ablation(
        "A follower counts itself for what is as durable as promised.",
        [(Following, "_decided", _decide(is_safe=False))],
    ),
    "agreed": Ablation(
        "A replica tells its node nothing of rows that may not be its leader's.",
        [(Following, "_read", _read_on)],
    ),
    "life": Ablation(
        "What an earlier life confirmed counts no more.",
        [(Leading, "on_ack", _deaf_to_life(Leading.on_ack))],
    ),
    "late boot": Ablation(
        "The first row of a boot ends those before it.", [(Producers, "place", _any_boot)]
    ),
    "own term first": Ablation(
        "A leader changes no members before something of its own term is committed.",
        [(Leading, "change", _change_early)],
    ),
    "uncommitted": Ablation(
        "Retention never deletes what is not committed.", [(Replica, "trim", _trim_any)]
    ),
    "pre-vote": Ablation(
        "Nobody raises its term before a majority would vote for it.",
        [(Group, "_stand", _stand_for_real)],
    ),
    "enough": Ablation(
        "Who may have forgotten counts again once it has all that its leader had when it came back.",
        [(Following, "_return", lambda self: self.replica.set_abstains(False))],
    ),
    "established": Ablation(
        "A new leader answers no question before something of its term is committed.",
        [(Leading, "is_established", property(lambda self: True))],
    ),
    "lag": Ablation(
        "A learner becomes a voter once it has, soon enough, what the log had.",
        [(Leading, "_is_ready", lambda self, learner: True)],
    ),
    "compaction": Ablation(
        "Rows are compacted as was committed, not as a leader has just decided.",
        [(Group, "compaction", property(lambda self: self.replica.state.compaction))],
    ),
    "range": Ablation(
        "Damage below the commit index is a range that is fetched, not a replica that counts for nothing.",
        [
            (Replica, "abstains", property(lambda self: self.ballot.abstains or self.log.damage)),
            (Mending, "tick", _mend_by_leader),
        ],
    ),
    "check-quorum": Ablation(
        "A leader that hears no majority gives up.",
        [(Leading, "is_followed", lambda self, since: True)],
    ),
}


def without(rule: str, schedule: Callable[[], object], broken: object) -> None:
    """A schedule comes to this without a rule; where it is a text, the verdict says that, or anything."""
    with SCRIPTED[rule].off():
        if isinstance(broken, str):
            with pytest.raises(AssertionError, match=broken or None):
                schedule()
        else:
            assert schedule() == broken

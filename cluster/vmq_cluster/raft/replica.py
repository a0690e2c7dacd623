"""What a replica of a group has, whatever its role: its ballot, its log with the log's state, and the commit index."""

from collections.abc import Sequence
from random import Random
from typing import Any, Final, Protocol

from msgspec.structs import replace

from vmq_cluster.raft.effects import Ballot, Committed, Effect, Save, Uncertain
from vmq_cluster.raft.log import Log
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import MEMBERS, UNCLEAN, AnyMessage, Batch, Mark
from vmq_cluster.raft.options import RaftOptions
from vmq_cluster.raft.state import LogState, encode_members

#: Bits of a term that count elections; above them stands its epoch, which rises when an operator recovers a group.
_ELECTION_BITS: Final = 32
#: Of so many epochs one is the next: another replica, recovered beyond a split, leads in another one.
_EPOCHS: Final = 1 << 20


def epoch_of(term: int) -> int:
    """The epoch of a term: replicas that an operator has given up get no further in theirs."""
    return term >> _ELECTION_BITS


class Outlet(Protocol):
    """Where a pass puts what is to be done, and what it knows of the node's links."""

    def emit(self, effect: Effect) -> None:
        """To be done, in this order."""

    def send(self, peer: str, group: str, message: AnyMessage) -> None:
        """To be said, behind everything that was emitted before."""

    def is_up(self, peer: str) -> bool:
        """Whether a node is heard, by the links' own heartbeats."""

    def up_since(self, peer: str) -> float:
        """Since when, if it is."""

    def may_stand(self) -> bool:
        """Whether one more group stands now: of thousands a few at a time do."""

    def may_fetch(self, size: int, now: float) -> bool:
        """Whether the node's limit for fetching files lets so many bytes pass now."""


class Replica:
    """One node's part in a group."""

    def __init__(
        self,
        group: str,
        name: str,
        log: Log,
        ballot: Ballot,
        life: int,
        outlet: Outlet,
        options: RaftOptions,
        random: Random,
    ) -> None:
        self.group = group
        self.name = name
        self.log = log
        self.ballot = ballot
        #: Rises whenever this replica starts or forgets: what an earlier life confirmed counts no more.
        self.life = life
        self.outlet = outlet
        self.options = options
        self.random = random
        self.state = LogState.of(log.replay(log.end))
        self.commit = max(log.first, min(log.committed, log.end))
        #: The leader of this term, "" if none is known; and when it was last heard.
        self.leader = ""
        self.heard = 0.0
        #: Who said that it abstains, and when.
        self.abstainers: dict[str, float] = {}
        #: Who answered when this replica last stood, or would have, and how their logs end.
        self.answered: dict[str, tuple[int, int]] = {}

    # --- the ballot

    @property
    def term(self) -> int:
        return self.ballot.term

    def save(self, ballot: Ballot) -> None:
        """Takes over another ballot; it is on disk before anything else leaves."""
        ballot = replace(ballot, epoch=max(ballot.epoch, epoch_of(self.last_term)))
        if ballot != self.ballot:
            self.ballot = ballot
            self.outlet.emit(Save(self.group, ballot))

    def set_term(self, term: int, vote: str = "") -> None:
        self.save(replace(self.ballot, term=term, vote=vote))

    def begin_epoch(self) -> None:
        """An operator has this replica go on, whatever others do."""
        epoch = epoch_of(self.term) + 1 + self.random.randrange(_EPOCHS)
        self.save(replace(self.ballot, term=epoch << _ELECTION_BITS, vote=self.name, epoch=epoch))

    @property
    def is_left_behind(self) -> bool:
        """Whether the group goes on elsewhere by an operator's word, as its term says, with nothing of that here."""
        own = max(self.ballot.epoch, epoch_of(self.last_term))
        return own < epoch_of(self.term)

    def set_abstains(self, abstains: bool) -> None:
        self.save(replace(self.ballot, abstains=abstains))
        self.keep_members()

    @property
    def abstains(self) -> bool:
        return self.ballot.abstains

    @property
    def knows_members(self) -> bool:
        """Whether who the members are is in the log; else it has forgotten that, and goes by its ballot."""
        return not self.abstains or self.log.end >= self.ballot.members_end

    def keep_members(self) -> None:
        """Has the ballot say who the members are, if the log knows."""
        members = self.state.members
        if members.voters and members != self.ballot.members and self.knows_members:
            self._set_members()

    def _set_members(self) -> None:
        state = self.state
        self.save(replace(self.ballot, members=state.members, members_end=state.members_end))

    def note(self, peer: str, abstains: bool, now: float) -> None:
        """Another member says whether it may have forgotten."""
        if abstains:
            self.abstainers[peer] = now
        else:
            self.abstainers.pop(peer, None)

    def abstaining(self, now: float) -> set[str]:
        """Who abstains as far as is known; who was not heard lately may have got back what it forgot."""
        since = now - 4 * self.options.election_timeout
        found = {name for name, at in self.abstainers.items() if at >= since}
        return found | {self.name} if self.abstains else found

    # --- what others see

    @property
    def members(self) -> Members:
        members = self.state.members  # none: it has nothing yet, and learns
        return members if self.knows_members or not members.voters else self.ballot.members

    @property
    def others(self) -> list[str]:
        """Who may have what is damaged here: all members, and those who were."""
        names = dict.fromkeys(self.members.all + self.state.former)
        return [name for name in names if name != self.name]

    @property
    def last_term(self) -> int:
        return self.state.terms.at(self.log.end - 1)

    @property
    def uncertain(self) -> tuple[tuple[int, int, int], ...]:
        """Offsets that may be lost and that retention has not passed: first, end, and the term that said so."""
        first = self.log.first
        return tuple(each for each in self.state.uncertain if each[1] > first)

    @property
    def given_up(self) -> tuple[tuple[int, int], ...]:
        """Offsets that an operator has given up, as is committed, and that retention has not passed."""
        first, commit = self.log.first, self.commit
        return tuple(
            (begin, end)
            for begin, end, decided in self.state.holes
            if end > first and decided <= commit
        )

    def is_current(self, last_term: int, end: int) -> bool:
        """Whether a log that ends so has all that this one has: what an elected leader must have."""
        return (last_term, end) >= (self.last_term, self.log.end)

    def send(self, peer: str, message: AnyMessage) -> None:
        self.outlet.send(peer, self.group, message)

    # --- the log

    def holds(self, end: int, term: int) -> bool:
        """Whether this log, up to an offset, is that of another which has this term there."""
        if end == self.log.first == self.log.end:
            return True  # it has nothing yet, and begins there, with a segment that says the rest
        return end <= self.commit or (end <= self.log.end and self.state.terms.at(end - 1) == term)

    def extend(self, batches: Sequence[Batch]) -> bool:
        """Makes the log, behind where it agrees with the leader's, the leader's; what is there already stays.

        Returns False where more had to be forgotten than the leader knew: the log then ends before these batches.
        """
        for index, batch in enumerate(batches):
            if batch.end <= self.commit:
                continue
            if batch.offset < self.log.end:
                if self.state.terms.at(batch.offset) == batch.term:
                    continue
                self.cut(batch.offset)
                if self.log.end < batch.offset:
                    return False
            self.append(batches[index:])
            break
        return True

    def append(self, batches: Sequence[Batch]) -> None:
        """Puts batches behind the last; the log's state goes along."""
        self.log.append(batches)
        for batch in batches:
            self.state.add(batch)
            if batch.kind == UNCLEAN:
                first, end, _ = self.state.uncertain[-1]
                self.outlet.emit(Uncertain(self.group, first, end))
        self.keep_members()

    def write(self, kind: int, rows: Sequence[Any], marks: tuple[Mark, ...] = ()) -> Batch:
        """The leader puts a new batch behind the last."""
        batch = self.log.make(self.log.end, self.term, kind, marks, rows)
        self.append([batch])
        return batch

    def write_members(self, members: Members) -> None:
        """The leader says who the members are, whatever the log knew of them."""
        self.write(MEMBERS, [encode_members(members)])
        self._set_members()

    def cut(self, offset: int) -> None:
        """Takes back what another leader has not; the log's state becomes what it was there."""
        assert offset >= self.commit, f"{self.group}: {offset} is committed"
        if offset < self.log.first:
            # Retention has deleted what an unclean election elsewhere goes on from: another life fetches everything.
            first = self.log.first
            self.log.reset(0)
            raise OSError(
                f"{self.group}: it begins at {first}, and is to be another from {offset} on"
            )
        knows = self.knows_members
        self.log.cut(offset)
        self.reload(knows)

    def reload(self, knows: bool) -> None:
        """The log is another one now: so is its state. `knows`: it lacks nothing that it knew of its members."""
        self.state = LogState.of(self.log.replay(self.log.end))
        if knows and self.state.members.voters:
            self._set_members()

    def advance(self, commit: int, own: tuple[Mark, ...] = ()) -> None:
        """So much is known to be committed, and rows of this node's producers with it."""
        if commit > self.commit:
            for first, end, decided in self.state.holes:
                if self.commit < decided <= commit:
                    self.outlet.emit(Uncertain(self.group, first, end, True))
            self.commit = commit
            self.log.commit(commit)
            self.outlet.emit(Committed(self.group, commit, own))

    def yield_to(self, unclean: tuple[int, int]) -> None:
        """After an unclean election elsewhere, what was committed here behind its beginning counts no more."""
        offset, term = unclean
        if term > self.state.last_unclean[1] and self.commit > offset:
            # Whoever was elected, by an operator's word perhaps, may not know that so much was committed.
            self.outlet.emit(Uncertain(self.group, offset, self.commit))
            self.commit = offset

    def trim(self, first: int) -> None:
        """The leader keeps the log from this offset on; never is anything deleted that is not committed."""
        if first > self.log.first:
            self.log.trim(min(first, self.commit))

    def forget(self, life: int) -> None:
        """A part of the log that was safe is gone: a power failure took it, or its end was damaged."""
        self.life = life
        self.commit = min(self.commit, self.log.end)
        self.set_abstains(True)
        self.reload(False)

"""How a leader is found: who asks for votes, and who gives them.

- **Pre-vote**: nobody raises its term before a majority would vote for it, so that who was cut off, or was removed,
  does not depose a leader that works.
- Nobody votes who hears a leader, unless that leader itself asks for it (a transfer).
- **Who may have forgotten abstains.** It asks nevertheless, so that all learn how many abstain; when those who do not
  are no majority, no election can ever succeed: after `unclean_wait`, or as soon as all voters are there, the longest
  log wins. Its leader counts among those who remember once that is committed. Learners are asked, too, where that is
  so: one may have what all voters have forgotten. It leads until they have it.
- Who the voters are nobody forgets: it stands in the log (`vmq_cluster.raft.log`), and beside the vote, for a log whose
  end is damaged. With terms and votes that makes one leader a term, also where most have forgotten everything else.
"""

from enum import Enum

from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import Ask, Vote
from vmq_cluster.raft.replica import Replica


class Outcome(Enum):
    """What becomes of a candidate."""

    GOES_ON = "goes on"
    STANDS = "stands"
    LEADS = "leads"


class Election:
    """One attempt of a replica to be elected; first only asked for, then real."""

    def __init__(self, replica: Replica, pre: bool, transfer: bool, unclean: bool) -> None:
        self.replica = replica
        self.pre = pre
        self.transfer = transfer
        self.unclean = unclean
        self.term = replica.term + 1 if pre else replica.term
        self.granted: set[str] = set()
        #: Who answered at all, and how its log ends.
        self.answered: dict[str, tuple[int, int]] = {}
        #: Who says so in this attempt: what was said before may have changed.
        self.abstain: set[str] = {replica.name} if replica.abstains else set()
        if unclean or not replica.abstains:
            self.granted.add(replica.name)

    def ask(self, now: float) -> Outcome:
        """Asks all voters; where most of them may have forgotten, learners, too."""
        replica = self.replica
        end = replica.log.end
        abstains = replica.abstains
        known = tuple(sorted(replica.abstaining(now))) if self.unclean else ()
        message = Ask(
            self.term,
            replica.last_term,
            end,
            self.pre,
            self.transfer,
            abstains,
            self.unclean,
            replica.members.voters,
            known,
        )
        for name in self._asked(now):
            if name != replica.name:
                replica.send(name, message)
        return self._outcome()

    def _asked(self, now: float) -> tuple[str, ...]:
        members = self.replica.members
        if members.has_majority(set(members.voters) - self.replica.abstaining(now)):
            return members.voters  # they have all that is committed
        return members.all

    def on_vote(self, sender: str, message: Vote, now: float) -> Outcome:
        """An answer came, which may be to an earlier question."""
        self.answered[sender] = (message.last_term, message.end)
        self.replica.note(sender, message.abstains, now)
        if message.abstains:
            self.abstain.add(sender)
        if message.granted and message.pre == self.pre and message.term == self.term:
            self.granted.add(sender)
        return self._outcome()

    def end(self) -> Outcome:
        """No more answers are waited for. One that is missing may be of who has more: `Voting.has_waited` for that."""
        self.replica.answered = dict(self.answered)
        if self.unclean and self.pre and self._is_elected() and self._may_be_unclean():
            return Outcome.STANDS
        return Outcome.GOES_ON

    def _outcome(self) -> Outcome:
        if not self._is_elected():
            return Outcome.GOES_ON
        if not self.pre:
            return Outcome.LEADS
        others = set(self.replica.members.all) - {self.replica.name}
        if self.unclean and (not others <= self.answered.keys() or not self._may_be_unclean()):
            return Outcome.GOES_ON  # somebody may have a longer log
        return Outcome.STANDS

    def _may_be_unclean(self) -> bool:
        """Whether no log that was heard of is longer, and those who do not abstain are no majority even now."""
        members = self.replica.members
        own = (self.replica.last_term, self.replica.log.end)
        longest = all(own >= other for other in self.answered.values())
        return longest and not members.has_majority(set(members.voters) - self.abstain)

    def _is_elected(self) -> bool:
        return self.replica.members.has_majority(self.granted)


class Voting:
    """Whom a replica votes for, and whether its group is closed."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        #: Since when, among these voters, those who do not abstain are known to be no majority.
        self._closed_since: dict[tuple[str, ...], float] = {}

    def answer(self, sender: str, message: Ask, has_leader: bool, now: float) -> bool:
        """Answers whether a candidate gets this vote; returns whether it got it for good."""
        replica = self._replica
        replica.note(sender, message.abstains, now)
        granted = self._grants(sender, message, has_leader and not message.transfer, now)
        if granted and not message.pre:
            replica.set_term(message.term, sender)
        term = message.term if granted else replica.term
        end = replica.log.end
        replica.send(
            sender, Vote(term, granted, message.pre, replica.abstains, replica.last_term, end)
        )
        return granted and not message.pre

    def _grants(self, sender: str, message: Ask, has_leader: bool, now: float) -> bool:
        replica = self._replica
        if has_leader or not replica.is_current(message.last_term, message.end):
            return False
        if message.unclean:
            if not self.is_hopeless(message.voters, now, message.abstainers):
                return False
        elif replica.abstains:
            return False
        if message.term == replica.term and not message.pre:
            return replica.ballot.vote in ("", sender)
        return message.term > replica.term

    def is_hopeless(self, voters: tuple[str, ...], now: float, told: tuple[str, ...] = ()) -> bool:
        """Whether no better copy is to be waited for: those who do not abstain are no majority, and time is up.

        Nor is anything to be waited for where all are there. `told` abstain, as somebody else knows.
        """
        replica = self._replica
        rest = set(voters) - replica.abstaining(now) - (set(told) - {replica.name})
        if not voters or Members(voters).has_majority(rest):
            self._closed_since.pop(voters, None)
            return False
        self._closed_since.setdefault(voters, now)
        return self.has_waited(voters, now) or (
            {*voters, *replica.members.learners} <= replica.answered.keys() | {replica.name}
        )

    def has_waited(self, voters: tuple[str, ...], now: float) -> bool:
        """Whether time is up for those who do not say how much they have."""
        since = self._closed_since.get(voters, now)
        return now - since >= self._replica.options.unclean_wait

    def reopen(self) -> None:
        """There is a leader."""
        self._closed_since.clear()

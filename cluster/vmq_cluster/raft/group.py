"""One group on one node: it follows, stands or leads, and takes what others say to the part that it plays."""

from collections.abc import Sequence
from random import Random
from typing import Any

from vmq_cluster.raft.effects import Ballot, Led, Removed
from vmq_cluster.raft.election import Election, Outcome, Voting
from vmq_cluster.raft.following import Following, Mending
from vmq_cluster.raft.leading import Leading
from vmq_cluster.raft.log import Log
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import (
    COMPACT,
    HOLE,
    RETIRED,
    ROWS,
    Ack,
    AnyMessage,
    Append,
    Ask,
    Campaign,
    Files,
    Gone,
    Mark,
    Mend,
    Mended,
    Nudge,
    Piece,
    Pull,
    Vote,
)
from vmq_cluster.raft.options import RaftOptions
from vmq_cluster.raft.recovery import can_lead, objection
from vmq_cluster.raft.replica import Outlet, Replica
from vmq_cluster.raft.state import encode_compaction, encode_hole, encode_stores


class Group:
    """A replica of one group, in whatever role; its node (`vmq_cluster.raft.host`) calls it."""

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
        *,
        forgot: bool,
        now: float,
    ) -> None:
        self.replica = Replica(group, name, log, ballot, life, outlet, options, random)
        self.voting = Voting(self.replica)
        self.mending = Mending(self.replica)
        self.following: Following | None = Following(self.replica)
        self.election: Election | None = None
        self.leading: Leading | None = None
        self.removed = False
        #: Who lacks something that this replica has stood lately.
        self._has_more = False
        #: It is no voter, and an operator wants to know how much the others have.
        self._asks = False
        self._opened_at = now
        #: When a leader was known last.
        self._led_at = now
        self._draw(now)
        if forgot:
            self.replica.set_abstains(True)
        self.replica.keep_members()

    # --- what its node asks of it

    @property
    def is_awake(self) -> bool:
        """Whether it has to be ticked."""
        # Whatever its role, it has to ask for what it lacks.
        is_damaged = bool(self.replica.log.damage)
        if self.leading is not None:
            return self.leading.awake or is_damaged
        if self.removed:
            return False
        return self.following is None or not self.following.quiet or is_damaged

    def judge(self, mark: Mark) -> int:
        """How many of a producer's rows the leader has already, from the first on; or `GAP`.

        A leader that was replaced and does not know it may see a gap where there is none: ask again.
        """
        return self.replica.state.producers.place(mark)

    def append(self, marks: Sequence[Mark], rows: Sequence[Any], ticket: int, now: float) -> bool:
        """Takes rows of producers, each exactly the next of theirs (`judge`); returns whether this leader does.

        `Answered` follows with the ticket. Rows that are known already are waited for with no marks and no rows: they
        may still be lost.
        """
        leading = self.leading
        if leading is None or leading.transfer is not None:
            return False
        if any(map(self.judge, marks)):
            return False
        if marks:
            leading.append(ROWS, rows, tuple(marks), ticket)
        else:
            leading.wait_for(self.replica.log.end, ticket)
        leading.step(now)
        return True

    def ask(self, ticket: int, now: float) -> bool:
        """Asks what is committed; `Answered` follows with a commit index that is no older than the question."""
        if self.leading is None:
            return False
        self.leading.ask(ticket)
        self.leading.wake(now)
        self.leading.tick(now)
        return True

    def retire(self, stores: Sequence[str], now: float) -> bool:
        """The meta group has decided that these stores will hand in nothing more."""
        if self.leading is None:
            return False
        self.leading.append(RETIRED, [encode_stores(stores)])
        self.leading.step(now)
        return True

    def compact(self, end: int, before: int, now: float) -> bool:
        """Rows before an offset, all committed, are to be compacted, and tombstones go that are older than a time.

        Every replica does so by itself, to the same end; neither number ever falls. Returns whether it is decided.
        """
        replica = self.replica
        known = replica.state.compaction
        if self.leading is None or not known[0] < end <= replica.commit or before < known[1]:
            return False
        self.leading.append(COMPACT, [encode_compaction(end, before)])
        self.leading.step(now)
        return True

    def give_up(self, now: float) -> str:
        """An operator gives up what is damaged in the leader's log and nobody has whole; returns why it cannot be yet.

        It is asked again until it returns "": then it is in the log, or was there.
        """
        replica = self.replica
        if self.leading is None:
            return f"{replica.leader} leads it" if replica.leader else "nobody leads it"
        if not self.leading.is_established:
            return "most of its copies do not follow yet"
        if any(each[2] > replica.commit for each in replica.state.holes):
            return ""
        found, why = self.mending.giving_up.decide(now)
        for first, end in found:
            self.leading.append(HOLE, [encode_hole(first, end)])
        self.leading.step(now)
        return why

    @property
    def compaction(self) -> tuple[int, int]:
        """What was decided last and is committed: up to which offset, and before which time tombstones go; or zeros."""
        state = self.replica.state
        return state.compaction if state.compaction_end <= self.replica.commit else (0, 0)

    def change(self, members: Members, now: float) -> bool:
        """Makes one change of members; returns whether the leader may now."""
        leading = self.leading
        if leading is None or not leading.change(members, now):
            return False
        leading.step(now)
        return True

    def aim(self, voters: tuple[str, ...], now: float) -> bool:
        """The group is to get these voters, step by step; returns whether this leader sees to it."""
        if self.leading is None:
            return False
        self.leading.wanted = voters
        self.leading.wake(now)
        return True

    def transfer(self, to: str, now: float) -> bool:
        """Hands the leadership to a voter, "" = to whoever has most; returns whether it begins to."""
        if self.leading is None or not self.leading.hand_over(now, to):
            return False
        self.leading.step(now)
        return True

    def recover(self, now: float) -> str:
        """An operator gives up the voters that are lost: this replica is the only one from now on.

        What others had committed and this one lacks is gone; the log says from where on. A new epoch begins, so that
        lost voters which come back with their disks give way. Returns why it cannot be, "" if it is done.
        """
        replica = self.replica
        why = self._objection(now)
        if why:
            return why
        self.removed = False
        replica.begin_epoch()
        replica.write_members(Members((replica.name,)))
        if self.leading is not None:
            self.leading.end()
        self.election = self.following = None
        self.leading = Leading(replica, True, replica.log.end + 1, now)
        self._lead_by(replica.name, now)
        self.leading.step(now)
        return ""

    def _objection(self, now: float) -> str:
        """What speaks against a recovery, "" if nothing does."""
        replica = self.replica
        if self.leading is not None:
            others = {name: each.match for name, each in self.leading.progress.items()}
            up = {name: end for name, end in others.items() if replica.outlet.is_up(name)}
            return f"{replica.name} leads it" if can_lead(replica, up) else ""
        if replica.leader:
            return f"{replica.leader} leads it"
        is_new = self._led_at == self._opened_at  # nobody has led since
        if is_new and now - self._opened_at < 2 * replica.options.election_timeout:
            return "this node has just started, and does not know yet whom it reaches: try again"
        is_voter = replica.name in replica.members.voters and not self.removed
        if not is_voter and not self._asks:
            self.removed, self._asks, self._led_at = False, True, now
        answered = {} if self.election is None else self.election.answered
        return objection(replica, {**replica.answered, **answered}, self._led_at, now)

    def keep_from(self, first: int) -> None:
        """The leader's retention: the log may begin here."""
        if self.leading is not None:
            self.leading.keep_from = max(self.leading.keep_from, first)
            self.leading.awake = True

    def forget(self, life: int, now: float) -> None:
        """The log lost a part that was safe; it ends there now. The life is higher than all before."""
        self.replica.forget(life)
        self._follow(self.replica.term, "", now)

    def on_safe(self, now: float) -> None:
        """`log.safe` has grown."""
        if self.leading is not None:
            self.leading.step(now)
        elif self.following is not None and self.replica.leader:
            self.following.on_safe()

    def peer_up(self, peer: str, now: float) -> None:
        """A node can be reached again."""
        if self.leading is not None:
            self.leading.wake(now)

    def peer_down(self, peer: str, count: int, now: float) -> None:
        """A node cannot be reached, or began anew: whoever followed it stands, one after another.

        `count`: how many groups here it led.
        """
        replica = self.replica
        if self.leading is not None:
            # Where the others are a majority and have everything, there is nothing to say until it is back.
            if replica.outlet.is_up(peer) or not self.leading.is_quiet():
                self.leading.wake(now)
        elif self.following is not None and peer == replica.leader:
            order = [
                name
                for name in replica.members.voters
                if name == replica.name or (name != peer and replica.outlet.is_up(name))
            ]
            rank = order.index(replica.name) if replica.name in order else len(order)
            stagger = replica.options.stagger * (1 + count / replica.options.crowd)
            wait = rank * stagger + replica.random.random() * 0.05
            self.following.quiet = False
            self._lead_by("", now)
            replica.heard = now - self._patience + wait

    # --- time

    def tick(self, now: float) -> None:
        self.mending.tick(now)
        replica = self.replica
        if self.leading is not None:
            if not self.leading.tick(now):
                self._follow(replica.term, "", now)
            return
        if self.following is not None:
            self.following.tick(now)
            if self.following.quiet and replica.outlet.is_up(replica.leader):
                return
        if now - replica.heard >= self._patience and replica.outlet.may_stand():
            self._stand(now)

    def excuse(self, seconds: float, now: float) -> None:
        """This node did not listen for so long: that nobody was heard says nothing of these."""
        self.replica.heard = min(now, self.replica.heard + seconds)

    def _draw(self, now: float) -> None:
        """How long a leader is waited for from now on; who lacks something of the log lets others go first."""
        replica = self.replica
        timeout = replica.options.election_timeout
        self._patience = timeout * (1 + replica.random.random() + 2 * bool(replica.log.damage))
        replica.heard = now

    # --- roles

    def _follow(self, term: int, leader: str, now: float) -> None:
        """Another leads, or nobody that is known."""
        if self.leading is not None:
            self.leading.end()
        if term > self.replica.term:
            self.replica.set_term(term)
        self.leading = self.election = None
        self.following = Following(self.replica)
        self._lead_by(leader, now)
        self._draw(now)

    def _lead_by(self, leader: str, now: float) -> None:
        replica = self.replica
        if leader != replica.leader:
            self._led_at = now
            replica.leader = leader
            if leader:
                self._asks = False
                self.voting.reopen()
            replica.outlet.emit(Led(replica.group, leader, replica.term))

    def _stand(self, now: float) -> None:
        """No leader was heard for long: would a majority vote for this replica?"""
        replica = self.replica
        if self.election is not None and self.election.end() is Outcome.STANDS:
            if self.voting.has_waited(replica.members.voters, now):
                self._elect(False, False, True, now)
                return
        self._lead_by("", now)
        self._draw(now)
        if self.removed:
            return
        has_more, self._has_more = self._has_more or self._asks, False
        is_voter = replica.name in replica.members.voters
        if replica.is_left_behind or not (is_voter or has_more):
            for name in replica.members.voters:
                replica.send(name, Nudge(replica.term))
        else:  # by the members of its log, whether it is one: those who are may need what it has
            unclean = self.voting.is_hopeless(replica.members.voters, now)
            self._elect(True, False, unclean, now)

    def _elect(self, pre: bool, transfer: bool, unclean: bool, now: float) -> None:
        replica = self.replica
        if not pre:
            replica.set_term(replica.term + 1, replica.name)
        self.following = None
        self._lead_by("", now)
        self._draw(now)
        self.election = Election(replica, pre, transfer, unclean)
        self._conclude(self.election, self.election.ask(now), now)

    def _conclude(self, election: Election, outcome: Outcome, now: float) -> None:
        if outcome is Outcome.STANDS:
            self._elect(False, election.transfer, election.unclean, now)
        elif outcome is Outcome.LEADS:
            self.election = self.following = None
            ends = [end for _, end in election.answered.values()]
            self.leading = Leading(self.replica, election.unclean, max(ends, default=0), now)
            self._lead_by(self.replica.name, now)
            self.leading.step(now)

    # --- what others say

    def receive(self, sender: str, message: AnyMessage, now: float) -> None:
        """Somebody of the group, or who was, says something."""
        match message:
            case Ask():
                self._on_ask(sender, message, now)
            case Mend():
                self.mending.on_mend(sender, message)
            case Mended():
                self.mending.on_mended(sender, message, now)
            case Piece():
                if self.following is not None:
                    self.following.on_piece(message, now)
            case Pull():
                if self.leading is not None:
                    self.leading.on_pull(sender, message)
            case Vote() if message.pre and (message.granted or message.term < self.replica.term):
                self._on_vote(sender, message, now)
            case _:
                self._receive_in_term(sender, message, now)

    def _receive_in_term(self, sender: str, message: AnyMessage, now: float) -> None:
        replica = self.replica
        from_leader = isinstance(message, Append | Files)
        if message.term < replica.term:
            if from_leader:  # it does not know that its time is over
                replica.send(sender, Ack(replica.term, False, 0, 0, 0, 0, False, False))
            return
        if message.term > replica.term or (from_leader and self.following is None):
            self._follow(message.term, sender if from_leader else "", now)
        match message:
            case Append() | Files():
                self._on_leader(sender, message, now)
            case Ack():
                self._on_ack(sender, message, now)
            case Vote():
                self._on_vote(sender, message, now)
            case Campaign():
                self._on_campaign(now)
            case Nudge():
                self._on_nudge(sender, now)
            case Gone():
                self._on_gone()

    def _on_leader(self, sender: str, message: Append | Files, now: float) -> None:
        assert self.following is not None
        self._lead_by(sender, now)
        self.removed = False
        self.replica.heard = now
        if isinstance(message, Append):
            self.following.on_append(message, now)
        else:
            self.following.on_files(message, now)

    def _on_ack(self, sender: str, message: Ack, now: float) -> None:
        leading = self.leading
        if leading is None:
            return
        if sender in leading.progress:
            leading.on_ack(sender, message, now)
            is_voter = self.replica.name in self.replica.members.voters
            if not is_voter and leading.is_established and self._are_committed():
                self._follow(self.replica.term, "", now)
        else:
            self._send_away(sender)

    def _are_committed(self) -> bool:
        return self.replica.state.members_end <= self.replica.commit

    def _send_away(self, sender: str) -> None:
        """Who is no member is told so, when that is committed."""
        assert self.leading is not None
        if self.leading.is_established and self._are_committed():
            self.replica.send(sender, Gone(self.replica.term))

    def _on_nudge(self, sender: str, now: float) -> None:
        if self.leading is not None:
            if sender not in self.replica.members.all:
                self._send_away(sender)
            self.leading.wake(now)
        else:
            self.peer_down(sender, 1, now)  # if it led: its copy has failed, and it leads no more

    def _on_gone(self) -> None:
        if self.leading is None and not self.removed:
            self.removed, self._asks = True, False
            self.replica.outlet.emit(Removed(self.replica.group))

    def _on_vote(self, sender: str, message: Vote, now: float) -> None:
        if self.election is not None:
            outcome = self.election.on_vote(sender, message, now)
            self._conclude(self.election, outcome, now)

    def _on_campaign(self, now: float) -> None:
        replica = self.replica
        if replica.name in replica.members.voters and not replica.abstains:
            self._elect(False, True, False, now)

    def _on_ask(self, sender: str, message: Ask, now: float) -> None:
        replica = self.replica
        is_behind = not replica.is_current(message.last_term, message.end)
        if replica.name in message.voters or is_behind:
            # They may have forgotten that it went, and need its vote, or what it has.
            self.removed = False
        has_leader = self.leading is not None
        if self.leading is not None:
            self._on_nudge(sender, now)
        elif replica.leader == sender:
            self._lead_by("", now)  # it would not ask if it still led
            if self.following is not None:
                self.following.quiet = False
        elif replica.leader:
            has_leader = self._hears_leader(now)
        if is_behind and not has_leader:
            self._has_more = True  # who has more is to stand; again, where that came to nothing
            if self.following is not None:
                replica.heard = min(replica.heard, now - self._patience)
        if self.voting.answer(sender, message, has_leader, now):
            self._follow(message.term, "", now)

    def _hears_leader(self, now: float) -> bool:
        """Whether the leader lives, as far as is known; where only its link says so, it is asked to speak."""
        replica = self.replica
        following = self.following
        if following is not None and following.quiet and replica.outlet.is_up(replica.leader):
            following.quiet = False
            replica.heard = now
            replica.send(replica.leader, Nudge(replica.term))
        return now - replica.heard < replica.options.election_timeout

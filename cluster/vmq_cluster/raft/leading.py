"""A leader in its term: what each replica has, what is committed, and whether it still leads.

It commits nothing but by a batch of its own term (Raft, figure 8): the first is a control batch, written at once, and
before that is committed it answers no question and changes no members. It has no lease: that it still leads it learns
by a round, an answer of a majority to something that was said later.
"""

from collections.abc import Sequence
from typing import Any

from vmq_cluster.raft.dots import DOTTED
from vmq_cluster.raft.effects import Answered
from vmq_cluster.raft.members import Members, step_towards
from vmq_cluster.raft.messages import (
    LEADER,
    MEMBERS,
    STATE,
    UNCLEAN,
    Ack,
    Append,
    Batch,
    Campaign,
    Files,
    Mark,
    Piece,
    Pull,
)
from vmq_cluster.raft.progress import AT_NO_TIME, NEVER, Progress, Transfer, Waiting
from vmq_cluster.raft.replica import Replica
from vmq_cluster.raft.state import encode_members, encode_range


class Leading:
    """The part of a leader in one term."""

    def __init__(self, replica: Replica, unclean: bool, heard_end: int, now: float) -> None:
        self.replica = replica
        self.progress: dict[str, Progress] = {}
        self.waiting = Waiting()
        self.transfer: Transfer | None = None
        #: The voters that the group is to have, and gets one by one.
        self.wanted: tuple[str, ...] | None = None
        self.keep_from = replica.log.first
        self.round = 0
        #: Whose rows were appended last.
        self._publisher = ""
        self.awake = True
        #: It was quiet, and has not been ticked since.
        self._asleep = False
        #: When somebody is to be told what is committed.
        self.tells_at = AT_NO_TIME
        self._beat_at = now
        self._check_at = now + replica.options.election_timeout
        self._set_members(now)
        if not replica.knows_members:
            replica.write_members(replica.members)
        self._begin_segment()
        if unclean:
            end = max(replica.log.end, heard_end)
            replica.write(UNCLEAN, [encode_range(replica.commit, end, replica.term)])
        else:
            replica.write(LEADER, [b""])
        #: Where the first batch of this term ends; committed, the leader knows what is.
        self.begun = replica.log.end

    @property
    def is_established(self) -> bool:
        return self.replica.commit >= self.begun

    # --- appends and questions

    def append(
        self, kind: int, rows: Sequence[Any], marks: tuple[Mark, ...] = (), ticket: int = 0
    ) -> int:
        """Puts a batch behind the last; `Answered` follows. Returns where it ends."""
        self._begin_segment()
        if marks:
            self._publisher = marks[0].store.removeprefix(DOTTED)
        end = self.replica.write(kind, rows, marks).end
        self.wait_for(end, ticket)
        return end

    def wait_for(self, end: int, ticket: int) -> None:
        """Answers a ticket when everything before an offset is committed."""
        self.awake = True
        if not ticket:
            return
        if end <= self.replica.commit:
            self._answer(ticket, True)
        else:
            self.waiting.appends.append((end, ticket))

    def ask(self, ticket: int) -> None:
        """Answers a ticket with the commit index, when it is known that no other leader has committed more."""
        self.awake = True
        self.round += 1
        self.waiting.questions.append((self.round, ticket))

    def is_known(self, name: str, end: int) -> bool:
        """Whether another replica has said that it knows everything before an offset to be committed."""
        progress = self.progress.get(name)
        return progress is not None and progress.knows >= end

    def _answer(self, ticket: int, done: bool) -> None:
        replica = self.replica
        replica.outlet.emit(Answered(replica.group, ticket, done, replica.commit))

    def end(self) -> None:
        """Another leads, or nobody: whoever waits is told that nobody knows."""
        for _, ticket in self.waiting.appends + self.waiting.questions:
            self._answer(ticket, False)

    def _begin_segment(self) -> None:
        replica = self.replica
        if replica.log.is_full:
            replica.write(STATE, [replica.state.encode(replica.log.first)])

    # --- members

    def change(self, members: Members, now: float) -> bool:
        """Begins one change; returns whether it may: one at a time, and not before this term has committed."""
        replica = self.replica
        pending = replica.state.members_end > replica.commit
        if pending or not self.is_established or not members.can_follow(replica.members):
            return False
        self.append(MEMBERS, [encode_members(members)])
        self._set_members(now)
        return True

    def _set_members(self, now: float) -> None:
        names = [name for name in self.replica.members.all if name != self.replica.name]
        for name in names:
            if name not in self.progress:
                self.progress[name] = Progress(self.replica.log.end, now)
        for name in self.progress.keys() - set(names):
            del self.progress[name]

    def _go_on_changing(self, now: float) -> None:
        """The next step towards the wanted members."""
        replica = self.replica
        if self.wanted is None or replica.log.damage:
            return  # those who would go may have what is damaged here
        members = step_towards(replica.members, self.wanted, replica.name, self._is_ready)
        if members is not None:
            self.change(members, now)
        elif replica.name not in self.wanted and not replica.members.learners:
            self.hand_over(now)
        elif replica.members.voters == self.wanted and not replica.members.learners:
            self.wanted = None

    def _is_ready(self, learner: str) -> bool:
        progress = self.progress.get(learner)
        return progress is not None and progress.is_ready and progress.counts

    def _measure(self, progress: Progress, now: float) -> None:
        """A learner is ready when it has, soon enough, what the log had."""
        if progress.lag is None:
            progress.lag = (now, self.replica.log.end)
        at, end = progress.lag
        if progress.match >= end:
            progress.is_ready = now - at <= self.replica.options.promote_lag
            progress.lag = None

    # --- transfer

    def hand_over(self, now: float, to: str = "") -> bool:
        """Gives the leadership to a voter, or to the one that has most; returns whether it is to go there.

        It is not where another was asked already to stand: two would stand against each other.
        """
        replica = self.replica
        others = [
            name
            for name in replica.members.voters
            if name != replica.name and replica.outlet.is_up(name) and self.progress[name].counts
        ]
        if self.wanted is not None and not to:
            others = [name for name in others if name in self.wanted]
        if to:
            others = [name for name in others if name == to]
        if not others:
            return False
        transfer = self.transfer
        if transfer is None or (to and to != transfer.to and transfer.asked == NEVER):
            best = max(others, key=lambda name: self.progress[name].match)
            self.transfer = Transfer(best, now + replica.options.election_timeout)
            self.awake = True
            return True
        return to in ("", transfer.to)

    def _go_on_handing_over(self, now: float) -> None:
        transfer, options = self.transfer, self.replica.options
        if transfer is None:
            return
        progress = self.progress.get(transfer.to)
        if progress is None or now >= transfer.until:
            self.transfer = None
        elif progress.match == self.replica.log.end and now >= transfer.asked + options.heartbeat:
            transfer.asked = now  # and again, for the word may be lost
            self.replica.send(transfer.to, Campaign(self.replica.term))

    # --- what others answer

    def on_ack(self, sender: str, message: Ack, now: float) -> None:
        progress = self.progress[sender]
        if message.life < progress.life:
            return  # that was before it forgot
        progress.heard = now
        if message.life > progress.life:
            self._renew(progress, message.life)
        progress.round = max(progress.round, message.round)
        progress.counts = message.counts
        progress.quiet = message.quiet
        progress.knows = message.commit
        progress.told = max(progress.told, message.commit)
        # One answer says nothing of the messages behind it: with those taken for answered, too, each would have a whole
        # window follow, and the leader would read all its log for who lacks much, while others wait.
        end = message.end if message.agreed else progress.next
        progress.flying = [each for each in progress.flying if each > end]
        if message.agreed:
            progress.match = max(progress.match, message.safe)
            if progress.next < message.end < self.replica.log.loose:
                progress.sent = NEVER  # it has a file: the next one
            progress.next = message.end if progress.probing else max(progress.next, message.end)
            progress.probing = False
        elif message.end >= progress.match:
            progress.probing = True
            progress.next = min(message.end, self.replica.log.end)
            progress.sent = NEVER
        if message.counts:
            progress.returning = progress.enough = None
        elif progress.returning is None:
            self.round += 1
            progress.returning = self.round
        if not message.quiet:
            self.awake = True
        self.step(now)

    def _renew(self, progress: Progress, life: int) -> None:
        """The replica started anew: what it confirmed before says nothing about what it has."""
        progress.life = life
        progress.match = progress.knows = 0
        progress.probing = True
        progress.next = self.replica.log.end
        progress.flying = []
        progress.returning = progress.enough = progress.lag = None
        progress.is_ready = False

    def on_pull(self, sender: str, message: Pull) -> None:
        replica = self.replica
        limit = replica.options.piece_bytes
        data = replica.log.read_file(message.file, message.position, limit)
        replica.send(sender, Piece(replica.term, message.file, message.position, data))

    # --- time

    def tick(self, now: float) -> bool:
        """Speaks where it has to; returns whether it still leads, as far as it knows."""
        options = self.replica.options
        if self._asleep:
            self._rouse(now)
        if now >= self._check_at:
            self._check_at = now + options.election_timeout
            if not self.is_followed(now - options.election_timeout):
                return False
        if now >= self._beat_at:
            self._beat_at = now + options.heartbeat
            for progress in self.progress.values():
                if now - progress.heard >= options.heartbeat and progress.flying:
                    progress.probing = True  # what was sent got lost, perhaps
                    progress.next = max(progress.match, self.replica.log.first)
                    progress.flying = []
                progress.sent = NEVER
        self.step(now)
        return True

    def is_followed(self, since: float) -> bool:
        """Whether a majority was heard lately: else another may lead, and this one would never know."""
        replica = self.replica
        heard = {name for name, each in self.progress.items() if each.heard >= since}
        if not self.awake:
            heard = {name for name in self.progress if replica.outlet.is_up(name)}
        return replica.members.has_majority(heard | {replica.name})

    def wake(self, now: float) -> None:
        """Something has happened to the group, or to a node of it: speaks to all."""
        self.awake = True
        if self._asleep:
            self._rouse(now)
        self._beat_at = now

    def _rouse(self, now: float) -> None:
        """After quiet times nobody was heard, and that says nothing."""
        self._asleep = False
        self._check_at = now + self.replica.options.election_timeout
        self._beat_at = now + self.replica.options.heartbeat
        for progress in self.progress.values():
            progress.heard = now

    # --- the end of a pass

    def step(self, now: float) -> None:
        """Draws the conclusions of what is known now, and says what is to be said."""
        replica = self.replica
        self._commit()
        replica.trim(self.keep_from)
        self._confirm()
        for name in replica.members.learners:
            if name in self.progress:
                self._measure(self.progress[name], now)
        if self.is_established:
            self._go_on_changing(now)
        self._go_on_handing_over(now)
        self.tells_at = AT_NO_TIME
        for name, progress in self.progress.items():
            self._speak(name, progress, now)
        self.awake = not self.is_quiet()
        self._asleep = self._asleep or not self.awake

    def _commit(self) -> None:
        """Committed is what a majority has, if the last of it is of this term."""
        replica = self.replica
        is_all = replica.commit >= replica.log.end
        end = replica.commit if is_all else replica.members.agreed(self._safe)
        if end > replica.commit and replica.state.terms.at(end - 1) == replica.term:
            replica.advance(end)
            if replica.abstains and self.is_established:  # what it may have forgotten is agreed on
                replica.set_abstains(False)
        appends = self.waiting.appends
        count = 0
        while count < len(appends) and appends[count][0] <= replica.commit:
            self._answer(appends[count][1], True)
            count += 1
        del appends[:count]

    def _safe(self, name: str) -> int:
        if name == self.replica.name:
            return self.replica.log.safe
        progress = self.progress[name]
        return progress.match if progress.counts else 0

    def _confirm(self) -> None:
        """A round that a majority answered shows that nobody else led when it began."""
        replica = self.replica
        returning = [each for each in self.progress.values() if each.returning is not None]
        if not returning and not self.waiting.questions:
            return
        own = self.round
        reached = replica.members.agreed(
            lambda name: own if name == replica.name else self.progress[name].round
        )
        if self.is_established:
            done = [ticket for number, ticket in self.waiting.questions if number <= reached]
            self.waiting.questions = [each for each in self.waiting.questions if each[0] > reached]
            for ticket in done:
                self._answer(ticket, True)
        for progress in returning:
            if progress.enough is None and (progress.returning or 0) <= reached:
                progress.enough = max(replica.commit, self.begun)

    # --- sending

    def _speak(self, name: str, progress: Progress, now: float) -> None:
        """Sends a replica what it lacks, as far as its window lets; a word if there is something to know."""
        replica = self.replica
        log, options = replica.log, replica.options
        is_due = progress.sent == NEVER
        if progress.next < log.loose:
            if is_due:
                self._name_files(name, progress, now)
            return
        if progress.next < log.end:
            wait_until = progress.sent + self._patience(name, progress)
            if now < wait_until:
                self.tells_at = min(self.tells_at, wait_until)
                return
        while progress.next < log.end and len(progress.flying) < self._window(progress):
            batches = log.read(progress.next, options.append_bytes)
            if not batches:
                break  # damaged here
            self._append(name, progress, batches, now)
            is_due = False
        has_news = progress.told < replica.commit or progress.told_first < log.first
        tells_at = progress.sent + options.tell_within
        if is_due or (has_news and not progress.probing and now >= tells_at):
            self._append(name, progress, [], now)
        elif has_news and not progress.probing:
            self.tells_at = min(self.tells_at, tells_at)

    def _patience(self, name: str, progress: Progress) -> float:
        """For how many seconds after the last ones rows for a replica wait for others that go along.

        None where somebody waits until they are committed. To whose node publishes they go with the answer.
        """
        options = self.replica.options
        if self._is_spare(name):
            return options.spare_within
        appends = self.waiting.appends
        is_awaited = bool(appends) and appends[-1][0] > progress.next
        return 0.0 if is_awaited or name == self._publisher else options.tell_within

    def _is_spare(self, voter: str) -> bool:
        """Whether a majority without this voter takes what there is at once: those that have most, in voters' order.

        Whose node publishes goes first, if it keeps up: it sees by itself that its rows are committed.
        """
        replica = self.replica
        able = {
            name: each.match
            for name, each in self.progress.items()
            if each.counts and not each.probing and replica.outlet.is_up(name)
        }
        voters = [name for name in replica.members.voters if name in able]
        is_own = replica.name in replica.members.voters and replica.log.safe == replica.log.end
        missing = replica.members.majority - is_own
        publisher = self._publisher if self._publisher in able else ""
        if publisher and self.progress[publisher].next < replica.commit:
            publisher = ""
        voters.sort(key=lambda name: (name == publisher, able[name]), reverse=True)
        return voter in voters[missing:]

    def _window(self, progress: Progress) -> int:
        """How many messages with batches may be under way; others are not to wait for who lacks much."""
        options = self.replica.options
        if progress.probing:
            return 1
        return options.catch_up_window if progress.lacks_more else options.window

    def _append(self, name: str, progress: Progress, batches: list[Batch], now: float) -> None:
        replica = self.replica
        prev = batches[0].offset if batches else progress.next
        term = replica.state.terms.at(prev - 1)
        end = batches[-1].end if batches else progress.match
        quiet = replica.commit == end == replica.log.end and progress.counts
        enough = None if progress.enough is None else (progress.life, progress.enough)
        progress.sent = now
        progress.told = replica.commit
        progress.told_first = replica.log.first
        if batches:
            progress.next = batches[-1].end
            progress.flying.append(progress.next)
            progress.lacks_more = progress.next < replica.log.end
            progress.quiet = False
        message = Append(
            replica.term,
            prev,
            term,
            batches,
            replica.commit,
            replica.log.first,
            self.round,
            replica.state.last_unclean,
            quiet,
            enough,
            replica.log.safe,
        )
        replica.send(name, message)

    def _name_files(self, name: str, progress: Progress, now: float) -> None:
        replica = self.replica
        progress.sent = now
        log = replica.log
        files = log.files(progress.next)[:100]
        unclean = replica.state.last_unclean
        message = Files(replica.term, files, replica.commit, self.round, unclean, log.first)
        replica.send(name, message)

    def is_quiet(self) -> bool:
        """Whether there is nothing to say until something happens. Who is down is spoken to when it is back."""
        replica = self.replica
        end = replica.log.end
        if replica.commit < end or self.transfer or self.wanted is not None:
            return False
        if self.waiting.questions or replica.log.damage:
            return False
        up = {name for name in self.progress if replica.outlet.is_up(name)}
        return replica.members.has_majority(up | {replica.name}) and all(
            each.quiet and each.match == end and each.told_first == replica.log.first
            for name, each in self.progress.items()
            if name in up
        )

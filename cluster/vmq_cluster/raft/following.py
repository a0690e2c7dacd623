"""A replica that follows a leader, or waits for one; what a term's leader says is agreed on step by step.

Leaders **push** what is new: they know who lacks what, an append takes half a round trip less than by a request that
waits there, and where nothing is new nobody has to ask. Followers **pull** what is old: sealed files, and what their
disks have damaged; whose disk has to take it sets the pace, and goes on where it broke off.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from vmq_cluster.raft.dots import DOTTED
from vmq_cluster.raft.holes import GivingUp, fill
from vmq_cluster.raft.messages import (
    Ack,
    Append,
    Batch,
    Files,
    Mark,
    Mend,
    Mended,
    Piece,
    Pull,
    SealedFile,
)
from vmq_cluster.raft.progress import AT_NO_TIME
from vmq_cluster.raft.replica import Replica

#: How often each is asked for what is damaged, in vain, before another range has its turn.
_MISSES: Final = 3
_NO_FILE: Final = SealedFile(0, 0, 0, b"", 0, 0)


class Following:
    """The part of a follower in one term."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        #: Up to here the log is known to be this term's leader's.
        self.agreed = 0
        #: The leader has said that nothing is under way.
        self.quiet = False
        #: (life, offset) from which on this replica has what it may have had.
        self.enough: tuple[int, int] | None = None
        self._round = 0
        #: Up to here the leader has its log as durable as promised.
        self._leader_safe = 0
        #: Rows of this node's producers that are not committed: where their batch ends, and which they are.
        self._own: deque[tuple[int, tuple[Mark, ...]]] = deque()
        #: When the leader is to be told at the latest what it need not know at once.
        self.tells_at = AT_NO_TIME
        self._fetch = Fetching(replica)

    def on_append(self, message: Append, now: float) -> None:
        """The leader says what it has, or only that it lives."""
        replica = self.replica
        is_asked = message.round > self._round or not message.batches
        self._round = max(self._round, message.round)
        replica.yield_to(message.unclean)
        if message.enough is not None:
            self.enough = message.enough
        if not replica.holds(message.prev, message.prev_term):
            if message.prev != message.first:
                self.quiet = False
                self._deny(message.prev)
                return
            self._begin_at(message.first)
        self._fetch.stop()
        if not replica.extend(message.batches):
            self.quiet = False
            self.agreed = min(self.agreed, replica.log.end)
            self._deny(message.prev)
            return
        end = message.batches[-1].end if message.batches else message.prev
        if self.agreed < message.prev:
            self._note_own(self._read(message.prev))
        self.agreed = max(self.agreed, end)
        self._leader_safe = max(self._leader_safe, message.safe)
        self._note_own(message.batches)
        self._advance(max(self._decided(), min(message.commit, self.agreed)))
        replica.trim(message.first)
        settled = replica.commit == replica.log.end == end
        self.quiet = message.quiet and settled and replica.leader in replica.members.voters
        if not is_asked and replica.log.safe < end:
            return  # `on_safe` says more
        if is_asked or replica.commit < end or not all(map(self._is_own, message.batches)):
            self.confirm()
        else:  # nobody but producers of this node has waited for these rows
            self.tells_at = min(self.tells_at, now + replica.options.tell_within)

    def tell(self) -> None:
        """Says what was put off."""
        self.tells_at = AT_NO_TIME
        if self.replica.leader:
            self.confirm()

    def on_safe(self) -> None:
        """This replica's log is as durable as promised, further than before."""
        self._advance(self._decided())
        self.confirm()

    def _decided(self) -> int:
        """Up to where it is committed since the leader and this replica have it, if these two are a majority.

        The leader says how far it has its log when it sends a batch, and so need not say later that this is committed.
        As the leader does, this replica counts only by a batch of the leader's term, and for nothing while it abstains.
        The members may be others by a batch that it lacks: that is one change, so any majority of them has one of the
        two, which lets nobody lead without what both have.
        """
        replica = self.replica
        if self._leader_safe <= replica.commit or replica.abstains:
            return 0
        known = {replica.leader: self._leader_safe, replica.name: replica.log.safe}
        end = min(replica.members.agreed(lambda name: known.get(name, 0)), self.agreed)
        return end if replica.state.terms.at(end - 1) == replica.term else 0

    def _read(self, end: int) -> Iterator[Batch]:
        """What this log has had before an offset, and does not know to be committed."""
        log, offset = self.replica.log, self.replica.commit
        while offset < end and (batches := log.read(offset, self.replica.options.append_bytes)):
            yield from (each for each in batches if each.end <= end)
            offset = batches[-1].end

    def _note_own(self, batches: Iterable[Batch]) -> None:
        """Remembers rows of this node's producers, where all that they handed in is in the log."""
        noted = self._own[-1][0] if self._own else self.replica.commit
        for batch in batches:
            own = self._own_marks(batch)
            if own and batch.end > noted and batch.span == sum(each.count for each in batch.marks):
                self._own.append((batch.end, own))

    def _is_own(self, batch: Batch) -> bool:
        """Whether all its rows are of this node's producers."""
        return batch.span == sum(mark.count for mark in self._own_marks(batch))

    def _own_marks(self, batch: Batch) -> tuple[Mark, ...]:
        own = self.replica.name, DOTTED + self.replica.name
        return tuple(mark for mark in batch.marks if mark.store in own)

    def _advance(self, commit: int) -> None:
        """So much is committed."""
        own: tuple[Mark, ...] = ()
        while self._own and self._own[0][0] <= commit:
            own += self._own.popleft()[1]
        self.replica.advance(commit, own)

    def confirm(self) -> None:
        """Tells the leader what is agreed, and how far that is safe."""
        self._return()
        self._ack(True, self.agreed)

    def _deny(self, prev: int) -> None:
        """The logs differ at an offset: they may agree where this one ends, or where the term there began."""
        replica = self.replica
        end = replica.log.end
        if prev <= end:
            end = replica.state.terms.begin(prev - 1)
        self._ack(False, max(end, replica.commit))

    def _ack(self, agreed: bool, end: int) -> None:
        replica = self.replica
        self.tells_at = AT_NO_TIME
        safe = min(self.agreed, replica.log.safe)
        counts = not replica.abstains
        quiet = self.quiet and counts and safe == replica.log.end
        replica.send(
            replica.leader,
            Ack(
                replica.term,
                agreed,
                end,
                safe,
                self._round,
                replica.life,
                counts,
                quiet,
                replica.commit,
            ),
        )

    def _return(self) -> None:
        """Who may have forgotten counts again when it has, safe, all that may have been committed with its help."""
        replica = self.replica
        if replica.abstains and self.enough is not None:
            life, end = self.enough
            if life == replica.life and min(self.agreed, replica.log.safe) >= end:
                replica.set_abstains(False)

    # --- files

    def on_files(self, message: Files, now: float) -> None:
        """The leader has what this replica lacks in sealed files only: fetches the first of them."""
        self._round = max(self._round, message.round)
        self.quiet = False
        self.replica.yield_to(message.unclean)
        if not message.files:
            if message.first > self.replica.log.end:
                self._begin_at(message.first)
            self._ack(True, max(self.agreed, message.first))  # from there on in batches
            return
        begin = message.files[0].first
        if begin > max(self.replica.log.end, message.first):
            self._deny(begin)  # with these its log would lack what the leader's has before them
            return
        for file in message.files:
            if not self._has(file):
                self._fetch.begin(file, now)
                break
        else:
            self.agreed = max(self.agreed, message.files[-1].end)
        self._ack(True, self.agreed)

    def _begin_at(self, first: int) -> None:
        """The leader's log begins there, without files, and this one does not agree up to there: it begins anew.

        All in front of it is committed, by a majority without this replica: it takes nothing back that it helped with.
        """
        replica = self.replica
        knows = replica.knows_members
        replica.log.reset(first)
        replica.reload(knows)
        self.agreed = first
        replica.advance(first)

    def _has(self, file: SealedFile) -> bool:
        """Whether this log has what is in a file: all of it is committed, so one place tells."""
        return self.replica.holds(file.end, file.last_term)

    def on_piece(self, message: Piece, now: float) -> None:
        file = self._fetch.take(message, now)
        if file is not None:
            self._install(file)

    def _install(self, file: SealedFile) -> None:
        """A file is whole: it takes the place of all from its first offset on."""
        replica = self.replica
        log = replica.log
        knows = replica.knows_members
        if file.first > log.end or not replica.holds(file.first, file.before_term):
            log.reset(file.first)
        if log.install(file):
            replica.reload(knows)
            self.agreed = max(self.agreed, file.end)
            replica.advance(file.end)
        self.confirm()

    def tick(self, now: float) -> None:
        self._fetch.tick(now)


class Fetching:
    """One sealed file on its way here: piece by piece, within the node's limit."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._file = _NO_FILE
        self._position = 0
        #: When a piece is asked for again.
        self._retry_at = 0.0

    def stop(self) -> None:
        self._file = _NO_FILE

    def begin(self, file: SealedFile, now: float) -> None:
        """Fetches this file unless it is being fetched; what an earlier life has of it is kept."""
        if self._file != file:
            self._file = file
            self._position = self._replica.log.write_aside(file, 0, b"")
            self._ask(now)

    def take(self, message: Piece, now: float) -> SealedFile | None:
        """A piece came; returns the file when it is whole."""
        file = self._file
        if message.file != file:
            return None
        if not message.data:
            self.stop()  # it is there no more: the leader will name another
            return None
        self._position = self._replica.log.write_aside(file, message.position, message.data)
        if self._position < file.size:
            self._ask(now)
            return None
        self.stop()
        return file

    def tick(self, now: float) -> None:
        if self._file is not _NO_FILE and now >= self._retry_at:
            self._ask(now)

    def _ask(self, now: float) -> None:
        replica = self._replica
        size = min(replica.options.piece_bytes, self._file.size - self._position)
        self._retry_at = now + replica.options.heartbeat
        if replica.outlet.may_fetch(size, now):
            self._retry_at += replica.options.election_timeout
            replica.send(replica.leader, Pull(replica.term, self._file, self._position))


class Mending:
    """Damage below the commit index: fetched from whoever has it, whatever one's own role is."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self.giving_up = GivingUp(replica)
        self._turn = 0
        #: Which range is asked for; another one, when nobody has given anything of it.
        self._range = 0
        self._misses = 0
        self._ask_at = 0.0

    def tick(self, now: float) -> None:
        """Asks one member after another for a range that is damaged here."""
        replica = self._replica
        if not replica.log.damage:
            return
        fill(replica)
        self.giving_up.tick(now)
        others = replica.others
        if not replica.log.damage or not others or now < self._ask_at:
            return
        self._ask_at = now + replica.options.heartbeat
        self._turn += 1
        if self._misses >= _MISSES * len(others):
            self._misses = 0
            self._range += 1
        self._misses += 1
        first, end = replica.log.damage[self._range % len(replica.log.damage)]
        if end <= replica.commit:
            replica.send(others[self._turn % len(others)], Mend(replica.term, first, end))

    def on_mend(self, sender: str, message: Mend) -> None:
        """Somebody lacks what is committed: whoever has it whole sends it, though it may not know that it is."""
        replica = self._replica
        first, end, log = message.first, message.end, replica.log
        batches = []
        if log.first <= first < min(end, log.end):
            found = log.read(first, replica.options.append_bytes)
            batches = [batch for batch in found if batch.offset < end]
        behind = end
        if first < log.first:
            behind = log.first
        elif first < log.end:
            behind = log.gap(first)
        replica.send(sender, Mended(replica.term, log.first, batches, first, min(behind, end)))

    def on_mended(self, sender: str, message: Mended, now: float) -> None:
        """Puts what came in its place; or sees that a leader had let go of it."""
        replica = self._replica
        fits = all(map(self._fits, message.batches))
        self.giving_up.on_mended(sender, message, fits, now)
        if message.batches:
            if message.batches[-1].end <= replica.commit and fits:
                if replica.log.mend(message.batches):
                    self._ask_at = now
                    self._misses = 0
        elif replica.log.damage and replica.log.damage[0][1] <= message.kept:
            replica.trim(message.kept)

    def _fits(self, batch: Batch) -> bool:
        """Whether it is of this log: where an unclean election took something back, the sender's is another."""
        terms = self._replica.state.terms
        return terms.at(batch.offset) == terms.at(batch.end - 1) == batch.term

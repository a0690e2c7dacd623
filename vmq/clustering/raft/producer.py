"""The messages of this node for one partition, on their way to the leader of its group.

They are numbered without gaps, and handed in again, under their numbers, until a leader has them as safe as the stream
asks: a leader takes each once, whoever that is by then. They are in memory only: nobody was told that they are safe,
unless the stream says `without_quorum = "keep"`. Then those of which nothing is heard are on this node's disk, too, and
acknowledged from there (`vmq.clustering.raft.kept`).
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice, takewhile
from typing import Final, Protocol

from vmq.clustering.delivery.backlog import Backlog
from vmq.clustering.raft.produce import DONE, MISSING, REFUSED, Sent
from vmq.core.output import Output
from vmq.disk.durable import Durable
from vmq.streams.log.gathering import Gathering
from vmq_cluster.raft.messages import Mark

#: Batches under way; more gather meanwhile.
WINDOW: Final = 4
#: Bytes and rows of one batch, but for a message that is larger alone.
BATCH_BYTES: Final = 1 << 20
BATCH_ROWS: Final = 8192
#: Bytes that wait for one partition: from the first on its publishers are not read, at the second nothing is taken.
PAUSE: Final = 1 << 20
LIMIT: Final = 16 << 20
#: Bytes of one partition that hold up nobody.
LITTLE: Final = 4096
#: Seconds until a batch is handed in again of which nothing is heard.
AGAIN: Final = 1.0
#: Seconds without news after which messages are kept, of a stream that wants that.
PATIENCE: Final = 1.0
#: Bytes that a batch of few rows counts for beside them, of those that are kept: there may be many.
_BATCH: Final = 1024
#: Seconds until somebody else is asked where nobody knows a leader.
SOON: Final = 0.05
#: Bytes that a row counts for beside its topic and payload.
ROW: Final = 100


class KeepsMessages(Protocol):
    """What is kept of one partition (`vmq.clustering.raft.kept`). `done` is told whether it was written."""

    def add(self, group: str, sent: Sequence[Sent], done: Callable[[bool], None]) -> None: ...
    def replace(self, group: str, sent: Sequence[Sent], done: Callable[[bool], None]) -> None: ...
    def drop(self) -> None: ...


class Road(Protocol):
    """How batches come to a leader."""

    def hand_in(
        self, group: str, to: str, sent: Sent, early: bool, answer: Callable[[int], None]
    ) -> bool:
        """Hands a batch to a member of a group; the answer may never come. Returns whether it left."""

    def candidates(self, group: str) -> list[str]:
        """Whom to ask, the leader first if it is known."""

    def now(self) -> float:
        """Seconds of a clock that does not jump."""

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Has something called later."""

    def soon(self, what: Callable[[], None], is_alone: bool) -> None:
        """Has something called when messages leave (`vmq.clustering.delivery.pace`)."""

    def boot(self) -> str:
        """What tells this producer from its earlier lives; each one is above those before."""

    @property
    def store(self) -> str:
        """Whose rows these are."""


class Producer:
    """One partition's. In the event loop.

    Args:
        group: its group; "": the partition has no place yet, and what it is given waits for that (`move_to`).
        acks: when messages are safe, as `acks` of streams says.
        road: how batches come there.
        on_loss: told of how many messages were refused.
        backlog: what waits on this node.
        keeper: keeps messages while there is no quorum; None: publishers wait.
    """

    #: Batches under way; and what stands in front of this store's name.
    window = WINDOW
    prefix = ""

    def __init__(
        self,
        group: str,
        acks: str,
        road: Road,
        on_loss: Callable[[int], None],
        backlog: Backlog | None = None,
        keeper: KeepsMessages | None = None,
    ) -> None:
        self.group = group
        self.acks = acks
        self._road = road
        self._on_loss = on_loss
        self._backlog = Backlog() if backlog is None else backlog
        self._keeper = keeper
        #: More is kept; what an earlier life kept is so in any case.
        self.keeps = self.may_keep = keeper is not None
        #: How far the messages are safe, counted from the start of this broker; and how far a leader has them.
        self.safe = Durable()
        self._told: deque[tuple[int, Callable[[], None]]] = deque()
        self._reached = 0
        self.taken = 0
        self.size = 0
        self._gathering = Gathering()
        self._gathered = 0
        self._waiting: deque[Sent] = deque()
        #: How many of those that wait are under way.
        self._flying = 0
        self._store = self.prefix + road.store
        self._boot = road.boot()
        self._next = 0
        #: Who is asked; and how often everything was handed in anew: what is said of an earlier attempt is no news.
        self._turn = 0
        self._attempt = 0
        self._heard_at = 0.0
        #: It is looked whether anything was heard, and so on while batches are under way.
        self._looks = False
        self._is_due = False
        self._paused: list[Output] = []
        self.is_closed = False
        #: What is taken is not handed in yet.
        self.is_held = False
        #: Nothing was heard for long: what comes is kept.
        self._is_keeping = False
        #: The keeper is at work; and it writes new numbers, before which nothing may be handed in.
        self._is_writing = False
        self._is_renumbering = False
        self._is_watched = False

    def restore(self, group: str, kept: Sequence[Sent]) -> None:
        """What an earlier life has kept goes first, under the numbers that it has for a group; "": for none yet.

        Before anything else is taken.
        """
        self.group = group
        self._waiting.extend(kept)
        for each in kept:
            self.size += each.size
            self._backlog.size += each.size
            self.taken += each.mark.count
        self._are_safe(self.taken)
        self._is_keeping = True
        self._watch()
        self.flush()

    # --- messages

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more are taken."""
        free = self._backlog.limit - self._backlog.size
        wanted = self.size + size
        return (wanted <= LIMIT and wanted <= free) or (not self.size and size <= free)

    def add(self, rows: Gathering, size: int, publisher: Output | None = None) -> int:
        """Takes messages; returns the number by which `safe` has them all."""
        parts = list(rows.parts(BATCH_ROWS, BATCH_BYTES))
        for part in parts:
            self._gathering.extend(part)
            self._added(len(part.topics), max(1, size // len(parts)), publisher)
        return self.taken

    def gather(self) -> Gathering:
        """Where a message is put in front of `added`."""
        return self._gathering

    def added(self, size: int, publisher: Output | None) -> int:
        """A message was put there; returns its number."""
        return self._added(1, size, publisher)

    def _added(self, count: int, size: int, publisher: Output | None) -> int:
        self.taken += count
        self.size += size
        self._backlog.size += size
        self._gathered += size
        if self.size > LITTLE and publisher is not None:
            self._hold_up(publisher)
        if self._gathered >= BATCH_BYTES or len(self._gathering.topics) >= BATCH_ROWS:
            self.flush()
        elif not self._is_due:
            self._is_due = True
            self._road.soon(self._on_due, self.acks != "none" and self._backlog.size == size)
        if self.keeps and not self._is_watched:
            self._watch()
        return self.taken

    def _hold_up(self, publisher: Output) -> None:
        """A publisher is read no further where much waits, or half of what may."""
        backlog = self._backlog
        is_much = self.size > (LIMIT // 2 if self.keeps else PAUSE)
        if is_much or 2 * self.size > backlog.limit - backlog.size:
            if publisher not in self._paused:
                self._paused.append(publisher)
                publisher.pause()

    def _on_due(self) -> None:
        self._is_due = False
        self.flush()
        if self._is_keeping:
            self._keep()

    def when_safe(self, number: int, then: Callable[[], None]) -> None:
        """Has somebody called once that many are; numbers rise."""
        self._told.append((number, then))
        self._are_safe(self.safe.reached)

    def _are_safe(self, number: int) -> None:
        self.safe.advance(number)
        while self._told and self._told[0][0] <= self.safe.reached:
            self._told.popleft()[1]()

    # --- without a quorum

    def _watch(self) -> None:
        self._is_watched = True
        reached = self._reached
        self._road.later(PATIENCE, lambda: self._see(reached))

    def _see(self, reached: int) -> None:
        """Whether anything was heard since."""
        self._is_watched = False
        if self.is_closed or not self.waiting:
            return
        if self._reached == reached and self.keeps:
            self._is_keeping = True
            self._keep()
        self._watch()

    def _keep(self) -> None:
        """Has all kept that is not yet, and acknowledges it then."""
        if self._keeper is None or not self.keeps or self.is_closed:
            return
        if self._is_writing or self._is_renumbering:
            return
        if self._gathering.topics:
            self._close_batch(_BATCH)
        # What is kept stands before what is not; there may be thousands of batches.
        fresh = list(takewhile(lambda each: not each.is_kept, reversed(self._waiting)))
        fresh = [each for each in reversed(fresh) if not each.is_done]
        if not fresh:
            return
        number = self.taken
        self._is_writing = True

        def done(is_written: bool) -> None:
            self._is_writing = False
            if self.is_closed or not is_written:
                return  # it is tried again after a while
            for each in fresh:
                each.is_kept = True
            self._are_safe(number)
            self._drop_kept()
            if self._is_keeping:
                self._keep()

        self._keeper.add(self.group, fresh, done)

    def _drop_kept(self) -> None:
        """Once a leader has all that is kept."""
        if self._keeper is None or self._is_writing or self._is_renumbering:
            return
        if not any(each.is_kept for each in self._waiting):
            self._keeper.drop()

    # --- on their way

    def flush(self) -> None:
        """Hands in what has gathered, unless it is to gather still, as far as the window lets."""
        if self.is_closed:
            return
        rows, may_go = self._gathering.topics, bool(self.group) and not self.is_held
        is_full = self._gathered >= BATCH_BYTES or len(rows) >= BATCH_ROWS
        is_time = may_go and not self._is_due and len(self._waiting) < self.window
        if is_full or (rows and is_time):
            self._close_batch()
        if not may_go or self._is_renumbering:
            return
        while self._flying < min(len(self._waiting), self.window):
            sent = self._waiting[self._flying]
            if sent.mark.boot != self._waiting[0].mark.boot:
                return  # the first row of a boot ends those before it
            if not sent.is_done and not self._send(sent):
                return
            self._flying += 1

    def _close_batch(self, more: int = 0) -> None:
        """What has gathered is a batch, and counts for so many bytes more."""
        rows = self._gathering
        mark = Mark(self._store, self._boot, self._next, len(rows.topics))
        self._next = mark.end
        self._waiting.append(Sent(mark, rows, self._gathered + more))
        self.size += more
        self._backlog.size += more
        self._gathering = Gathering()
        self._gathered = 0

    def _send(self, sent: Sent) -> bool:
        road = self._road
        candidates = road.candidates(self.group)
        if not self._flying:
            self._heard_at = road.now()
            self._look_in(AGAIN)
        boot, attempt, is_first = sent.mark.boot, self._attempt, sent is self._waiting[0]

        def answer(status: int) -> None:
            is_news = attempt == self._attempt or status == DONE or status >= REFUSED
            if boot == sent.mark.boot and is_news and not self.is_closed:
                self._on_answer(sent, status, is_first)

        if candidates:
            to = candidates[self._turn % len(candidates)]
            if road.hand_in(self.group, to, sent, self.acks != "quorum", answer):
                return True
        self._turn += 1
        road.later(SOON, self._go_on)
        return False

    def _look_in(self, seconds: float) -> None:
        """One timer for all batches: the next one begins before the last one's would be due."""
        if not self._looks:
            self._looks = True
            self._road.later(seconds, self._look)

    def _look(self) -> None:
        """Nothing was heard for long: it is handed in again, to somebody else."""
        self._looks = False
        if not self._flying or self.is_closed:
            return
        left = self._heard_at + AGAIN - self._road.now()
        if left > 0:
            self._look_in(left)
        else:
            self._turn += 1
            self.again()

    def again(self) -> None:
        """The leader is another one, perhaps: everything is handed in again."""
        self._begin_anew()
        self.flush()

    def _begin_anew(self) -> None:
        self._flying = 0
        self._attempt += 1

    def _go_on(self) -> None:
        if not self._flying:
            self.flush()

    def led(self) -> None:
        """There is news of the leader."""
        self._turn = 0
        if self._waiting:
            self.again()

    def _on_answer(self, sent: Sent, status: int, is_first: bool) -> None:
        """What became of a batch; `is_first`: all before it were known to be safe when it was handed in."""
        self._heard_at = self._road.now()
        if sent.is_done or sent not in self._waiting:
            return
        if status == DONE:
            sent.is_done = True
            self._release()
        elif status >= REFUSED:
            self._on_loss(status - REFUSED or sent.mark.count)
            sent.rows = Gathering()
            sent.is_done = True
            self._release()
        elif status == MISSING:
            if is_first:
                self._renumber()
            else:
                self._road.later(SOON, self.again)
        else:
            # Once, however many batches are under way: each of them gets this answer.
            self._turn += 1
            self._begin_anew()
            self._road.later(SOON, self._go_on)

    def confirm(self, marks: Sequence[Mark]) -> list[Sent]:
        """The log has these rows committed; returns the batches under way that are among them."""
        found = [each for each in islice(self._waiting, self.window) if each.is_in(marks)]
        for sent in found:
            self._on_answer(sent, DONE, False)
        return found

    def _renumber(self) -> None:
        """What a leader had confirmed is lost: the rest gets numbers that follow on nothing."""
        self._boot = self._road.boot()
        self._next = 0
        for sent in self._waiting:
            if sent.is_done:
                continue
            sent.mark = Mark(self._store, self._boot, self._next, sent.mark.count)
            self._next = sent.mark.end
        if any(each.is_kept or self._is_writing for each in self._waiting):
            self._renumber_kept()
        else:
            self.again()

    def _renumber_kept(self) -> None:
        """What is kept has other numbers: on the disk first, or a later life would hand it in under the old ones."""
        if self._keeper is None:
            return
        self._is_renumbering = True
        boot, number = self._boot, self.taken - len(self._gathering.topics)
        kept = [each for each in self._waiting if not each.is_done]

        def done(is_written: bool) -> None:
            if boot != self._boot or self.is_closed:
                return  # there are newer ones
            if not is_written:
                self._road.later(AGAIN, self._renumber_kept)
                return
            self._is_renumbering = False
            for each in kept:
                each.is_kept = True
            self._are_safe(number)
            self._drop_kept()
            self.again()

        self._keeper.replace(self.group, kept, done)

    def _release(self) -> None:
        """What is safe from the first on is forgotten."""
        reached, was_kept = self._reached, False
        while self._waiting and self._waiting[0].is_done:
            sent = self._waiting.popleft()
            self._flying = max(0, self._flying - 1)
            self.size -= sent.size
            self._backlog.size -= sent.size
            reached += sent.mark.count
            was_kept = was_kept or sent.is_kept
        if reached > self._reached:
            self._reached = reached
            self._is_keeping = False
            self._are_safe(max(reached, self.safe.reached))
        if was_kept:
            self._drop_kept()
        if self.size <= PAUSE // 2:
            self._resume()
        self.flush()

    def _resume(self) -> None:
        paused, self._paused = self._paused, []
        for each in paused:
            each.resume()

    def close(self) -> None:
        """Nothing is handed in any more: the broker ends."""
        self.is_closed = True
        self._resume()

    def move_to(self, group: str) -> None:
        """The partition is this group's; where it was another one's before, that has nothing of this producer yet."""
        had, self.group = self.group, group
        if had:
            self._renumber()
        else:
            self.again()

    def give_up(self) -> None:
        """There is no such partition any more: nobody waits until its messages are safe."""
        self.close()
        self._waiting.clear()
        self._gathering = Gathering()
        self._backlog.size -= self.size
        self.size = self._flying = self._gathered = 0
        self._reached = self.taken
        self._are_safe(self.taken)
        if self._keeper is not None:
            self._keeper.drop()

    @property
    def waiting(self) -> int:
        """Messages that no leader has as safe as the stream asks."""
        return self.taken - self._reached

    @property
    def kept(self) -> int:
        """Messages among them that are acknowledged."""
        return self.safe.reached - self._reached

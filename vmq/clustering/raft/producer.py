"""The messages of this node for one partition, on their way to the leader of its group.

They are numbered without gaps, and handed in again, under their numbers, until a leader has them as safe as the stream
asks: a leader takes each once, whoever that is by then. They are in memory only: nobody was told that they are safe.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from vmq.clustering.raft.produce import DONE, MISSING, REFUSED
from vmq.core.output import Output
from vmq.durable import Durable
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
#: Bytes that wait for all partitions of a node, if nobody says another number.
NODE_LIMIT: Final = 128 << 20
#: Seconds until a batch is handed in again of which nothing is heard.
AGAIN: Final = 1.0
#: Seconds until somebody else is asked where nobody knows a leader.
SOON: Final = 0.05
#: Bytes that a row counts for beside its topic and payload.
ROW: Final = 100


@dataclass(slots=True)
class Sent:
    """A batch that is under way."""

    mark: Mark
    rows: Gathering
    size: int
    is_done: bool = False


class Road(Protocol):
    """How batches come to a leader."""

    def hand_in(
        self, group: str, to: str, sent: Sent, early: bool, answer: Callable[[int, str], None]
    ) -> bool:
        """Hands a batch to a member of a group; the answer may never come. Returns whether it left."""

    def candidates(self, group: str) -> list[str]:
        """Whom to ask, the leader first if it is known."""

    def now(self) -> float:
        """Seconds of a clock that does not jump."""

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """Has something called later."""

    def boot(self) -> str:
        """What tells this producer from its earlier lives; each one is above those before."""

    @property
    def store(self) -> str:
        """Whose rows these are."""


class Backlog:
    """The bytes that wait for leaders, of all partitions of a node.

    A partition may have as much of the memory as is free still (dynamic thresholds, as switches share their buffers):
    one without a leader takes half of it at most, of `n` each a part of n + 1, and those that are led always have room.
    """

    def __init__(self, limit: int = NODE_LIMIT) -> None:
        self.limit = limit
        self.size = 0

    @property
    def free(self) -> int:
        """How much more is taken."""
        return max(0, self.limit - self.size)


class Producer:
    """One partition's. In the event loop.

    Args:
        group: its group; "": the partition has no place yet, and what it is given waits for that (`move_to`).
        early: a leader is enough.
        road: how batches come there.
        on_loss: told of how many messages were refused.
        backlog: what waits on this node.
    """

    def __init__(
        self,
        group: str,
        early: bool,
        road: Road,
        on_loss: Callable[[int], None],
        backlog: Backlog | None = None,
    ) -> None:
        self.group = group
        self.early = early
        self._road = road
        self._on_loss = on_loss
        self._backlog = Backlog() if backlog is None else backlog
        #: How far the messages are safe, counted from the start of this broker.
        self.safe = Durable()
        self.taken = 0
        self.size = 0
        self._gathering = Gathering()
        self._gathered = 0
        self._waiting: deque[Sent] = deque()
        #: How many of those that wait are under way.
        self._flying = 0
        self._boot = road.boot()
        self._next = 0
        #: Who is asked; and how often everything was handed in anew: what is said of an earlier attempt is no news.
        self._turn = 0
        self._attempt = 0
        self._heard_at = 0.0
        self._is_due = False
        self._paused: list[Output] = []
        self.is_closed = False
        #: What is taken is not handed in yet.
        self.is_held = False

    # --- messages

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more are taken."""
        free = self._backlog.free
        return size <= free and (not self.size or self.size + size <= min(LIMIT, free))

    def add(self, rows: Gathering, size: int, publisher: Output | None = None) -> int:
        """Takes messages; returns the number by which `safe` has them all."""
        self._gathering.extend(rows)
        return self._added(len(rows.topics), size, publisher)

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
        is_much = self.size > min(PAUSE, self._backlog.free // 2)
        if is_much and publisher is not None and publisher not in self._paused:
            self._paused.append(publisher)
            publisher.pause()
        if self._gathered >= BATCH_BYTES or len(self._gathering.topics) >= BATCH_ROWS:
            self.flush()
        elif not self._is_due:
            self._is_due = True
            self._road.later(0.0 if not self._waiting else 0.002, self._on_due)
        return self.taken

    def _on_due(self) -> None:
        self._is_due = False
        self.flush()

    # --- on their way

    def flush(self) -> None:
        """Hands in what has gathered, as far as the window lets."""
        if self.is_closed or self.is_held or not self.group:
            return
        rows = self._gathering
        if rows.topics and (len(self._waiting) < WINDOW or self._gathered >= BATCH_BYTES):
            mark = Mark(self._road.store, self._boot, self._next, len(rows.topics))
            self._next = mark.end
            self._waiting.append(Sent(mark, rows, self._gathered))
            self._gathering = Gathering()
            self._gathered = 0
        while self._flying < min(len(self._waiting), WINDOW):
            sent = self._waiting[self._flying]
            if not sent.is_done and not self._send(sent):
                return
            self._flying += 1

    def _send(self, sent: Sent) -> bool:
        road = self._road
        candidates = road.candidates(self.group)
        if not self._flying:
            self._heard_at = road.now()
            road.later(AGAIN, self._look)
        boot, attempt, is_first = self._boot, self._attempt, sent is self._waiting[0]

        def answer(status: int, _leader: str) -> None:
            is_news = attempt == self._attempt or status in (DONE, REFUSED)
            if boot == self._boot and is_news and not self.is_closed:
                self._on_answer(sent, status, is_first)

        if candidates:
            to = candidates[self._turn % len(candidates)]
            if road.hand_in(self.group, to, sent, self.early, answer):
                return True
        self._turn += 1
        road.later(SOON, self._go_on)
        return False

    def _look(self) -> None:
        """Nothing was heard for long: it is handed in again, to somebody else."""
        if not self._flying or self.is_closed:
            return
        left = self._heard_at + AGAIN - self._road.now()
        if left > 0:
            self._road.later(left, self._look)
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
        elif status == REFUSED:
            self._on_loss(sent.mark.count)
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

    def _renumber(self) -> None:
        """What a leader had confirmed is lost: the rest gets numbers that follow on nothing."""
        self._boot = self._road.boot()
        self._next = 0
        for sent in self._waiting:
            if sent.is_done:
                continue
            sent.mark = Mark(self._road.store, self._boot, self._next, sent.mark.count)
            self._next = sent.mark.end
        self.again()

    def _release(self) -> None:
        """What is safe from the first on is forgotten."""
        reached = self.safe.reached
        while self._waiting and self._waiting[0].is_done:
            sent = self._waiting.popleft()
            self._flying = max(0, self._flying - 1)
            self.size -= sent.size
            self._backlog.size -= sent.size
            reached += sent.mark.count
        if reached > self.safe.reached:
            self.safe.advance(reached)
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
        """The partition is another group's, which has nothing of this producer yet."""
        self.group = group
        self._renumber()

    def give_up(self) -> None:
        """There is no such partition any more: nobody waits until its messages are safe."""
        self.close()
        self._waiting.clear()
        self._gathering = Gathering()
        self._backlog.size -= self.size
        self.size = self._flying = self._gathered = 0
        self.safe.advance(self.taken)

    @property
    def waiting(self) -> int:
        """Messages that are not safe yet."""
        return self.taken - self.safe.reached

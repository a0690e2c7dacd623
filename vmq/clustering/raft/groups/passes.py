"""What the event loop has to do with the groups of a node: passes of its own, for what is routine and little.

Each batch of rows goes through the groups of three nodes, and once more when it is confirmed. To wake their thread for
each of these, and be woken by it, costs more than all the rest where batches are small. So the loop makes the pass
itself, unless the thread is at work, or is to do something first: then all goes its usual way, in the same order.

What may take long stays the thread's: whatever is not routine (`vmq_cluster.raft.routine`), much at once, time, and
disks. The loop writes to the page cache, as it does for sessions; a stream with `durability = "fsync"` has nothing
done here, nor a group that is not a stream's, whose decisions are looked at in the thread.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from vmq.clustering.raft.groups.envelopes import checked
from vmq.clustering.raft.groups.opened import Opened
from vmq.clustering.raft.groups.thread import GroupThread
from vmq.clustering.raft.produce import Take
from vmq.streams.log.frame import BadFrameError
from vmq.streams.replica.log import LOOSE, ReplicaLog
from vmq_cluster.errors import MalformedError
from vmq_cluster.raft.effects import Effect
from vmq_cluster.raft.messages import Envelope, decode
from vmq_cluster.raft.progress import AT_NO_TIME
from vmq_cluster.raft.routine import is_routine

#: Bytes of rows, or of an envelope, that are little.
LITTLE: Final = 32 * 1024
#: Seconds by which the loop may be early: it counts in milliseconds.
_ROUNDED: Final = 0.0005


class LoopPasses:
    """What comes for the groups of a node in one turn of the event loop.

    Args:
        thread: of the groups.
        flush: sends what was said to other nodes.
    """

    def __init__(self, thread: GroupThread, flush: Callable[[], None]) -> None:
        self._groups = thread
        self._flush = flush
        self._loop = asyncio.get_running_loop()
        self._works: list[Take | tuple[str, bytes]] = []
        #: What is told in the present pass, whoever makes it.
        self._events: list[Callable[[], None]] = []
        self._boots = 0
        self.is_closed = False

    def take(self, take: Take) -> None:
        """A producer hands in rows."""
        self._add(take)

    def receive(self, peer: str, raw: bytes) -> None:
        """A node says something."""
        self._add((peer, raw))

    def tell_leader(self, group: str) -> None:
        """Something leaves for the node of a group's leader: what the copy here has put off goes along."""
        host = self._groups.host
        if group in host.telling and self._groups.turns.enter():
            for each in self._conclude(time.monotonic(), host.tell_leader(group)):
                each()

    def in_loop(self, what: Callable[[int], None]) -> Callable[[int], None]:
        """What the groups call with an answer that is for the loop."""
        return lambda status: self.tell(lambda: what(status))

    def boot(self) -> str:
        """What tells a producer from its earlier lives; each one is above those before."""
        self._boots += 1
        return f"{self._groups.host.boot:012}-{self._boots:08}"

    def _add(self, work: Take | tuple[str, bytes]) -> None:
        self._works.append(work)
        if len(self._works) == 1:
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        works, self._works = self._works, []
        done = 0
        if self._groups.turns.enter():
            now = time.monotonic()
            try:
                while done < len(works) and self._do(works[done], now):
                    done += 1
            finally:
                self._end(now)
        for work in works[done:]:
            if isinstance(work, Take):
                self._groups.take(work)
            else:
                self._groups.receive(*work)

    def _look(self) -> None:
        """Time for leaders to say something, unless they did with what came meanwhile."""
        self._groups.looks_at = AT_NO_TIME
        now = time.monotonic()
        if now < self._groups.tells_at:
            self._look_later(now)
        elif self._groups.turns.enter():
            self._end(now)
        else:
            self._groups.turns.wake()

    def _look_later(self, now: float) -> None:
        tells_at = self._groups.tells_at
        if tells_at < self._groups.looks_at:
            self._groups.looks_at = tells_at
            self._loop.call_later(max(0.0, tells_at - now) + _ROUNDED, self._look)

    def _end(self, now: float) -> None:
        """The end of a pass, and of the loop's turn."""
        self._deliver(self._conclude(now, []))

    def _conclude(self, now: float, effects: list[Effect]) -> list[Callable[[], None]]:
        """Carries out what a pass came to, and this; returns what was told."""
        try:
            self._groups.add(effects)
            self._groups.finish_routine(now)
            events, self._events = self._events, []
        finally:
            self._groups.turns.turn.release()
        self._look_later(now)
        return events

    # --- what is told

    def tell(self, event: Callable[[], None]) -> None:
        """In a pass: has the loop do something behind it."""
        self._events.append(event)

    def on_pass(self) -> None:
        """In the thread: the end of its pass."""
        if self._events:
            events, self._events = self._events, []
            with suppress(RuntimeError):  # the broker has ended
                self._loop.call_soon_threadsafe(self._deliver, events)

    def _deliver(self, events: list[Callable[[], None]]) -> None:
        if not self.is_closed:
            for each in events:
                each()
            self._flush()

    # --- what is routine

    def _do(self, work: Take | tuple[str, bytes], now: float) -> bool:
        """Does something in the present pass, unless it is the thread's to do."""
        thread = self._groups
        if isinstance(work, Take):
            kept = _quick_log(thread.opened.get(work.group))
            if kept is None or kept.is_full or work.size > LITTLE:
                return False
            thread.gather(work)
            return True
        envelope = self._routine(*work)
        if envelope is None:
            return False
        thread.add(thread.host.receive(envelope, now))
        return True

    def _routine(self, peer: str, raw: bytes) -> Envelope | None:
        """What a node says, if all of it is routine."""
        if len(raw) > LITTLE:
            return None
        try:
            envelope = checked(peer, decode(raw))
        except (MalformedError, BadFrameError):
            return None  # the thread says so
        for name, message in envelope.items:
            opened = self._groups.opened.get(name)
            if _quick_log(opened) is None or opened is None or opened.group is None:
                return None
            if not is_routine(opened.group, envelope.sender, message):
                return None
        return envelope


def _quick_log(opened: Opened | None) -> ReplicaLog | None:
    """The log of a stream's group that waits for no disk, and has no segment that is to become old."""
    if opened is None or opened.group is None or opened.keys is None:
        return None
    kept = opened.partition.log
    if kept is None or opened.partition.options.durability == "fsync":
        return None
    return kept if len(kept.segments) <= 1 + LOOSE else None

"""An owner's view of its followers: what each has of the state, and what it is sent next.

A follower that has exactly what the owner began from, or was sent up to here before, gets the changes since, as far as
they are kept; else the whole state in parts, with changes beside them. It confirms changes before its copy is whole:
acknowledgements would else wait for the whole transfer. What is not safe yet when the transfer begins is in its first
part: who confirms that has everything that somebody waits for.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from vmq.clustering.messages.slots import SlotRecords, SlotStored, SlotView, StatePart
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.records import HEAD_KEY
from vmq.clustering.slots.words import NO_LINEAGE, Lineage

#: Bytes of changes that an owner keeps for followers that lack them, but never less than what is not safe yet; and
#: where the owners of a node together keep more than so many, each keeps no more than a small part.
LOG_BYTES: Final = 1 << 20
ALL_LOGS: Final = 32 << 20
SMALL_LOG: Final = 32 << 10
#: What a record takes in memory besides.
OVERHEAD: Final = 100
#: Kinds of records in the order in which a state is sent.
_ORDER: Final = b"hqcruixm"

_Records = list[tuple[bytes, bytes | None]]


class FollowerProgress:
    """One follower."""

    def __init__(self) -> None:
        #: Versions: the last that it was sent, and the last on its disk; -1: it is sent nothing yet.
        self.sent = -1
        self.stored = -1
        self.is_whole = False
        #: The version of the whole state that it is sent: its copy from before is older.
        self.begun = 0
        #: What is left of the whole state for it.
        self.parts: deque[StatePart] = deque()


class FollowerSet:
    """The followers of one slot, for its owner.

    Args:
        base: the state that the owner's lineage began from.
        unsafe: the keys of records in it that may not have been safe; None: nobody knows, it may be any.
    """

    def __init__(
        self, here: LocalNode, slot: int, base: tuple[Lineage, int], unsafe: set[bytes] | None
    ) -> None:
        self._here = here
        self._slot = slot
        self._base = base
        self._base_unsafe = unsafe
        self.progress: dict[int, FollowerProgress] = {}
        self._log: deque[tuple[int, _Records, int]] = deque()
        self._log_bytes = 0
        #: The version up to which everything is safe.
        self.safe = 0

    def keep_only(self, stores: tuple[int, ...]) -> None:
        """What others confirmed counts no more: they may delete it."""
        for store in [each for each in self.progress if each not in stores]:
            del self.progress[store]

    def begin(
        self,
        view: SlotView,
        store: int,
        has: tuple[Lineage, int],
        version: int,
        state: Callable[[], dict[bytes, bytes]],
    ) -> None:
        """A follower says what it has; it gets what it lacks up to `version`, or the `state`, which is that."""
        # What follows is sent to it once the disk has given the state.
        self.progress.pop(store, None)
        progress = FollowerProgress()
        oldest = self._log[0][0] if self._log else version + 1
        at = -1
        if has[1] and has == self._base:
            at = 0
        elif has[1] and has[0] == view.lineage:
            at = has[1]
        if at >= 0 and oldest <= at + 1:
            progress.sent = progress.stored = at
            progress.is_whole = True
            changed: dict[bytes, bytes | None] = {}
            for number, records, _ in self._log:
                if number > at:
                    changed.update(records)
            if version > at:
                self._send(view, store, progress, version, list(changed.items()))
        else:
            progress.sent = progress.begun = version
            size, unsafe = self._here.part_bytes, self._unsafe()
            progress.parts = cut(self._slot, view, view.lineage, version, state(), size, unsafe)
            self._here.send(store, progress.parts.popleft())
        self.progress[store] = progress

    def _unsafe(self) -> set[bytes]:
        """The keys of records that are not safe yet: with a message, what changed in the queues by it."""
        changed = {
            key for number, records, _ in self._log if number > self.safe for key, _ in records
        }
        return changed | (self._base_unsafe or set())

    def publish(self, view: SlotView, version: int, records: _Records) -> None:
        """A commit of the owner, for all followers."""
        size = sum(OVERHEAD + len(key) + len(value or b"") for key, value in records)
        self._log.append((version, records, size))
        self._log_bytes += size
        self._here.logged += size
        self._shorten()
        for store, progress in self.progress.items():
            if progress.sent == version - 1:
                self._send(view, store, progress, version, records)

    def are_safe(self, version: int) -> None:
        """Everything up to this version is."""
        if version > self.safe:
            self.safe = version
            self._shorten()

    def _shorten(self) -> None:
        """What all have needs no place; of what one does not, there is as much as is allowed."""
        log, had = self._log, -1
        if self.progress and all(each.is_whole for each in self.progress.values()):
            had = min(each.stored for each in self.progress.values())
        most = LOG_BYTES if self._here.logged <= ALL_LOGS else SMALL_LOG
        if not self._here.reach.peers:
            most = 0  # who joins has nothing of it
        while log and log[0][0] <= self.safe and (log[0][0] <= had or self._log_bytes > most):
            size = log.popleft()[2]
            self._log_bytes -= size
            self._here.logged -= size

    def end(self) -> None:
        """Another lineage has begun: nobody follows this one."""
        self._here.logged -= self._log_bytes
        self._log.clear()
        self._log_bytes = 0

    def _send(
        self,
        view: SlotView,
        store: int,
        progress: FollowerProgress,
        version: int,
        records: _Records,
    ) -> None:
        after, progress.sent = progress.sent, version
        base = None if after else self._base
        message = SlotRecords(self._slot, view, after, version, records, base, self.safe)
        self._here.send(store, message)

    def on_stored(self, store: int, message: SlotStored) -> None:
        progress = self.progress.get(store)
        if progress is None or (progress.is_whole and not message.is_whole):
            return  # it speaks of a transfer that was given up, for it had a whole copy already
        progress.stored = max(progress.stored, message.version)
        if message.is_whole and not progress.parts and message.version >= progress.begun:
            progress.is_whole = True
        if progress.parts:
            self._here.send(store, progress.parts.popleft())

    def confirmed(self, stores: tuple[int, ...]) -> int:
        """The version that all of these have on disk, with what was not safe before; -1: one of them has none."""
        if self._base_unsafe is None:
            if not self.are_whole(stores):
                return -1
            self._base_unsafe = set()
        versions = [
            -1 if (found := self.progress.get(store)) is None else found.stored for store in stores
        ]
        return min(versions, default=-1)

    def has(self, store: int, version: int) -> bool:
        """Whether a follower has a version on disk, or a later one."""
        progress = self.progress.get(store)
        return progress is not None and progress.stored >= version

    def are_whole(self, stores: tuple[int, ...]) -> bool:
        return all(store in self.progress and self.progress[store].is_whole for store in stores)


def cut(
    slot: int,
    view: SlotView,
    lineage: Lineage,
    version: int,
    state: dict[bytes, bytes],
    size: int,
    first: set[bytes] | None,
    current: Lineage = NO_LINEAGE,
) -> deque[StatePart]:
    """A whole state in parts. Queues come before messages: see `salvage`.

    `first` is what is to be in the first part, with the head; None: it is a fork.
    """
    early = (first or set()) | {HEAD_KEY}
    keys = sorted(state, key=lambda key: (key not in early, _ORDER.find(key[:1]), key))
    parts: list[_Records] = [[]]
    room = size
    for key in keys:
        value = state[key]
        if room < 0 and key not in early:
            parts.append([])
            room = size
        parts[-1].append((key, value))
        room -= len(key) + len(value)
    end = len(parts) - 1
    found: deque[StatePart] = deque()
    for at, records in enumerate(parts):
        is_fork = first is None
        part = StatePart(slot, view, lineage, version, at, at == end, is_fork, records, current)
        found.append(part)
    return found

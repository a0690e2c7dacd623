"""What an owner knows of one node that holds copies: what it was sent and has not confirmed, and what it may lack."""

import logging
from collections import deque
from collections.abc import Iterable
from typing import Final

from vmq.clustering.messages.records import ENTRIES
from vmq.clustering.messages.replication import (
    MAX_BYTES,
    MAX_CHANGES,
    MAX_NAMES,
    MAX_VALUE,
    BeginCopy,
    Changes,
    KeepOnly,
    RangeDigest,
)
from vmq.store.entries import FLAG_NOTE, FLAG_REF
from vmq.store.store import Store, StoreError

log = logging.getLogger("vmq.cluster")

#: Bytes under way to one node. What is numbered beyond that goes when the first of it is confirmed.
WINDOW: Final = 4 * 1024 * 1024

#: What entries begin with that hold their message themselves, and may be sent as they are; other records do, too.
_PLAIN: Final = frozenset(
    bytes((flags | note,)) for flags in range(FLAG_REF) for note in (0, FLAG_NOTE)
)

#: What a change costs besides its bytes.
OVERHEAD: Final = 64


class NumberedChanges:
    """A numbered message, and the commit whose acknowledgements wait for it (0: nobody does)."""

    __slots__ = ("commit", "filled", "message", "size")

    def __init__(self, message: Changes, commit: int, size: int, filled: list[bytes]) -> None:
        self.message = message
        self.commit = commit
        self.size = size
        #: Sessions whose copies are complete with this one.
        self.filled = filled


class CatchUpTask:
    """A session that a node is to get whole, and how far that is."""

    __slots__ = ("behind", "compares", "is_begun", "ranges", "replaces", "session")

    def __init__(
        self, session: bytes, compares: bool, ranges: Iterable[tuple[bytes, bytes]] | None = None
    ) -> None:
        """`ranges`: what a copy that was compared differs in; None: no copy is begun yet."""
        self.session = session
        #: Digests are sent, and not the records; they are, up to `behind`.
        self.compares = compares
        self.behind = b""
        self.is_begun = self.replaces = ranges is not None
        #: What is left to be sent.
        self.ranges = deque([(b"", b"")] if ranges is None else ranges)


class ChangesDraft:
    """What is gathered for the next messages."""

    __slots__ = ("begun", "changes", "complete", "ended", "filled", "ranges", "sums")

    def __init__(self) -> None:
        self.changes: list[tuple[bytes, bytes | None]] = []
        self.begun: list[BeginCopy] = []
        self.complete: list[bytes] = []
        self.ended: list[bytes] = []
        self.filled: list[bytes] = []
        self.ranges: list[KeepOnly] = []
        self.sums: list[RangeDigest] = []

    @property
    def is_empty(self) -> bool:
        return not (
            self.changes or self.begun or self.complete or self.ended or self.ranges or self.sums
        )


class FollowerState:
    """One other node as a holder of copies."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_up = False
        #: It takes part: what is acknowledged waits for it.
        self.is_active = False
        #: When to greet it, again if it does not answer.
        self.greet_at: float | None = None
        #: Since when it takes no part.
        self.out_since = 0.0
        self.next_number = 1
        #: The commit of the owner's that the present messages are of.
        self.at = 0
        self.confirmed = 0
        #: Batches not confirmed, of which so many are under way.
        self.waiting: deque[NumberedChanges] = deque()
        self.sent = 0
        self.sent_size = 0
        self.size = 0
        #: When something of it was confirmed last, or began to wait.
        self.progress_at = 0.0
        self.resend_at = 0.0
        #: Sessions whose copies there may lack something, and whether the copy that will not is begun.
        self.behind: dict[bytes, bool] = {}
        #: Those of them that are to be copied whole, in this order.
        self.filling: deque[CatchUpTask] = deque()
        #: Those of which it was sent digests, and has not said yet in what it differs; when to ask it.
        self.comparing: set[bytes] = set()
        self.ask_at = 0.0
        #: It has copies of this node's sessions, maybe of earlier lives only; and of these it has old ones.
        self.is_known = False
        self.stale: set[bytes] = set()
        #: It has been left out; that is not known to the store before this commit, and acknowledgements wait.
        self.held_commit = 0
        self.held_until = 0
        self.draft = ChangesDraft()
        #: The batch by which it drops copies of earlier lives of the owner's store (0: not sent), and that it has.
        self.swept_by = 0
        self.is_swept = False

    def is_behind(self, session: bytes) -> bool:
        return bool(self.behind) and session in self.behind

    def floor(self) -> int:
        """The first commit that waits for this node; 0 if none does."""
        if self.held_commit:
            return self.held_commit
        for batch in self.waiting:
            if batch.commit:
                return batch.commit
        return 0

    # --- batches

    def number(self, message: Changes, commit: int, size: int, filled: list[bytes]) -> None:
        """Numbers a message, which waits from now on. Its own number is set here."""
        self.waiting.append(NumberedChanges(message, commit, size, filled))
        self.size += size

    def unsent(self) -> list[Changes]:
        """What may go now; counted as under way."""
        going = []
        while self.sent < len(self.waiting):
            batch = self.waiting[self.sent]
            if self.sent and self.sent_size + batch.size > WINDOW:
                break
            going.append(batch.message)
            self.sent += 1
            self.sent_size += batch.size
        return going

    def rewind(self, number: int) -> None:
        """What is under way from this number on goes again."""
        first = self.next_number - len(self.waiting)
        keep = min(max(number - first, 0), self.sent)
        while self.sent > keep:
            self.sent -= 1
            self.sent_size -= self.waiting[self.sent].size

    def confirm(self, number: int) -> list[NumberedChanges]:
        """Everything up to a number is safe there; returns what was not before."""
        done: list[NumberedChanges] = []
        while self.waiting and self.waiting[0].message.number <= number and self.sent:
            batch = self.waiting.popleft()
            self.sent -= 1
            self.sent_size -= batch.size
            self.size -= batch.size
            self.confirmed = batch.message.number
            done.append(batch)
        return done

    def clear(self) -> list[NumberedChanges]:
        """Forgets what waits, and returns it."""
        gone = list(self.waiting)
        self.waiting.clear()
        self.sent = self.sent_size = self.size = 0
        self.draft = ChangesDraft()
        self.filling.clear()
        self.comparing.clear()
        self.stale.clear()
        return gone

    # --- drafts

    def cut(self, store: Store, life: int, commit: int, again: bool) -> int:
        """Numbers what was gathered, in messages of a bounded size; returns how many records were too long.

        `commit` is 0 where no acknowledgement waits for it.
        """
        draft = self.draft
        if draft.is_empty:
            return 0
        self.draft = ChangesDraft()
        self.at = store.number
        gone = set(draft.ended)
        writer = RecordWriter(store)
        rest = draft.begun
        while len(rest) > MAX_NAMES or len(draft.ended) > MAX_NAMES:
            message = self._message(life, begun=rest[:MAX_NAMES], ended=draft.ended[:MAX_NAMES])
            self.number(message, commit, OVERHEAD * MAX_NAMES, [])
            rest, draft.ended = rest[MAX_NAMES:], draft.ended[MAX_NAMES:]
        changes = writer.changes
        for change in draft.changes:
            key, value = change
            if gone and key[1:9] in gone:
                continue
            if value is None or value[:1] not in _PLAIN:
                writer.add(key, value)
            else:
                changes.append(change)
                writer.size += len(key) + len(value) + OVERHEAD
            if writer.size >= MAX_BYTES or len(changes) >= MAX_CHANGES:
                message = self._message(
                    life, writer.changes, writer.bodies, rest, ended=draft.ended, again=again
                )
                self.number(message, commit, writer.size, [])
                rest, draft.ended = [], []
                writer.clear()
                changes = writer.changes
        for at in range(0, max(len(draft.complete), 1), MAX_NAMES):
            message = self._message(
                life,
                writer.changes,
                writer.bodies,
                rest,
                draft.complete[at : at + MAX_NAMES],
                draft.ended,
                again,
                draft.ranges,
                draft.sums,
            )
            size = writer.size + OVERHEAD * (1 + len(rest) + len(message.complete))
            size += OVERHEAD * (len(draft.sums) + sum(map(_size, draft.ranges)))
            draft.ranges, draft.sums = [], []
            self.number(message, commit, size, draft.filled[at : at + MAX_NAMES])
            rest, draft.ended = [], []
            writer.clear()
        return writer.too_long

    def _message(
        self,
        life: int,
        changes: list[tuple[bytes, bytes | None]] | None = None,
        bodies: list[bytes] | None = None,
        begun: list[BeginCopy] | None = None,
        complete: list[bytes] | None = None,
        ended: list[bytes] | None = None,
        again: bool = False,
        ranges: list[KeepOnly] | None = None,
        sums: list[RangeDigest] | None = None,
    ) -> Changes:
        number = self.next_number
        self.next_number += 1
        return Changes(
            life,
            number,
            self.at,
            changes or [],
            bodies or [],
            begun or [],
            complete or [],
            ended or [],
            again=again,
            ranges=ranges or [],
            sums=sums or [],
        )


def _size(part: KeepOnly) -> int:
    return 1 + len(part.keep) // 4


class RecordWriter:
    """Records of a store in the form in which they travel: messages that entries only name are put in whole, once."""

    __slots__ = ("_places", "_store", "bodies", "changes", "size", "too_long")

    def __init__(self, store: Store) -> None:
        self._store = store
        self.too_long = 0
        self.clear()

    def clear(self) -> None:
        self.changes: list[tuple[bytes, bytes | None]] = []
        self.bodies: list[bytes] = []
        self._places: dict[bytes, int] = {}
        self.size = 0

    def add(self, key: bytes, value: bytes | None) -> None:
        """Adds a record; one whose message is gone is on its way out itself."""
        if value is None:
            self.size += len(key) + OVERHEAD
        elif key[0] in ENTRIES and value[0] & FLAG_REF:
            ref = value[3:11]
            place = self._places.get(ref)
            if place is None:
                try:
                    body = self._store.get(b"m" + ref)
                except StoreError as error:
                    log.error("a message has no copies: %s", error)
                    return
                if body is None:
                    return
                if len(body) > MAX_VALUE:
                    self.too_long += 1
                    return
                self._places[ref] = place = len(self.bodies)
                self.bodies.append(body)
                self.size += len(body)
            value = value[:3] + place.to_bytes(8, "big") + value[11:]
            self.size += len(key) + len(value) + OVERHEAD
        else:
            self.size += len(key) + len(value) + OVERHEAD
        self.changes.append((key, value))

"""What the copies of sessions on other nodes may lack, written down before anything is acknowledged without them.

A mark names a session and a node: the first place of what waits, and of what is in flight, that may not be in the copy
there. Whatever is put at a place behind it came later: nothing before it is missing, and everything behind it may be.

A node that has made its session of a copy may tell of that when the copy there was made anew long since. So a mark has
periods: each begins with a commit of this store at which the copy was whole (the first: at any), and says what a copy
of that period lacks.

A mark without a name holds for every node that has none of its own.

One more says since when the session itself lacks what a new owner had of it (`vmq.clustering.replication.reconcile`).
"""

from collections.abc import Collection
from typing import Final

from vmq.clustering.messages.records import WAITING
from vmq.store.lines import scan
from vmq.store.store import Store

#: Before a session's number and a node's name, in the store.
MARK: Final = b"a"
#: The last commit that had something to be copied, or behind which a node gets no copies: the life of the store, and
#: its number in that.
COPIED: Final = b"lcopied"

Place = tuple[int, int]

#: Lacks nothing that waits, and nothing in flight.
NOTHING: Final[Place] = ((1 << 64) - 1, (1 << 64) - 1)
EVERYTHING: Final[Place] = (0, 0)

#: Instead of a node's name: every node that has no mark of its own.
ANY: Final = ""

#: Instead of a node's name: since when a session lacks what others have.
STRIPPED: Final = "\0"

#: Periods of one mark that are remembered; of copies from before them nothing is known.
_MAX_PERIODS: Final = 4


def copied_last(store: Store) -> tuple[int, int]:
    """The life and the number of the last commit of a store that said so: it is on the disk, and all before it."""
    raw = store.get(COPIED) or b""
    return int.from_bytes(raw[:8], "big"), int.from_bytes(raw[8:], "big")


def note_copied(store: Store, life: int, commit: int) -> None:
    """The commit that gathers has something to be copied, or a node gets no later one."""
    store.put(COPIED, life.to_bytes(8, "big") + commit.to_bytes(8, "big"))


class LagPeriod:
    """From a commit in a life of the store on, and what a copy of that time lacks."""

    __slots__ = ("at", "inflight", "life", "waiting")

    def __init__(self, life: int, at: int, waiting: int, inflight: int) -> None:
        self.life = life
        self.at = at
        self.waiting = waiting
        self.inflight = inflight

    @property
    def place(self) -> Place:
        return (self.waiting, self.inflight)

    def lower(self, key: bytes) -> bool:
        """The entry of a key is not in the copy; returns whether that is news."""
        place = int.from_bytes(key[9:17], "big")
        if key[0] == WAITING:
            is_news = place < self.waiting
            self.waiting = min(place, self.waiting)
        else:
            is_news = place < self.inflight
            self.inflight = min(place, self.inflight)
        return is_news


class ReplicaLag:
    """The marks of all sessions of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._marks: dict[bytes, dict[str, list[LagPeriod]]] = {}
        self._new: set[tuple[bytes, str]] = set()
        for key, value in scan(store.db, MARK):
            self._marks.setdefault(key[1:9], {})[key[9:].decode()] = _decode(value)

    def __contains__(self, session: bytes) -> bool:
        """Whether a session has marks, which have to `follow` what is put into it."""
        return session in self._marks

    def __len__(self) -> int:
        """How many sessions have marks."""
        return len(self._marks)

    def lacks(self, session: bytes, node: str, life: int, at: int) -> Place | None:
        """The places from which on a node's copy, as it was at a commit, may lack what was acknowledged.

        None: it lacks nothing.
        """
        marks = self._marks.get(session, {})
        periods = marks.get(node, marks.get(ANY))
        if periods is None:
            return None
        for period in reversed(periods):
            if (period.life, period.at) <= (life, at):
                return None if period.place == NOTHING else period.place
        return EVERYTHING

    def watch(self, session: bytes, node: str) -> None:
        """A node gets a mark, which says what was said of it before: nothing, or what holds for every other node."""
        marks = self._marks.setdefault(session, {})
        if node not in marks:
            place = marks[ANY][0].place if ANY in marks else NOTHING
            marks[node] = [LagPeriod(0, 0, *place)]
            self._new.add((session, node))

    def lower(self, session: bytes, node: str, key: bytes) -> None:
        """A node's copy lacks the entry of a key."""
        self.watch(session, node)
        if self._marks[session][node][-1].lower(key):
            self._new.add((session, node))

    def follow(self, session: bytes, key: bytes, whole: Collection[str]) -> None:
        """The entry of a key is put into a session: only the present copies on these nodes have it."""
        for node, periods in self._marks[session].items():
            missing = periods[:-1] if node in whole else periods
            for period in missing:
                if period.lower(key):
                    self._new.add((session, node))

    def caught_up(self, session: bytes, node: str, life: int, at: int) -> None:
        """A node's copy is whole from this commit on."""
        self.watch(session, node)
        periods = self._marks[session][node]
        periods.append(LagPeriod(life, at, *NOTHING))
        del periods[:-_MAX_PERIODS]
        self._new.add((session, node))

    def strip(self, session: bytes, life: int, at: int) -> None:
        """What others have is taken out of a session by this commit."""
        self._marks.setdefault(session, {})[STRIPPED] = [LagPeriod(life, at, *NOTHING)]
        self._new.add((session, STRIPPED))

    def is_stripped(self, session: bytes, life: int, at: int) -> bool:
        """Whether a session lacks what a copy as of this commit had, though it is not done."""
        periods = self._marks.get(session, {}).get(STRIPPED)
        return periods is not None and (life, at) < (periods[0].life, periods[0].at)

    def forget(self, session: bytes, node: str) -> None:
        """A node has no copy any more."""
        marks = self._marks.get(session)
        if marks is None or marks.pop(node, None) is None:
            return
        self._new.discard((session, node))
        self._store.delete(_key(session, node))
        if not marks:
            del self._marks[session]

    def remove(self, session: bytes) -> None:
        """A session is over."""
        for node in self._marks.pop(session, ()):
            self._store.delete(_key(session, node))

    def write(self) -> bool:
        """Puts what is new into the commit that gathers; returns whether there was anything."""
        written = bool(self._new)
        for session, node in self._new:
            periods = self._marks.get(session, {}).get(node)
            if periods is not None:
                self._store.put(_key(session, node), _encode(periods))
        self._new.clear()
        return written


def _key(session: bytes, node: str) -> bytes:
    return MARK + session + node.encode()


def _encode(periods: list[LagPeriod]) -> bytes:
    return b"".join(
        number.to_bytes(8, "big")
        for each in periods
        for number in (each.life, each.at, each.waiting, each.inflight)
    )


def _decode(raw: bytes) -> list[LagPeriod]:
    numbers = [int.from_bytes(raw[at : at + 8], "big") for at in range(0, len(raw), 8)]
    return [LagPeriod(*numbers[at : at + 4]) for at in range(0, len(numbers), 4)]

"""What an old copy of a session lacks, found without sending the session: digests of its records, a range at a time.

The owner's store and a copy each tell the truth about themselves after any crash, which a log of what was sent does
not: either may have lost the end of what it had written when the log said so, and the copy may be ahead of its owner.
So both read, and of what they have alike only a digest travels.

A digest is of one moment of the owner's, and the copy takes changes on while it is compared. That does no harm: what
has changed since is the same on both sides, so ranges with equal digests are equal still.

Records are in the order of `RECORDS`, then of their keys. A range begins behind one place and ends with another, which
is the rest of a key behind its kind; b"" is before the first and, as an end, behind the last.
"""

from collections import deque
from collections.abc import Callable, Iterator
from hashlib import blake2b
from typing import Final

from vmq.clustering.messages.records import ENTRIES, RECORDS
from vmq.clustering.messages.replication import RangeDigest
from vmq.store.entries import FLAG_REF
from vmq.store.lines import scan_line
from vmq.store.store import Store

#: Records in one range.
RANGE: Final = 64

#: Records that are read in one step.
_READ: Final = 2000

_DIGEST: Final = 16


def records_behind(store: Store, session: bytes, behind: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The committed records of a session behind a key (empty: all), in order."""
    kinds = RECORDS[RECORDS.index(behind[0]) :] if behind else RECORDS
    for kind in kinds:
        line = bytes((kind,)) + session
        yield from scan_line(store.db, line, behind if behind.startswith(line) else b"")


def place_of(key: bytes) -> bytes:
    """A record's place among those of its session: its kind and the rest of its key."""
    return key[:1] + key[9:]


def key_at(session: bytes, place: bytes) -> bytes:
    """The key of the record of a session at a place; b"" at none."""
    return place[:1] + session + place[1:] if place else b""


def is_behind_end(place: bytes, end: bytes) -> bool:
    """Whether a place is behind the end of a range."""
    if not end:
        return False
    return (RECORDS.index(place[0]), place) > (RECORDS.index(end[0]), end)


class Digest:
    """The digest of a range."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._hash = blake2b(digest_size=_DIGEST)
        self.count = 0

    def add(self, key: bytes, value: bytes) -> None:
        """Takes in a record. Of a message that it only names it is the text that counts."""
        if key[0] in ENTRIES and value[0] & FLAG_REF:
            body = self._store.get(b"m" + value[3:11]) or b""
            value = value[:3] + body + value[11:]
        place = place_of(key)
        self._hash.update(len(place).to_bytes(4, "big") + place)
        self._hash.update(len(value).to_bytes(4, "big") + value)
        self.count += 1

    def take(self) -> bytes:
        """What it is; the next range begins."""
        digest = self._hash.digest()
        self._hash = blake2b(digest_size=_DIGEST)
        self.count = 0
        return digest


def sums_behind(
    store: Store, session: bytes, behind: bytes, limit: int
) -> tuple[list[RangeDigest], bytes, int]:
    """The digests of the ranges of a session behind a place, of so many records.

    Returns:
        The digests; the place behind which to go on, b"" if they reach the end; and how many records were read.
    """
    sums: list[RangeDigest] = []
    digest = Digest(store)
    read = 0
    start = place = behind
    for key, value in records_behind(store, session, key_at(session, behind)):
        if digest.count >= RANGE:
            sums.append(RangeDigest(session, start, place, digest.take()))
            start = place
            if read >= limit:
                return sums, place, read
        digest.add(key, value)
        place = place_of(key)
        read += 1
    sums.append(RangeDigest(session, start, b"", digest.take()))
    return sums, b"", read


class CopyComparison:
    """A copy that is compared: the digests that came, and the ranges in which it was found to differ."""

    def __init__(self, copy: bytes) -> None:
        self._copy = copy
        self._sums: deque[RangeDigest] = deque()
        #: What came before the digests is in this commit, or an earlier one.
        self.commit = 0
        self.ranges: list[tuple[bytes, bytes]] = []
        self.is_done = False

    def add(self, found: RangeDigest, commit: int) -> None:
        """One more range, the next in order."""
        self._sums.append(found)
        self.commit = commit

    @property
    def has_work(self) -> bool:
        """Whether there is a range to be read."""
        return bool(self._sums) and not self.is_done

    def step(self, store: Store) -> int:
        """Reads the next range of what is committed; returns how many records that were."""
        wanted = self._sums.popleft()
        digest = Digest(store)
        for key, value in records_behind(store, self._copy, key_at(self._copy, wanted.behind)):
            if is_behind_end(place_of(key), wanted.end):
                break
            digest.add(key, value)
            if digest.count > RANGE:
                break  # more than the owner has
        read = digest.count
        if digest.take() != wanted.digest:
            self._differs(wanted.behind, wanted.end)
        self.is_done = not wanted.end
        return read

    def _differs(self, behind: bytes, end: bytes) -> None:
        ranges = self.ranges
        if ranges and ranges[-1][1] == behind:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((behind, end))


class CopyComparisons:
    """The copies that one node compares with digests of their owners.

    Args:
        store: the broker's.
        differ: told of an owner, a session of it, and the ranges in which the copy differs.
    """

    def __init__(
        self, store: Store, differ: Callable[[str, bytes, list[tuple[bytes, bytes]]], object]
    ) -> None:
        self._store = store
        self._differ = differ
        self._all: dict[tuple[str, bytes], CopyComparison] = {}
        #: Those with digests that have not been looked at.
        self._waiting: deque[tuple[str, bytes]] = deque()

    def begin(self, owner: str, session: bytes, copy: bytes) -> None:
        """The digests of a session come next."""
        self._all[owner, session] = CopyComparison(copy)

    def end(self, owner: str, session: bytes) -> None:
        """The copy is whole, or gone, or to be compared no longer."""
        self._all.pop((owner, session), None)

    def add(self, owner: str, found: RangeDigest) -> bool:
        """The next digest; returns whether it belongs to something."""
        comparison = self._all.get((owner, found.session))
        if comparison is None:
            return False
        if not comparison.has_work:
            self._waiting.append((owner, found.session))
        comparison.add(found, self._store.number)
        return True

    def repeat(self, owner: str, session: bytes) -> bool:
        """Tells once more what was found, if it was; returns whether there is a comparison at all."""
        comparison = self._all.get((owner, session))
        if comparison is not None and comparison.is_done:
            self._differ(owner, session, comparison.ranges)
        return comparison is not None

    @property
    def has_work(self) -> bool:
        """Whether there are digests to be looked at."""
        return bool(self._waiting)

    def step(self, committed: int) -> bool:
        """Compares some, of which the store has committed what came before; returns whether there are more."""
        read = 0
        waiting = self._waiting
        while waiting and read < _READ:
            owner, session = waiting[0]
            comparison = self._all.get((owner, session))
            if comparison is None or not comparison.has_work:
                waiting.popleft()
            elif comparison.commit > committed:
                return False
            else:
                read += 1 + comparison.step(self._store)
                if comparison.is_done:
                    self._differ(owner, session, comparison.ranges)
        return bool(waiting)


def keys_in(store: Store, session: bytes, behind: bytes, end: bytes) -> Iterator[bytes]:
    """The keys of a session's records in a range, those of commits under way too."""
    first = (RECORDS.index(behind[0]), behind) if behind else (-1, b"")
    seen = set()
    for key, _ in records_behind(store, session, key_at(session, behind)):
        if is_behind_end(place_of(key), end):
            break
        seen.add(key)
    for key in store.uncommitted(session):
        place = place_of(key)
        if (RECORDS.index(place[0]), place) <= first or is_behind_end(place, end):
            continue
        if store.is_deleted(key):
            seen.discard(key)
        else:
            seen.add(key)
    yield from sorted(seen)

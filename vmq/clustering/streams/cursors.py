"""The cursors of readers of history, which clients of any node go on by: replicated metadata, a key a cursor.

Each node keeps those of its own clients besides (`vmq.streams.replay.keeping`), more often than it tells the others:
when a node dies, a reader that goes on at another one gets again what it acknowledged in the last second. The word of
who came last to a cursor counts; who still reads by it elsewhere, as a split keeps the nodes from knowing, adds to it.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import msgspec
from msgspec import Struct

from vmq.streams.definition import StreamRef
from vmq.streams.reader_places import CursorKey, FoundCursor, Kept, Place
from vmq_cluster.effects import Changed
from vmq_cluster.keyed_records import Records, decode, encode
from vmq_cluster.node import ClusterNode

#: The prefix of the metadata under which they are: owner, NUL, name.
CURSORS: Final = "vmq.cursors"
#: Seconds after which the others hear of a cursor that moves.
EVERY: Final = 1.0
#: Seconds that one is kept without being used: a week, as each node does, and an hour, since clocks differ.
KEPT: Final = 7 * 86_400 + 3600


class SharedCursor(Struct, frozen=True, array_like=True):
    """A cursor as the metadata have it."""

    #: As `StreamRef.text` says it.
    stream: str
    positions: dict[int, int]
    #: The node at which somebody reads by it, or did last, and since when: milliseconds of wall clock time.
    node: str
    since: int
    #: Seconds of wall clock time.
    used: int


def furthest(one: SharedCursor, other: SharedCursor) -> SharedCursor:
    """Two words on one cursor as one: the later reader's, and as far as either of them was."""
    earlier, later = sorted((one, other), key=lambda each: (each.since, each.node, each.stream))
    if earlier.stream != later.stream:
        return later
    positions = dict(earlier.positions)
    for number, position in later.positions.items():
        positions[number] = max(position, positions.get(number, 0))
    used = max(one.used, other.used)
    return msgspec.structs.replace(later, positions=dict(sorted(positions.items())), used=used)


def merge(one: bytes, other: bytes) -> bytes:
    """What stands of two values that were written at the same time."""
    first, second = decode(one, SharedCursor), decode(other, SharedCursor)
    if first is None or second is None:
        return other if first is None else one
    return encode(furthest(first, second))


class ClusterCursors:
    """The cursors of a cluster, at one of its nodes.

    Args:
        node: the node.
        wall_clock: seconds since 1970.
    """

    def __init__(self, node: ClusterNode, wall_clock: Callable[[], float]) -> None:
        self._node = node
        self._records = Records(node, CURSORS, "a cursor")
        self._wall_clock = wall_clock
        self.on_taken: Callable[[CursorKey, str], None] = lambda _key, _node: None
        self.on_forgotten: Callable[[CursorKey], None] = lambda _key: None
        #: Those that clients of this node read by, and since when.
        self._reading: dict[CursorKey, int] = {}
        #: What the others have not been told.
        self._moved: dict[CursorKey, Kept] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """The node runs."""
        self._node.merge_with(CURSORS, merge)
        self._node.watch_steps(CURSORS, self._on_changes)

    def close(self) -> None:
        """The streams close."""
        self._tell()
        self._reading.clear()
        self.on_taken = lambda _key, _node: None
        self.on_forgotten = lambda _key: None

    def find(self, key: CursorKey, stream: StreamRef) -> FoundCursor | None:
        """Where a cursor is in its stream, as this node has heard."""
        found = self._get(key)
        if found is None or not stream.has(found.stream, found.used):
            return None
        return FoundCursor(Place(found.positions, {}), found.node == self._node.name)

    def knows(self, key: CursorKey) -> bool:
        """Whether there is such a cursor."""
        return self._get(key) is not None

    def count(self, owner: str) -> int:
        """How many somebody has."""
        return len(self._records.all(owner))

    def take(self, kept: Kept) -> None:
        """A client of this node reads by a cursor from now on, and no other one any more."""
        known = self._get(kept[0])
        now = int(self._wall_clock() * 1000)
        self._reading[kept[0]] = now if known is None else max(now, known.since + 1)
        self._put(kept)

    def keep(self, moved: Iterable[Kept]) -> None:
        """Cursors have moved."""
        for kept in moved:
            self._moved[kept[0]] = kept
        if self._moved and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self._tell)

    def leave(self, kept: Kept) -> None:
        """Nobody of this node reads by a cursor any more."""
        self._moved.pop(kept[0], None)
        self._put(kept)
        self._reading.pop(kept[0], None)

    def forget(self, key: CursorKey) -> None:
        """A cursor is needed no more."""
        self._moved.pop(key, None)
        self._reading.pop(key, None)
        self._records.delete(*key)

    def sweep(self) -> None:
        """Cursors that nobody has used for long go."""
        oldest = self._wall_clock() - KEPT
        for parts, raw in self._records.all():
            found = decode(raw, SharedCursor)
            if found is None or found.used < oldest:
                self._records.delete(*parts)

    def _tell(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        moved, self._moved = self._moved, {}
        for kept in moved.values():
            self._put(kept)

    def _put(self, kept: Kept) -> None:
        key, stream, place = kept
        known = self._get(key)
        since = self._reading.get(key, 0)
        used = int(self._wall_clock())
        value = SharedCursor(stream, dict(place.positions), self._node.name, since, used)
        if known is not None and known.since > since:
            value = furthest(known, value)
        self._records.put(encode(value), *key)

    def _get(self, key: CursorKey) -> SharedCursor | None:
        return decode(self._records.get(*key), SharedCursor)

    def _on_changes(self, changes: list[Changed]) -> None:
        for change in changes:
            if change.local:
                continue
            owner, _, name = change.key.decode(errors="replace").partition("\0")
            key = CursorKey(owner, name)
            found = decode(change.value, SharedCursor)
            if found is None:
                self._reading.pop(key, None)
                self.on_forgotten(key)
            elif key in self._reading and found.since > self._reading[key]:
                del self._reading[key]
                self.on_taken(key, found.node)

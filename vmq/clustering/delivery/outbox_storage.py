"""What outboxes keep in the store: messages that peers have not confirmed, and how far this node came with theirs.

Keys are told in `vmq.store.store`. Places rise over all lives of a broker: a life is the time of its start in
milliseconds, or one more than the last. A store that is made anew cannot know the last, so stores are told apart as
well.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Final

from vmq.clustering.messages.codec import MessageBatch, count_of
from vmq.store.lines import check_end, scan
from vmq.store.store import Store, StoreError

OUTGOING: Final = b"o"
TAKEN: Final = b"t"
LIFE: Final = b"l"
BORN: Final = b"lborn"

_NAME_END: Final = b"\0"  # in no name of a node
_PLACE: Final = 16


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _raw(*numbers: int) -> bytes:
    return struct.pack(f">{len(numbers)}Q", *numbers)


def begin_life(store: Store, wall: int, choose: Callable[[int], int]) -> tuple[int, int]:
    """The name of the store and the number of the life that begins; to be committed before either is used.

    Args:
        store: the broker's.
        wall: the time, in milliseconds since 1970.
        choose: the source of randomness, as in `vmq.core.context`.
    """
    stored = store.get(LIFE)
    if stored is None or len(stored) != _PLACE:
        name, life = 1 + choose((1 << 62) - 1), max(wall, 1)
        store.put(BORN, _raw(life))
    else:
        name, life = _number(stored[:8]), max(wall, _number(stored[8:]) + 1)
    store.put(LIFE, _raw(name, life))
    return name, life


def born_in(store: Store) -> int:
    """The first life of a store as a node's; 0: an earlier version began that, and did not note it."""
    return _number(store.get(BORN) or b"")


def prefix_of(peer: str) -> bytes:
    """What the keys of all batches to a peer begin with, and the whole key of what they are in total."""
    return OUTGOING + peer.encode() + _NAME_END


def outgoing_key(peer: str, life: int, number: int) -> bytes:
    """The key of a batch to a peer: those of one peer sort by their places."""
    return parcel_key(prefix_of(peer), life, number)


def parcel_key(prefix: bytes, life: int, number: int) -> bytes:
    """The key of a batch, behind the `prefix` that the keys of all batches to that peer have."""
    return prefix + life.to_bytes(8, "big") + number.to_bytes(8, "big")


def place_of(key: bytes) -> tuple[int, int]:
    """The life and the number in a batch's key."""
    return _number(key[-_PLACE:-8]), _number(key[-8:])


def put_total(store: Store, prefix: bytes, messages: int, size: int) -> None:
    """Writes what waits for the peer of a prefix in total; nothing is written of nothing, nor of what cannot be."""
    if messages > 0 and size >= 0:
        store.put(prefix, messages.to_bytes(8, "big") + size.to_bytes(8, "big"))
    else:
        store.delete(prefix)


def stored_lanes(store: Store) -> Iterator[tuple[str, bytes, int, int]]:
    """The peers for which something waits, each with the last key, and how many messages and bytes.

    It costs the same however much waits, where the total stands in the store.

    Raises:
        StoreError: a record is none, which only a damaged store shows.
    """
    key = OUTGOING
    while True:
        # One record, where a scan of all of them would take as long as the spool is large.
        found = next(
            store.db.iterator(start=key, stop=_after(OUTGOING), verify_checksums=True), None
        )
        if found is None:
            check_end(store.db, key)
            return
        name, end, rest = found[0][1:].partition(_NAME_END)
        if not name or not end or len(rest) not in (0, _PLACE):
            raise StoreError(f"key {found[0][:40]!r} is none of a message to another node")
        prefix = OUTGOING + name + _NAME_END
        key = _after(prefix)
        last = _last_before(store, key)
        if last == prefix:
            messages = size = 0  # whatever is said of them
        elif not rest and len(found[1]) == _PLACE:
            messages, size = _number(found[1][:8]), _number(found[1][8:])
        else:
            messages, size = _count(store, prefix, last)
        yield name.decode(), last, messages, size


def _count(store: Store, prefix: bytes, last: bytes) -> tuple[int, int]:
    messages = size = 0
    for _, raw in stored_parcels(store, prefix, last):
        messages += count_of(raw)
        size += len(raw)
    return messages, size


def stored_parcels(store: Store, after: bytes, last: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The batches of one peer behind one key and up to another, as the commits under way leave those on the disk.

    What is deleted by now, or shorter, must not be seen as it was: it would be sent once more.

    Raises:
        Exception: LevelDB's, where a record cannot be read, or the database is closed.
    """
    seen = after
    for key, value in store.db.iterator(
        start=after, include_start=False, stop=last, include_stop=True, verify_checksums=True
    ):
        seen = key
        latest = store.latest(key, value)
        if latest is not None:
            yield key, latest
        if key == last:
            return  # before LevelDB looks for the next one, behind all that was deleted of other outboxes
    check_end(store.db, seen)


def _last_before(store: Store, key: bytes) -> bytes:
    """The last committed key in front of another, where there is one.

    By hand: plyvel's iterator, backwards, passes over a record that is the only one of its range.
    """
    at = store.db.raw_iterator(verify_checksums=True)
    at.seek(key)
    if at.valid():
        at.prev()
    else:
        at.seek_to_last()
    found: bytes = at.key()
    at.close()
    return found


def _after(prefix: bytes) -> bytes:
    """The first key behind all that begin with this."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def _place_in(raw: bytes) -> tuple[int, int, int]:
    return _number(raw[:8]), _number(raw[8:16]), _number(raw[16:24])


Place = tuple[int, int, int]
_NOWHERE: Final = (0, 0, 0)


def full_place_of(parcel: MessageBatch) -> Place:
    """A batch's origin's store, its life, and its number."""
    return parcel.store, parcel.life, parcel.number


class TakenPlaces:
    """How far this node has come with the places of each origin.

    What batches have for the streams is written apart from the store, and may be lost by a crash after which the store
    says that it was taken. So the store says as well how far the streams have it; what is between the two they are
    given again.
    """

    def __init__(self, store: Store) -> None:
        """Reads what is stored.

        Raises:
            StoreError: a record is none, which only a damaged store shows.
        """
        self._store = store
        #: By the origin's name: what was taken, how far the streams have it where that is less, and what they may lack
        #: of what an earlier life took: behind the one and up to the other.
        self._places: dict[str, Place] = {}
        self._streamed: dict[str, Place] = {}
        self._lacking: dict[str, tuple[Place, Place]] = {}
        #: How far the store came that an origin had before its present one.
        self._before: dict[str, Place] = {}
        #: Where the places were that have changed since the last save.
        self._changed: dict[str, Place | None] = {}
        for key, value in scan(store.db, TAKEN):
            if len(value) not in (24, 48, 72):
                raise StoreError(f"key {key[:40]!r} is none of another node's messages")
            origin = key[1:].decode()
            self._places[origin] = place = _place_in(value)
            if any(value[24:48]):
                self._before[origin] = _place_in(value[24:])
            if len(value) > 48:
                self._streamed[origin] = streamed = _place_in(value[48:])
                self._lacking[origin] = streamed, place

    def is_new(self, origin: str, parcel: MessageBatch) -> bool:
        """Takes a batch, in the order of the channel; returns whether it was not here before.

        Places may be left out: what was dropped at the origin never comes. From another store than before everything
        is new: the origin lost the old one, and with it whatever that still had to send.
        """
        place = full_place_of(parcel)
        known = self._places.get(origin)
        if known is not None and known[0] == place[0] and place <= known:
            return False
        self._changed.setdefault(origin, known)
        if known is not None and known[0] != place[0]:
            self._before[origin] = known
        self._places[origin] = place
        return True

    def last(self, origin: str, store: int) -> tuple[int, int]:
        """The place of the last batch that came from a store of an origin; (0, 0) if that is not known."""
        for places in (self._places, self._before):
            place = places.get(origin)
            if place is not None and place[0] == store:
                return place[1:]
        return (0, 0)

    def is_lacking(self, origin: str, parcel: MessageBatch) -> bool:
        """Whether the streams may lack what a batch has for them that is not new; it is given to them then."""
        lacking = self._lacking.get(origin)
        place = full_place_of(parcel)
        if lacking is None or lacking[0][0] != place[0] or not lacking[0] < place <= lacking[1]:
            return False
        self._lacking[origin] = place, lacking[1]
        return True

    def save(self, *, streams_lack: bool = False) -> None:
        """Writes what was taken into the commit that holds what became of it.

        Args:
            streams_lack: the streams have not committed all of it, for which `streamed` is to be called.
        """
        for origin, before in self._changed.items():
            place = self._places[origin]
            if streams_lack:
                last = before if before is not None and before[0] == place[0] else (place[0], 0, 0)
                self._streamed.setdefault(origin, last)
            self._put(origin)
        self._changed.clear()

    def streamed(self, origin: str, place: Place) -> None:
        """The streams have everything up to a place."""
        if origin not in self._streamed or origin not in self._places:
            return
        if place == self._places[origin]:
            del self._streamed[origin]
        else:
            self._streamed[origin] = place
        self._put(origin)

    def _put(self, origin: str) -> None:
        streamed = self._streamed.get(origin, ())
        before = self._before.get(origin, _NOWHERE if streamed else ())
        self._store.put(TAKEN + origin.encode(), _raw(*self._places[origin], *before, *streamed))

"""What lanes keep in the store: messages that other nodes have not confirmed, and how far this node came with theirs.

Keys are told in `vmq.store`. Places rise over all lives of a broker: a life is the time of its start in milliseconds,
or one more than the last. A store that is made anew cannot know the last, so stores are told apart as well.
"""

from collections.abc import Callable, Iterator
from typing import Final

from vmq.clustering.wire import Parcel
from vmq.store import Store, StoreError, scan

OUTGOING: Final = b"o"
TAKEN: Final = b"t"
LIFE: Final = b"l"

_NAME_END: Final = b"\0"  # in no name of a node
_PLACE: Final = 16


def _number(raw: bytes) -> int:
    return int.from_bytes(raw, "big")


def _raw(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(8, "big") for number in numbers)


def begin_life(store: Store, wall: int, choose: Callable[[int], int]) -> tuple[int, int]:
    """The name of the store and the number of the life that begins; to be committed before either is used.

    Args:
        store: the broker's.
        wall: the time, in milliseconds since 1970.
        choose: the source of randomness, as in `vmq.core`.
    """
    stored = store.get(LIFE)
    if stored is None or len(stored) != _PLACE:
        name, life = 1 + choose((1 << 62) - 1), max(wall, 1)
    else:
        name, life = _number(stored[:8]), max(wall, _number(stored[8:]) + 1)
    store.put(LIFE, _raw(name, life))
    return name, life


def outgoing_key(peer: str, life: int, number: int) -> bytes:
    """The key of a message to a peer: those of one peer sort by their places."""
    return OUTGOING + peer.encode() + _NAME_END + _raw(life, number)


def stored_outgoing(store: Store) -> Iterator[tuple[str, bytes, bytes]]:
    """Every message that waits for a peer, with that peer and its key, in order.

    Raises:
        StoreError: a record is none, which only a damaged store shows.
    """
    for key, value in scan(store.db, OUTGOING):
        name = key[1 : -_PLACE - 1]
        if not name or key[-_PLACE - 1 : -_PLACE] != _NAME_END:
            raise StoreError(f"key {key[:40]!r} is none of a message to another node")
        yield name.decode(), key, value


class Taken:
    """How far this node has come with the places of each origin."""

    def __init__(self, store: Store) -> None:
        """Reads what is stored.

        Raises:
            StoreError: a record is none, which only a damaged store shows.
        """
        self._store = store
        #: The origin's store, life and number, by the origin's name.
        self._places: dict[str, tuple[int, int, int]] = {}
        self._changed: set[str] = set()
        for key, value in scan(store.db, TAKEN):
            if len(value) != 24:
                raise StoreError(f"key {key[:40]!r} is none of another node's messages")
            place = (_number(value[:8]), _number(value[8:16]), _number(value[16:]))
            self._places[key[1:].decode()] = place

    def is_new(self, origin: str, parcel: Parcel) -> bool:
        """Takes a parcel, in the order of the channel; returns whether it was not here before.

        Places may be left out: what was dropped at the origin never comes. From another store than before everything
        is new: the origin lost the old one, and with it whatever that still had to send.
        """
        place = (parcel.store, parcel.life, parcel.number)
        known = self._places.get(origin)
        if known is not None and known[0] == place[0] and place <= known:
            return False
        self._places[origin] = place
        self._changed.add(origin)
        return True

    def save(self) -> None:
        """Writes what was taken into the commit that holds what became of it."""
        for origin in self._changed:
            self._store.put(TAKEN + origin.encode(), _raw(*self._places[origin]))
        self._changed.clear()

    def forget_others(self, members: set[str]) -> None:
        """Only these nodes are members now."""
        for origin in self._places.keys() - members:
            del self._places[origin]
            self._changed.discard(origin)
            self._store.delete(TAKEN + origin.encode())

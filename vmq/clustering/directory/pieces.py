"""The subscriptions of one session in pieces of a bounded size, each under a key of its own in the metadata.

So what one SUBSCRIBE costs does not grow with what the client has subscribed to before. A piece is filled with filters
in the order in which they come, so a SUBSCRIBE of many filters writes few pieces. The first piece is in the session's
record itself: most sessions have no other.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from vmq.mqtt.topics import split_shared

#: The most filters of a piece.
PIECE: Final = 32

#: QoS by filter.
Filters = dict[str, int]


class Pieces:
    """What this node keeps in mind of a session of its own that has more than one piece."""

    def __init__(self, found: Mapping[int, Filters]) -> None:
        """`found`: what the metadata hold. What is in two pieces, as after a split, stays in the first."""
        self.pieces: dict[int, Filters] = {0: {}}
        self._place: dict[str, int] = {}
        self._last = max(found, default=0)
        for number, filters in sorted(found.items()):
            mine = {name: qos for name, qos in filters.items() if name not in self._place}
            self.pieces[number] = mine
            self._place.update(dict.fromkeys(mine, number))
        #: Those that have room. Not changed in place: what is written and told holds the dicts of `pieces`.
        self._open = {number for number, each in self.pieces.items() if len(each) < PIECE}
        #: How many are shared subscriptions.
        self.shared = sum(1 for name in self._place if split_shared(name)[0])

    @property
    def names(self) -> Iterable[str]:
        """All filters."""
        return self._place.keys()

    def place(self, name: str) -> int | None:
        """The number of the piece that holds a filter, if one does."""
        return self._place.get(name)

    def apply(self, changes: Mapping[str, int | None]) -> dict[int, Filters]:
        """Subscribes and (None) unsubscribes; returns the pieces that changed, as they were."""
        before: dict[int, Filters] = {}
        for name, qos in changes.items():
            number = self._place.get(name)
            if number is None:
                if qos is None:
                    continue
                number = self._room()
            piece = self.pieces.setdefault(number, {})
            if piece.get(name) == qos:
                continue
            if number not in before:
                before[number] = piece
                self.pieces[number] = piece = dict(piece)
            self._put(number, piece, name, qos)
        for number in before:
            if number and not self.pieces[number]:
                del self.pieces[number]
                self._open.discard(number)
        return before

    def _room(self) -> int:
        """The number of a piece that has room for one more."""
        for number in self._open:
            return number
        self._last += 1
        self._open.add(self._last)
        return self._last

    def _put(self, number: int, piece: Filters, name: str, qos: int | None) -> None:
        is_new = name not in piece
        if qos is None:
            del piece[name]
            del self._place[name]
        else:
            piece[name] = qos
            self._place[name] = number
        if (is_new or qos is None) and split_shared(name)[0]:
            self.shared += -1 if qos is None else 1
        if len(piece) < PIECE:
            self._open.add(number)
        else:
            self._open.discard(number)

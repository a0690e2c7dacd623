"""Sets of packet ids in little memory."""

from collections.abc import Iterable, Iterator
from typing import Final

from mypy_extensions import i64, mypyc_attr

#: Ids up to which a set is smaller than a bit for each id that there is.
FEW: Final = 64
#: Bytes of a bit for each id, 0 to 65,535.
BITS: Final = 8192


@mypyc_attr(acyclic=True)
class PacketIds:
    """A set of packet ids, of 8 KiB at most: a Python set of all of them has 4 MB.

    Clients give ids in turn and release them in that order: what they have open is a row of ids, of which the first
    and the one behind the last are enough to know. What is out of the row is among the `few`; once these are many,
    a bit stands for each id.
    """

    def __init__(self) -> None:
        #: The row: from this id to the one before that.
        self.first: i64 = 0
        self.behind: i64 = 0
        self.few: set[int] | None = None
        #: A bit for each id, once there were more than `FEW` out of the row; None otherwise.
        self.bits: bytearray | None = None
        self.count: int = 0

    def __contains__(self, packet_id: int) -> bool:
        return self.has(packet_id)

    def has(self, packet_id: i64) -> bool:
        """Whether an id is in the set."""
        if self.first <= packet_id < self.behind:
            return True
        few = self.few
        if few is not None:
            return packet_id in few
        bits = self.bits
        return bits is not None and bits[packet_id >> 3] >> (packet_id & 7) & 1 == 1

    def __len__(self) -> int:
        if self.bits is not None:
            return self.count
        row: int = self.behind - self.first
        return row if self.few is None else row + len(self.few)

    def __iter__(self) -> Iterator[int]:
        """In ascending order; the set may change meanwhile."""
        return iter(self.sorted())

    def sorted(self) -> list[int]:
        """All of them, in ascending order."""
        bits = self.bits
        if bits is None:
            row = list(range(self.first, self.behind))
            return row if self.few is None else sorted([*row, *self.few])
        found: list[int] = []
        for index in range(BITS):
            byte = bits[index]
            if byte:
                for bit in range(8):
                    if byte >> bit & 1:
                        found.append(8 * index + bit)
        return found

    def add(self, packet_id: i64) -> None:
        """Puts one in."""
        bits = self.bits
        if bits is not None:
            self.set_bit(bits, packet_id)
        elif self.has(packet_id):
            pass
        elif self.first == self.behind:
            self.first = packet_id
            self.behind = packet_id + 1
        elif packet_id == self.behind:
            self.behind = packet_id + 1
        else:
            few = self.few
            if few is None:
                self.few = few = set()
            few.add(packet_id)
            if len(few) > FEW:
                self.spread()

    def set_bit(self, bits: bytearray, packet_id: i64) -> None:
        index = packet_id >> 3
        mask: i64 = 1 << (packet_id & 7)
        if not bits[index] & mask:
            bits[index] |= mask
            self.count += 1

    def spread(self) -> None:
        """Goes over to bits."""
        ids = self.sorted()
        self.clear()
        self.bits = bits = bytearray(BITS)
        for packet_id in ids:
            self.set_bit(bits, packet_id)

    def discard(self, packet_id: i64) -> None:
        """Takes one out, if it is there; the last one takes the bits with it."""
        first: i64 = self.first
        if first <= packet_id < self.behind:
            if packet_id == first:
                self.first = first + 1
            elif packet_id == self.behind - 1:
                self.behind = packet_id
            else:
                self.leave_row(packet_id)
            return
        few = self.few
        if few is not None:
            few.discard(packet_id)
            if not few:
                self.few = None
            return
        bits = self.bits
        if bits is None:
            return
        index = packet_id >> 3
        mask: i64 = 1 << (packet_id & 7)
        if bits[index] & mask:
            bits[index] &= ~mask
            self.count -= 1
            if self.count == 0:
                self.bits = None

    def leave_row(self, packet_id: i64) -> None:
        """One goes out of the middle of the row: those before it are in the row no more."""
        before = range(self.first, packet_id)
        self.first = packet_id + 1
        self.update(before)

    def update(self, packet_ids: Iterable[int]) -> None:
        """Adds all of these."""
        for packet_id in packet_ids:
            self.add(packet_id)

    def clear(self) -> None:
        """Takes all of them out."""
        self.first = 0
        self.behind = 0
        self.few = None
        self.bits = None
        self.count = 0

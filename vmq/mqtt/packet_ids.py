"""Sets of packet ids in little memory."""

from collections.abc import Iterable, Iterator
from typing import Final

#: Ids up to which a set is smaller than a bit for each id that there is.
FEW: Final = 64
#: Bytes of a bit for each id, 0 to 65,535.
BITS: Final = 8192


class PacketIds:
    """A set of packet ids, of 8 KiB at most: a Python set of all of them has 4 MB."""

    def __init__(self) -> None:
        self.few: set[int] = set()
        #: A bit for each id, once there were more than `FEW`; None otherwise.
        self.bits: bytearray | None = None
        self.count: int = 0

    def __contains__(self, packet_id: int) -> bool:
        bits = self.bits
        if bits is None:
            return packet_id in self.few
        return bits[packet_id >> 3] >> (packet_id & 7) & 1 == 1

    def __len__(self) -> int:
        return self.count if self.bits is not None else len(self.few)

    def __iter__(self) -> Iterator[int]:
        """In ascending order; the set may change meanwhile."""
        return iter(self.sorted())

    def sorted(self) -> list[int]:
        """All of them, in ascending order."""
        bits = self.bits
        if bits is None:
            return sorted(self.few)
        found: list[int] = []
        for index in range(BITS):
            byte = bits[index]
            if byte:
                for bit in range(8):
                    if byte >> bit & 1:
                        found.append(8 * index + bit)
        return found

    def add(self, packet_id: int) -> None:
        bits = self.bits
        if bits is None:
            few = self.few
            few.add(packet_id)
            if len(few) > FEW:
                self.spread()
            return
        index = packet_id >> 3
        mask = 1 << (packet_id & 7)
        if not bits[index] & mask:
            bits[index] |= mask
            self.count += 1

    def spread(self) -> None:
        """Goes over to bits."""
        few = self.few
        self.few = set()
        self.count = 0
        self.bits = bytearray(BITS)
        for packet_id in few:
            self.add(packet_id)

    def discard(self, packet_id: int) -> None:
        """Takes one out, if it is there; the last one takes the bits with it."""
        bits = self.bits
        if bits is None:
            self.few.discard(packet_id)
            return
        index = packet_id >> 3
        mask = 1 << (packet_id & 7)
        if bits[index] & mask:
            bits[index] &= ~mask
            self.count -= 1
            if self.count == 0:
                self.bits = None

    def update(self, packet_ids: Iterable[int]) -> None:
        """Adds all of these."""
        for packet_id in packet_ids:
            self.add(packet_id)

    def clear(self) -> None:
        """Takes all of them out."""
        self.few = set()
        self.bits = None
        self.count = 0

"""The acknowledgements that a publisher waits for."""

from functools import lru_cache
from typing import Final

from vmq.bench.load.frames import PACKET_ID_CYCLE, packet_id_of

PUBACK: Final = 0x40
PUBREC: Final = 0x50
PUBREL: Final = 0x62
PUBCOMP: Final = 0x70
#: Bytes of each of these packets.
LENGTH: Final = 4


@lru_cache
def _table(head: int) -> bytes:
    """The acknowledgements for two cycles of packet ids: a run of them is one slice, wherever it begins."""
    cycle = b"".join(
        bytes((head, 2)) + packet_id_of(sequence).to_bytes(2, "big")
        for sequence in range(PACKET_ID_CYCLE)
    )
    return cycle * 2


class AckLine:
    """One kind of acknowledgement, expected in the order of the messages [MQTT-4.6.0-2], taken in any.

    `next` is the first message without one, `early` those behind it that have theirs already.
    """

    def __init__(self, head: int) -> None:
        self.next = 0
        self.early: set[int] = set()
        #: Acknowledgements for which no message was waiting.
        self.unknown = 0
        self._table = _table(head)

    @property
    def count(self) -> int:
        """How many messages were acknowledged."""
        return self.next + len(self.early)

    def take_in_order(self, packets: memoryview, limit: int) -> bool:
        """Takes these bytes if they are the acknowledgements that come next; else takes nothing."""
        count = len(packets) // LENGTH
        if self.early or self.next + count > limit:
            return False
        if not self._table.startswith(packets, self.next % PACKET_ID_CYCLE * LENGTH):
            return False
        self.next += count
        return count > 0

    def take(self, packets: memoryview, limit: int) -> None:
        """Takes a run of acknowledgements for messages below `limit`, in any order."""
        if self.take_in_order(packets, limit):
            return
        for at in range(0, len(packets), LENGTH):
            self._take_one(int.from_bytes(packets[at + 2 : at + 4], "big"), limit)

    def _take_one(self, packet_id: int, limit: int) -> None:
        distance = (packet_id - packet_id_of(self.next)) % PACKET_ID_CYCLE
        sequence = self.next + distance
        if not 0 < packet_id <= PACKET_ID_CYCLE or sequence >= limit or sequence in self.early:
            self.unknown += 1
            return
        self.early.add(sequence)
        while self.next in self.early:
            self.early.remove(self.next)
            self.next += 1


def run_of(buffer: bytearray, start: int, size: int, head: int) -> int:
    """The end of the run of whole acknowledgements of one kind at `start`; `start` if there is none."""
    heads = buffer[start : size - LENGTH + 1 : LENGTH]
    count = len(heads) - len(heads.lstrip(bytes((head,))))
    lengths = buffer[start + 1 : start + count * LENGTH : LENGTH]
    count = count if lengths == b"\2" * count else len(lengths) - len(lengths.lstrip(b"\2"))
    return start + count * LENGTH

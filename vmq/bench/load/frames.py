"""The messages of a publisher, encoded beforehand.

All PUBLISH packets of a flow have one length, so the bytes of a block of messages differ from those of the next one
only in planes: the same byte of each packet. A plane is assigned as one slice with a stride, which costs about a
nanosecond a message; encoding packets one by one would cost a microsecond.

A payload is: publisher (4 bytes), sequence number (4 bytes), filler. The first, middle and last byte of the filler
follow the sequence number, so that payloads cut apart and pieced together anew are noticed.
"""

from collections.abc import Sequence
from typing import Final

from vmq.mqtt.encoder import publish_head

#: Bytes at the start of each payload that say which message it is.
HEADER: Final = 8
#: A publisher's packet ids go from 1 to here and around. A power of two, so that the ids of a block are in one piece.
PACKET_ID_CYCLE: Final = 32_768
#: Messages in a block: a power of two, at most this.
MAX_BLOCK: Final = 4096

#: Bytes of a block, and of one block of each publisher, about.
_BLOCK_BYTES: Final = 96 * 1024
_ALL_BYTES: Final = 8 * 1024 * 1024
#: Blocks of a publisher that are kept: what is sent and what is received are seldom further apart.
_KEPT: Final = 2
_LOW: Final = bytes(range(256)) * (MAX_BLOCK // 256 + 1)
_HIGH: Final = b"".join(bytes((high,)) * 256 for high in range(256)) * 2
_IDS: Final = [number + 1 for number in range(PACKET_ID_CYCLE)]
_ID_LOW: Final = bytes(number & 255 for number in _IDS)
_ID_HIGH: Final = bytes(number >> 8 for number in _IDS)


def packet_id_of(sequence: int) -> int:
    """The packet id under which a publisher sends a message."""
    return sequence % PACKET_ID_CYCLE + 1


def block_size(length: int, publishers: int) -> int:
    """Messages in a block: so few that the processor's caches hold those of all publishers, if that can be."""
    fit = min(_BLOCK_BYTES // length, _ALL_BYTES // (length * publishers))
    size = MAX_BLOCK
    while size > max(fit, 1):
        size //= 2
    return size


class LoadFrames:
    """The PUBLISH packets of one publisher, all of the same length, numbered from 0.

    `plain(n)` is block n as a subscriber is to get it, with packet id 0 at QoS 1 and 2; `numbered(n)` is the same with
    the publisher's packet ids. Both hold `per_block` packets of `length` bytes.
    """

    def __init__(
        self,
        topic: bytes | Sequence[bytes],
        publisher: int,
        size: int,
        qos: int,
        per_block: int = MAX_BLOCK,
    ) -> None:
        """Several topics, all of one length, are used in turn; each block begins with the first."""
        topics = [topic] if isinstance(topic, bytes) else topic
        assert len({len(each) for each in topics}) == 1, "topics of different lengths"
        heads = [publish_head(each, size, qos, False, False) for each in topics]
        head = heads[0]
        self.head = head[0]
        self.publisher = publisher
        self.qos = qos
        self.per_block = per_block
        #: Where in a packet the payload is, and the packet id (QoS 1, 2).
        self.payload_at = len(head) + (2 if qos else 0)
        self.id_at = len(head)
        self.length = self.payload_at + size
        filler = bytes((index * 7 + 13) & 255 for index in range(min(size, 256)))
        payload = publisher.to_bytes(4, "big") + bytes(4)
        payload += (filler * (size // 256 + 1))[: size - HEADER]
        marked = {HEADER, (HEADER + size) // 2, size - 1} if size > HEADER else set()
        #: Where a packet holds the lowest byte of its number.
        self._low_at = [self.payload_at + at for at in sorted({HEADER - 1, *marked})]
        tail = bytes(2 if qos else 0) + payload
        period = b"".join(each + tail for each in heads)
        template = bytearray(period * -(-per_block // len(heads)))[: per_block * self.length]
        if per_block >= 256:
            # These bytes are the same in every block, which begins at a multiple of its size.
            for at in self._low_at:
                template[at :: self.length] = _LOW[:per_block]
        self._template = bytes(template)
        self._plain: dict[int, bytearray] = {}
        self._numbered: tuple[int, bytearray] = (-1, bytearray())

    def plain(self, number: int) -> bytearray:
        """A block as subscribers get it. Not to be changed."""
        block = self._plain.get(number)
        if block is None:
            block = self._build(number)
            if len(self._plain) >= _KEPT:
                del self._plain[min(self._plain)]
            self._plain[number] = block
        return block

    def numbered(self, number: int) -> bytearray:
        """A block as the publisher sends it. Not to be changed."""
        if not self.qos:
            return self.plain(number)
        if self._numbered[0] != number:
            block = bytearray(self.plain(number))
            first = number * self.per_block % PACKET_ID_CYCLE
            block[self.id_at :: self.length] = _ID_HIGH[first : first + self.per_block]
            block[self.id_at + 1 :: self.length] = _ID_LOW[first : first + self.per_block]
            self._numbered = (number, block)
        return self._numbered[1]

    def one(self, sequence: int) -> bytes:
        """A single message as a subscriber gets it."""
        number, index = divmod(sequence, self.per_block)
        start = index * self.length
        return bytes(self.plain(number)[start : start + self.length])

    def sequence_of(self, packet: bytes) -> int:
        """The number that a packet of the right length says it has."""
        at = self.payload_at + 4
        return int.from_bytes(packet[at : at + 4], "big")

    def _build(self, number: int) -> bytearray:
        block = bytearray(self._template)
        length, count = self.length, self.per_block
        base = number * count
        at = self.payload_at + 4
        if count < 256:
            start = base & 255
            low = _LOW[start : start + count]
            for each in self._low_at:
                block[each::length] = low
        # The template has zeros for the rest of the number. Its upper half never changes within a block.
        if base + count > 256:
            start = base & 65_535
            block[at + 2 :: length] = _HIGH[start : start + count]
        if base > 65_535:
            block[at + 1 :: length] = bytes((base >> 16 & 255,)) * count
            block[at::length] = bytes((base >> 24 & 255,)) * count
        return block

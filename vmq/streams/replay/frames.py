"""Rows of a stream as PUBLISH packets at QoS 0: made by Arrow's kernels, not row by row."""

from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from vmq.mqtt.encoder import publish_head, remaining_length
from vmq.mqtt.packets import MAX_REMAINING_LENGTH

#: Remaining lengths whose packets' heads are looked up.
_SHORT: Final = 16_384
#: Bytes of packets that go out in one piece, if they are more than one.
PIECE: Final = 32_768
#: Bytes that a topic may have [MQTT-1.5.3-3].
_LONGEST_TOPIC: Final = 65_535
_EMPTY: Final = pa.scalar(b"", pa.binary())


class Piece(NamedTuple):
    """Packets of consecutive rows."""

    data: bytes
    rows: int


def _heads() -> pa.Array:
    """By remaining length, without RETAIN and with it: the first bytes of a packet."""
    lengths = [remaining_length(length) for length in range(_SHORT)]
    return pa.array(
        [b"\x30" + each for each in lengths] + [b"\x31" + each for each in lengths], pa.binary()
    )


_HEADS: Final = _heads()


def fits(rows: pa.RecordBatch, prefix: bytes) -> pa.BooleanArray | None:
    """Which rows are packets of MQTT behind a prefix; None: all are."""
    topics = pc.add(pc.binary_length(rows.column("topic")), len(prefix))
    sizes = pc.add(topics, pc.binary_length(rows.column("payload")))
    if rows.num_rows and (
        pc.max(topics).as_py() > _LONGEST_TOPIC or pc.max(sizes).as_py() > MAX_REMAINING_LENGTH - 4
    ):
        return pc.and_(
            pc.less_equal(topics, _LONGEST_TOPIC), pc.less_equal(sizes, MAX_REMAINING_LENGTH - 4)
        )
    return None


def pieces_of(rows: pa.RecordBatch, prefix: bytes, as_published: bool) -> list[Piece]:
    """Rows with `topic`, `payload` and `retain`, in order, as packets.

    Args:
        rows: all of which fit (`fits`).
        prefix: what stands before each topic.
        as_published: RETAIN is as it was published; else 0.
    """
    if not rows.num_rows:
        return []
    encoded = rows.column("topic").dictionary_encode()
    names = [prefix + each.encode() for each in encoded.dictionary.to_pylist()]
    payloads = rows.column("payload")
    topics = pa.array([len(each).to_bytes(2, "big") + each for each in names], pa.binary())
    sizes = pa.array([2 + len(each) for each in names], pa.int32())
    lengths = pc.add(sizes.take(encoded.indices), pc.binary_length(payloads))
    if pc.max(lengths).as_py() >= _SHORT:
        return _one_by_one(rows, names, encoded.indices, as_published)
    if as_published:
        lengths = pc.add(lengths, pc.multiply(rows.column("retain").cast(pa.int32()), _SHORT))
    packets = pc.binary_join_element_wise(
        _HEADS.take(lengths), topics.take(encoded.indices), payloads, _EMPTY
    )
    return _cut(packets)


def _cut(packets: pa.BinaryArray) -> list[Piece]:
    """What lies in one buffer already, in pieces."""
    _, offsets, data = packets.buffers()
    first = packets.offset
    ends = memoryview(offsets).cast("i")[first : first + len(packets) + 1]
    bytes_of = memoryview(data)
    found: list[Piece] = []
    row, count = 0, len(packets)
    while row < count:
        begin = ends[row]
        low, high = row + 1, count
        while low < high:  # the last row that fits
            middle = (low + high + 1) // 2
            if ends[middle] - begin <= PIECE:
                low = middle
            else:
                high = middle - 1
        found.append(Piece(bytes(bytes_of[begin : ends[low]]), low - row))
        row = low
    return found


def _one_by_one(
    rows: pa.RecordBatch, names: list[bytes], indices: pa.Array, as_published: bool
) -> list[Piece]:
    """Large messages: what is in them costs more than the loop."""
    found: list[Piece] = []
    gathered: list[bytes] = []
    size = 0
    topics, payloads, retained = indices.to_pylist(), rows.column("payload"), rows.column("retain")
    for row, index in enumerate(topics):
        payload = payloads[row].as_py()
        retain = as_published and retained[row].as_py()
        gathered += (publish_head(names[index], len(payload), 0, retain, False), payload)
        size += len(payload) + len(names[index])
        if size >= PIECE:
            found.append(Piece(b"".join(gathered), len(gathered) // 2))
            gathered, size = [], 0
    if gathered:
        found.append(Piece(b"".join(gathered), len(gathered) // 2))
    return found

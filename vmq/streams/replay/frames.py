"""Rows of a stream as PUBLISH packets: made by Arrow's kernels, not row by row."""

from bisect import bisect_right
from typing import Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from vmq.core.window import LAST_ID
from vmq.mqtt.encoder import publish_head, remaining_length
from vmq.mqtt.packets import MAX_REMAINING_LENGTH
from vmq.streams.replay.sending import Frames

#: Remaining lengths whose packets' heads are looked up.
_SHORT: Final = 16_384
#: Bytes of packets that go out in one piece, if they are more than one.
PIECE: Final = 32_768
#: Bytes that a topic may have [MQTT-1.5.3-3].
_LONGEST_TOPIC: Final = 65_535
_EMPTY: Final = pa.scalar(b"", pa.binary())
_TWO: Final = pa.scalar(2, pa.int32())
_FOUR: Final = pa.scalar(4, pa.int32())


class Piece(NamedTuple):
    """Packets of consecutive rows."""

    data: bytes | memoryview
    rows: int


def _heads() -> pa.Array:
    """By remaining length, without RETAIN and with it: the first bytes of a packet."""
    lengths = [remaining_length(length) for length in range(_SHORT)]
    return pa.array(
        [b"\x30" + each for each in lengths] + [b"\x31" + each for each in lengths], pa.binary()
    )


#: Of QoS 0, and of QoS 1.
_HEADS: Final = _heads()
_HEADS_1: Final = pc.if_else(
    pc.starts_with(_HEADS, b"\x30"),
    pc.binary_replace_slice(_HEADS, 0, 1, b"\x32"),
    pc.binary_replace_slice(_HEADS, 0, 1, b"\x33"),
)
#: The length of a topic, or a packet id, as packets have them.
_TWO_BYTES: Final = pa.array([each.to_bytes(2, "big") for each in range(LAST_ID + 1)], pa.binary())


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
    """Rows with `topic`, `payload` and `retain`, in order, as packets; without those that are none (`fits`).

    Args:
        rows: what is to go out.
        prefix: what stands before each topic.
        as_published: RETAIN is as it was published; else 0.
    """
    if not rows.num_rows:
        return []
    frames = frames_of(rows, prefix, as_published)
    return _one_by_one(rows, prefix, as_published) if frames is None else cut(frames)


def frames_of(
    rows: pa.RecordBatch, prefix: bytes, as_published: bool, first: int = 0, least: int = 1
) -> Frames | None:
    """Rows with `offset`, too, as packets; None: one of them is large, or there is none.

    At QoS 1 their packet ids are `first` and those behind it, and after the last one there is `least` and those behind
    that. `first` is 0 at QoS 0.
    """
    if not rows.num_rows:
        return None
    ids_of = _ids(first, least, rows.num_rows) if first else None
    packets = _packets(rows, prefix, as_published, ids_of)
    if packets is None:
        return None
    _, offsets, data = packets.buffers()
    count = len(packets)
    ends = pa.Array.from_buffers(pa.int32(), count + 1, [None, offsets], offset=packets.offset)
    before = pc.add(pc.binary_length(rows.column("payload")), _TWO)
    ids = pc.subtract(ends.slice(1), before) if first else ends.slice(0, 0)
    return Frames(
        memoryview(data).cast("B"),
        _numbers(ends, "i"),
        _numbers(ids, "i"),
        _numbers(rows.column("offset"), "q"),
        first,
        least,
    )


def _ids(first: int, least: int, count: int) -> pa.BinaryArray:
    """So many packet ids, as packets have them."""
    parts = [_TWO_BYTES.slice(first, min(count, LAST_ID + 1 - first))]
    left = count - len(parts[0])
    while left:
        parts.append(_TWO_BYTES.slice(least, min(left, LAST_ID + 1 - least)))
        left -= len(parts[-1])
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


def _numbers(values: pa.Array, form: Literal["i", "q"]) -> "memoryview[int]":
    """Numbers, none of them null, as the event loop reads them: one at a time, without Arrow."""
    found = memoryview(values.buffers()[1]).cast("B").cast(form)
    return found[values.offset : values.offset + len(values)]


def _packets(
    rows: pa.RecordBatch, prefix: bytes, as_published: bool, ids: pa.BinaryArray | None
) -> pa.BinaryArray | None:
    """Each row as a packet, at QoS 1 where there are packet ids. None: one of them is large."""
    topics = rows.column("topic").cast(pa.binary())
    payloads = rows.column("payload")
    sizes = pc.binary_length(topics)
    if prefix:
        sizes = pc.add(sizes, pa.scalar(len(prefix), pa.int32()))
    lengths = pc.add(pc.add(sizes, pc.binary_length(payloads)), _TWO if ids is None else _FOUR)
    if pc.max(lengths).as_py() >= _SHORT:
        return None
    if as_published:
        lengths = pc.add(lengths, pc.multiply(rows.column("retain").cast(pa.int32()), _SHORT))
    before = (pa.scalar(prefix, pa.binary()),) if prefix else ()
    heads = (_HEADS if ids is None else _HEADS_1).take(lengths)
    id_of = () if ids is None else (ids,)
    return pc.binary_join_element_wise(
        heads, _TWO_BYTES.take(sizes), *before, topics, *id_of, payloads, _EMPTY
    )


def cut(frames: Frames) -> list[Piece]:
    """What lies in one buffer already, in pieces; they are copied when they go out, not before."""
    ends, bytes_of = frames.ends, frames.data
    found: list[Piece] = []
    row, count = 0, frames.count
    while row < count:
        begin = ends[row]
        last = bisect_right(ends, begin + PIECE, row + 1, count + 1) - 1
        last = max(last, row + 1)
        found.append(Piece(bytes_of[begin : ends[last]], last - row))
        row = last
    return found


def _one_by_one(rows: pa.RecordBatch, prefix: bytes, as_published: bool) -> list[Piece]:
    """Large messages: what is in them costs more than the loop."""
    mask = fits(rows, prefix)
    if mask is not None:
        rows = rows.filter(mask)
    found: list[Piece] = []
    gathered: list[bytes] = []
    size = 0
    topics, payloads, retained = (rows.column(name) for name in ("topic", "payload", "retain"))
    for row, topic in enumerate(topics.cast(pa.binary()).to_pylist()):
        name = prefix + topic
        payload = payloads[row].as_py()
        retain = as_published and retained[row].as_py()
        head = publish_head(name, len(payload), 0, retain, False)
        gathered += (head, payload)
        size += len(head) + len(payload)
        if size >= PIECE:
            found.append(Piece(b"".join(gathered), len(gathered) // 2))
            gathered, size = [], 0
    if gathered:
        found.append(Piece(b"".join(gathered), len(gathered) // 2))
    return found
